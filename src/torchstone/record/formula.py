"""What a module class costs as a formula: templates, the domain they hold in, and the evidence that they are right."""

from enum import StrEnum

from torchstone.record.base import Record
from torchstone.record.notebook import html_table


class Quantity(StrEnum):
    """What a template computes; nested calls compute the same quantity of the nested module."""

    FLOPS = "flops"
    READS = "reads"  # bytes read, each op reading its inputs
    WRITES = "writes"  # bytes written, each op writing its outputs
    INTERMEDIATES = "intermediates"  # most bytes of activations held at one time, inputs and outputs with them
    WEIGHTS = "weights"  # bytes of parameters and buffers


class Status(StrEnum):
    """How far an entry can be trusted."""

    VALIDATED = "validated"  # equal to executed ops at every measured point
    PENDING = "pending"  # equal at the measured points, but written by an agent and not yet approved by a person
    UNCHECKED = "unchecked"  # written by hand and never compared with executed ops
    FAILED = "failed"  # a measured point differs; the notes say which


class CodeLocation(Record, frozen=True, kw_only=True, omit_defaults=False):
    """Where the class stands; the file is relative to its library's folder."""

    file: str
    line_start: int
    line_end: int


class FlopAnalysis(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The FLOPs of one call; a multiply-add is two."""

    parameters: tuple[str, ...]  # in the order of positional arguments
    formula_template: str
    module_depends: tuple[str, ...] = ()  # class paths of the modules that templates call
    breakdown: dict[str, str] = {}  # name of a part -> its template; the parts add up to the formula
    thinking_process: str = ""


class MemoryAnalysis(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The bytes of one call; None is a quantity that is not known."""

    parameters: tuple[str, ...]
    reads_template: str
    writes_template: str
    intermediates_template: str | None = None
    weights_template: str | None = None
    module_depends: tuple[str, ...] = ()
    thinking_process: str = ""


class Validation(Record, frozen=True, kw_only=True, omit_defaults=False):
    """Who or what says that the entry is right."""

    status: Status
    validator: str = ""  # derived, agent, a person's name
    date: str = ""  # of the validation, as YYYY-MM-DD
    notes: str = ""


class Evidence(Record, frozen=True, kw_only=True, omit_defaults=False):
    """What the formula was compared with."""

    points_checked: int
    max_error: str  # the largest difference, as an exact number: "0"
    routes: tuple[str, ...] = ()  # fitted, held out, symbolic, measured


class FormulaEntry(Record, frozen=True, kw_only=True, omit_defaults=False):
    """What one module class, or one variant of its code path, costs."""

    module_path: str  # as the class names itself: torch.nn.modules.linear.Linear
    variant: str = ""  # a code path of its own: eager, cache; "" is the usual one
    aliases: tuple[str, ...] = ()  # other paths of the same class: torch.nn.Linear
    code_location: CodeLocation | None = None
    flop_analysis: FlopAnalysis
    memory_analysis: MemoryAnalysis | None = None
    defaults: dict[str, str] = {}  # parameter -> its value where it is not given, as an expression of the others
    domain: tuple[str, ...] = ()  # conditions on the parameters under which the formulas hold
    assumptions: tuple[str, ...] = ()  # what else must hold, in words: attention is eager, tokens spread evenly
    validation: Validation
    versions: dict[str, str] = {}  # library -> the version that was measured
    evidence: Evidence | None = None

    def template(self, quantity: Quantity) -> str | None:
        """The template of one quantity; None where it is not known."""
        memory = self.memory_analysis
        match quantity:
            case Quantity.FLOPS:
                return self.flop_analysis.formula_template
            case Quantity.READS:
                return None if memory is None else memory.reads_template
            case Quantity.WRITES:
                return None if memory is None else memory.writes_template
            case Quantity.INTERMEDIATES:
                return None if memory is None else memory.intermediates_template
            case Quantity.WEIGHTS:
                return None if memory is None else memory.weights_template

    def parameters(self, quantity: Quantity) -> tuple[str, ...]:
        """The parameters that a template of this quantity may use, in the order of positional arguments."""
        if quantity is Quantity.FLOPS or self.memory_analysis is None:
            return self.flop_analysis.parameters
        return self.memory_analysis.parameters

    def depends(self, quantity: Quantity) -> tuple[str, ...]:
        """The class paths that a template of this quantity may call by their last name."""
        if quantity is Quantity.FLOPS or self.memory_analysis is None:
            return self.flop_analysis.module_depends
        return self.memory_analysis.module_depends

    @property
    def all_parameters(self) -> tuple[str, ...]:
        """The parameters of all templates, each once."""
        of_memory = () if self.memory_analysis is None else self.memory_analysis.parameters
        return tuple(dict.fromkeys((*self.flop_analysis.parameters, *of_memory)))

    def _repr_html_(self) -> str:
        """The template of each quantity, for a notebook; `unknown` where there is none."""
        rows = [(str(quantity), self.template(quantity) or "unknown") for quantity in Quantity]
        held = [f"holds for {condition}" for condition in self.domain]
        return html_table(self.module_path, ("quantity", "formula"), rows, notes=[*held, *self.assumptions])


class FormulaDatabase(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The entries of one file, by key: the class path with `.` written as `__`."""

    modules: dict[str, FormulaEntry] = {}


class MeasuredCost(Record, frozen=True, kw_only=True):
    """What a module was measured to cost at one setting of its parameters."""

    parameters: dict[str, int]
    flops: int
    reads_bytes: int
    writes_bytes: int
