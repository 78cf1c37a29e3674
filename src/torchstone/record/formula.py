"""Formulas of a module class: templates, their domain and evidence; and a whole model priced by formulas."""

from enum import StrEnum
from typing import ClassVar

import msgspec

from torchstone.record.base import Document, Record, Schema
from torchstone.record.cost import Hardware, OptimiserCost

# --- Formulas of a module class: templates, domain, evidence ---


class Quantity(StrEnum):
    """What a template computes; nested calls compute the same quantity of the nested module."""

    FLOPS = "flops"
    READS = "reads"  # bytes read, each op reading its inputs
    WRITES = "writes"  # bytes written, each op writing its outputs
    INTERMEDIATES = "intermediates"  # peak bytes of live activations, inputs and outputs included
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


Setting = bool | int | float | str | None


class BuiltBy(Record, frozen=True, kw_only=True, omit_defaults=False):
    """How the module of an entry is built again: by a function of the user, or as a model at its own configuration."""

    recipe: str = ""  # FILE.py::FUNCTION; "" for a model
    model: str = ""  # a model name, or default:MODEL_TYPE for the default configuration of a model type
    sizes: tuple[str, ...] = ()  # the arguments of the function, or the sizes of the model's inputs


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
    settings: dict[str, Setting] = {}  # values that the formulas hold for alone: hidden_act, tie_word_embeddings
    built_by: BuiltBy | None = None  # None: a class of torch.nn or transformers, or one that nothing builds
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
        from torchstone.record.notebook import html_table

        rows = [(str(quantity), self.template(quantity) or "unknown") for quantity in Quantity]
        domain = [f"holds for {condition}" for condition in self.domain]
        return html_table(self.module_path, ("quantity", "formula"), rows, notes=[*domain, *self.assumptions])


class FormulaDatabase(Document, frozen=True, kw_only=True, omit_defaults=False):
    """The entries of one file, by key: the class path with `.` written as `__`."""

    schema: ClassVar[Schema] = Schema(kind="module_db", version=1)
    modules: dict[str, FormulaEntry] = {}


class ZooFormulas(Document, frozen=True, kw_only=True, omit_defaults=False):
    """For each zoo model, the formula of the whole model at its published configuration."""

    schema: ClassVar[Schema] = Schema(kind="zoo_formulas", version=1)
    models: dict[str, FormulaEntry] = {}


class MeasuredCost(Record, frozen=True, kw_only=True):
    """What a module was measured to cost at one setting of its parameters."""

    parameters: dict[str, int]
    flops: int
    reads_bytes: int
    writes_bytes: int
    live_bytes: int | None = None  # peak of live activations; None: not measured
    weight_bytes: int | None = None  # parameters and buffers; None: not measured

    @property
    def quantities(self) -> dict[Quantity, int]:
        """The measured number of each quantity that was measured."""
        found = {
            Quantity.FLOPS: self.flops,
            Quantity.READS: self.reads_bytes,
            Quantity.WRITES: self.writes_bytes,
            Quantity.INTERMEDIATES: self.live_bytes,
            Quantity.WEIGHTS: self.weight_bytes,
        }
        return {quantity: number for quantity, number in found.items() if number is not None}


# --- A formula on a device, over one unknown ---


COMPUTE, TRAFFIC = "compute", "memory"  # what bounds a call on a device


class TradeOffPoint(Record, frozen=True, kw_only=True):
    """A formula at one value of the unknown, on each device."""

    value: int
    memory_bytes: int  # weights and live activations
    compute_s: float
    traffic_s: float

    @property
    def bound(self) -> str:
        """The slower of the two."""
        return COMPUTE if self.compute_s >= self.traffic_s else TRAFFIC


class TradeOff(Record, frozen=True, kw_only=True):
    """The values of the unknown that fit on a device, and the series of a chart."""

    module_path: str
    parameter: str  # a parameter of the formula, or TP: the number of devices
    hardware: Hardware
    devices: int
    element_type: str
    memory_bytes: int
    fits: int | None  # the largest value that fits, the smallest for TP; None: no value fits
    points: tuple[TradeOffPoint, ...]
    bounds: tuple[tuple[int, str], ...]  # from which value on, and what bounds the call there


# --- A whole model by formulas, beside the traced costs ---


class Coverage(StrEnum):
    """Where the number of a module comes from."""

    FORMULA = "formula"  # from an entry that was known
    DERIVED = "derived now"  # from an entry that was derived for this run
    PENDING = "pending"  # from an entry written by an agent and not yet approved
    TRACED = "traced only"  # there is no formula: only the traced number is known


class FormulaModule(Record, frozen=True, kw_only=True):
    """One module of a model; a module that is called several times stands for all its calls."""

    path: str
    class_name: str = msgspec.field(name="class")
    coverage: Coverage
    calls: int
    traced_flops: int
    traced_bytes_read: int
    traced_bytes_written: int
    flops: int | None = None  # by formula; None where there is none
    bytes_read: int | None = None
    bytes_written: int | None = None
    reason: str = ""  # why there is no formula

    @property
    def agrees(self) -> bool:
        """Whether formula and trace give the same; a module without a formula has nothing to disagree with."""
        if self.coverage is Coverage.TRACED:
            return True
        by_formula = (self.flops, self.bytes_read, self.bytes_written)
        return by_formula == (self.traced_flops, self.traced_bytes_read, self.traced_bytes_written)


class FormulaCost(Record, frozen=True, kw_only=True):
    """A whole model by formulas."""

    model: str
    modules: tuple[FormulaModule, ...]  # in the order of the trace's modules; those that ran
    evaluation_s: float  # to evaluate all formulas
    optimizer: OptimiserCost | None = None  # its step over all trainable parameters; None: not asked for

    def count(self, coverage: Coverage) -> int:
        """How many modules have their number from there."""
        return sum(module.coverage is coverage for module in self.modules)

    @property
    def disagreeing(self) -> tuple[FormulaModule, ...]:
        """Modules whose formula gives another number than the trace."""
        return tuple(module for module in self.modules if not module.agrees)

    @property
    def document(self) -> "FormulaCostDocument":
        """The same with its counts written out, for programs that read it."""
        return FormulaCostDocument(
            model=self.model,
            coverage={one.value: self.count(one) for one in Coverage},
            disagreeing=tuple(module.path for module in self.disagreeing),
            evaluation_s=self.evaluation_s,
            modules=self.modules,
            optimizer=self.optimizer,
        )


class FormulaCostDocument(Document, frozen=True, kw_only=True):
    """A whole model by formulas, as `torchstone cost --by formula --json` prints it."""

    schema: ClassVar[Schema] = Schema(kind="cost_by_formula", version=1)
    model: str
    coverage: dict[str, int]  # where numbers come from -> number of modules
    disagreeing: tuple[str, ...]  # paths of modules whose formula and trace differ
    evaluation_s: float
    modules: tuple[FormulaModule, ...]
    optimizer: OptimiserCost | None = None
