"""A reference: golden data, the comparison of a port with it, the checklist, and the torch functions a model calls."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import ClassVar, assert_never

from torchstone.record.base import Count, Document, Record, Schema, Size
from torchstone.record.consistency import distinct, inside, known
from torchstone.units import many

# --- Golden data: tensors of the reference run, how to reproduce it, its determinism ---


class Role(StrEnum):
    """What a tensor was in the reference run."""

    INPUT = "input"
    OUTPUT = "output"
    MODULE_INPUT = "module input"
    MODULE_OUTPUT = "module output"


class Determinism(StrEnum):
    """Whether the model gives the same bits again."""

    EQUAL = "equal"  # the same bits, whatever the seed
    SEEDED = "seeded"  # the same bits only with the same seed: the model draws random numbers
    DIFFERS = "differs"  # other bits even with the same seed


class Saved(Record, frozen=True, kw_only=True, tag="tensor"):
    """A tensor of a structure, by its name in the file of tensors."""

    name: str


class Group(Record, frozen=True, kw_only=True, tag="group"):
    """Parts that belong together: a list, tuple, dictionary or object."""

    kind: str  # list, tuple, dict, object
    class_name: str = ""  # of an object, or of a dictionary that is more than one
    parts: tuple[tuple[str, Part], ...] = ()


class NotKept(Record, frozen=True, kw_only=True, tag="not kept"):
    """A value that was there but is not kept."""

    class_name: str
    text: str = ""


Part = None | bool | int | float | str | Saved | Group | NotKept


def saved_names(part: Part) -> list[str]:
    """The names of the tensors in a structure, in order."""
    if isinstance(part, Group):
        return [name for _, inner in part.parts for name in saved_names(inner)]
    return [part.name] if isinstance(part, Saved) else []


class GoldenTensor(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One tensor of the reference run."""

    name: str  # its key in golden_data.safetensors
    role: Role
    shape: tuple[Size, ...]
    dtype: str
    module: str | None = None  # the path of the module that took or gave it; None for the model itself
    reason: str = ""  # why its values are not in the file; "" when they are


class Drift(Record, frozen=True, kw_only=True, omit_defaults=False):
    """A tensor that was not the same in a second run."""

    name: str
    max_abs: float | None  # None: the values cannot be subtracted
    first_seen: str  # the module that gave it, or ""


class Rebuild(Record, frozen=True, kw_only=True, omit_defaults=False):
    """What the model and its inputs are made from."""

    model: str  # as the user named it
    inputs: str | None = None  # a function that gives the inputs; None: they come with the model or are generated
    options: dict[str, bool | int | str | tuple[str, ...] | None] = {}


class WeightsKind(StrEnum):
    """Where the values of a model's weights come from."""

    RANDOM = "random"  # drawn from the seed
    PRETRAINED = "pretrained"  # every tensor is in the weight files
    PARTLY_RANDOM = "partly random"  # some tensors are in no weight file and were drawn from the seed
    CODE = "code"  # the user's code sets them: trained or not is unknown
    FILE = "file"  # an exported program contains them: trained or not is unknown
    MEMORY = "memory"  # a module that was passed in memory: trained or not is unknown


RANDOM_WEIGHTS = "random weights"  # the first words of a banner when any tensor is random
_SHOWN_TENSORS = 3


class WeightsSource(Record, frozen=True, kw_only=True, omit_defaults=False):
    """Where the weights of a run come from, and the files they were read from."""

    kind: WeightsKind
    location: str = ""  # a folder, a model on the hub, a file or a function; "" for drawn weights and for memory
    revision: str = ""  # the commit on the hub; "" for anything else
    files: dict[str, str] = {}  # weight file -> its SHA-256
    drawn: tuple[str, ...] = ()  # tensors of the model that are in no weight file, so that they are random
    unused: tuple[str, ...] = ()  # tensors of the weight files that the model does not have

    @property
    def banner(self) -> str:
        """The first line of everything that shows the reference."""
        unknown = "torchstone cannot tell whether they are trained"
        match self.kind:
            case WeightsKind.RANDOM:
                return (
                    f"{RANDOM_WEIGHTS}: the outputs can be reproduced, "
                    "but they are not those of a trained model (see --pretrained)"
                )
            case WeightsKind.PRETRAINED:
                return f"pretrained weights: {self._files()}"
            case WeightsKind.PARTLY_RANDOM:
                more = " ..." if len(self.drawn) > _SHOWN_TENSORS else ""
                names = f"{', '.join(self.drawn[:_SHOWN_TENSORS])}{more}"
                return (
                    f"{RANDOM_WEIGHTS} in {many(len(self.drawn), 'tensor')} that no weight file has ({names}); "
                    f"all others are pretrained: {self._files()}"
                )
            case WeightsKind.CODE:
                return f"weights set by {self.location}: {unknown}"
            case WeightsKind.FILE:
                return f"weights from {self.location}: {unknown}"
            case WeightsKind.MEMORY:
                return f"weights of the module in memory: {unknown}"
            case _:
                assert_never(self.kind)

    def _files(self) -> str:
        names = list(self.files)
        found = names[0] if len(names) == 1 else many(len(names), "file")
        return f"{found} of {self.location}{f' at revision {self.revision[:12]}' if self.revision else ''}"


class Weights(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The state that the run used, identified by its fingerprint."""

    sha256: str  # over names, shapes, element types and bytes of all parameters and buffers, in the order of names
    tensors: Count
    size_bytes: Count
    hashes: dict[str, str] = {}  # SHA-256 of the bytes of each tensor; {} in documents of older versions
    file: str = ""  # "" when the seed makes them again
    source: WeightsSource | None = None  # None in documents that were written before it was recorded


class GoldenData(Document, frozen=True, kw_only=True, omit_defaults=False):
    """The document golden_data.json."""

    schema: ClassVar[Schema] = Schema(kind="golden_data", version=1)
    banner: str = ""  # where the weights come from, in one line; "" in documents that were written before it existed
    model: str
    rebuild: Rebuild
    seed: int
    dtypes: tuple[str, ...]  # of the parameters
    versions: dict[str, str]
    threads: Count  # the order of additions, and so the last bits, depend on it
    created: str  # UTC, ISO 8601
    inputs: Part
    outputs: Part
    tensors: tuple[GoldenTensor, ...]  # in order of execution: inputs, modules as they ran, outputs
    intermediates: str = ""  # unique, all, a pattern, or "" for none
    not_called: tuple[str, ...] = ()  # modules that were asked for and did not run
    determinism: Determinism = Determinism.EQUAL
    drifts: tuple[Drift, ...] = ()
    weights: Weights
    inputs_origin: str = ""
    notes: tuple[str, ...] = ()  # assumptions about generated inputs
    tensors_sha256: str = ""  # of golden_data.safetensors; "" before it is written

    def check(self) -> None:
        """The structures of inputs and outputs name tensors that are listed, each once."""
        names = [tensor.name for tensor in self.tensors]
        distinct("tensors", names)
        known("inputs", saved_names(self.inputs), frozenset(names))
        known("outputs", saved_names(self.outputs), frozenset(names))
        inside("weights", [self.weights.file])


# --- Comparison of a candidate with the golden data: one verdict per tensor, with its tolerance ---


class Status(StrEnum):
    """How the comparison of one tensor ended."""

    PASSED = "passed"
    SUSPICIOUS = "suspicious"  # more than the noise explains, but not enough to call it wrong
    WRONG_VALUES = "wrong values"
    WRONG_NON_FINITE = "wrong NaN or Inf"
    WRONG_SHAPE = "wrong shape"
    WRONG_DTYPE = "wrong dtype"  # another kind of number; a narrower float is reported but not wrong
    MISSING = "missing"  # an output that the candidate does not have
    NOT_GIVEN = "not given"  # an input or intermediate that the candidate does not have
    NOT_KEPT = "not kept"  # the golden data has no values to compare with


WRONG = frozenset(
    {Status.WRONG_VALUES, Status.WRONG_NON_FINITE, Status.WRONG_SHAPE, Status.WRONG_DTYPE, Status.MISSING}
)


class MatchedBy(StrEnum):
    """How a tensor of a port was recognised."""

    NAME = "name"  # the golden name, a short form of it, or one that differs in separators alone
    MAP = "map"  # the user's file of names
    VALUE = "value"  # its values are those of this golden tensor and of no other
    PATTERN = "pattern"  # its name, which follows the pattern of those that were recognised by value
    ORDER = "order"  # its place among the others, and its shape


class Tolerance(Record, frozen=True, kw_only=True, omit_defaults=False):
    """What a tensor was judged by."""

    pcc: float  # at least
    relative_l2: float  # at most: PCC does not see a wrong scale or offset, this does
    rtol: float  # of allclose, by element type
    atol: float
    exact: bool = False  # whole numbers and booleans must be equal


class Errors(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The distance of two tensors of equal shape; None where a metric is not defined for them."""

    pcc: float | None
    pcc_reason: str  # why there is no PCC; "" when there is
    cosine: float | None
    max_abs: float | None
    max_rel: float | None  # over the elements that are not 0 in the golden tensor
    relative_l2: float | None
    allclose: bool
    equal: bool  # bit for bit, NaNs at the same places
    compared: Count  # elements that are finite in both
    nan: tuple[int, int] = (0, 0)  # in the golden tensor, in the candidate
    inf: tuple[int, int] = (0, 0)
    misplaced: Count = 0  # elements that are NaN or infinite in one and not the same in the other
    worst_at: tuple[int, ...] | None = None  # the first misplaced element, or the one with the largest error
    max_ulp: float | None = None  # representable numbers between two elements; None for two dtypes, or no floats
    ulp_histogram: dict[str, int] | None = None  # ULP "0", "1", "2-3", "4-7", ... -> elements


class NoiseOfTensor(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The noise that a tensor was judged by."""

    format: str  # the number format that the candidate was judged in
    basis: str  # measured, scaled from another format, or assumed
    measure: str  # which measure of the error is the largest multiple
    relative_error: float | None  # of the float64 values
    relative_noise: float | None


class TensorVerdict(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The verdict on one tensor."""

    name: str
    role: Role
    module: str | None
    status: Status
    detail: str = ""
    shape: tuple[Size, ...]
    dtype: str
    candidate_shape: tuple[Size, ...] | None = None
    candidate_dtype: str | None = None
    errors: Errors | None = None
    tolerance: Tolerance | None = None
    port_name: str = ""  # what the port calls it; "" when it has none
    matched_by: MatchedBy | None = None  # None: the port has no such tensor
    layout: tuple[str, ...] = ()  # what was undone before the values were compared, in this order
    state: str = ""  # passed, suspicious, wrong, or why there is no verdict: not given, not kept
    noise_multiple: float | None = None  # the error over the noise of a correct implementation; None: not known
    noise: NoiseOfTensor | None = None  # None for what has no noise: integers, other shapes


class LayerError(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The error of one call of a module: what its inputs bring in, and what its outputs have."""

    module: str
    call: str  # modules/norm#2 is the second call
    state: str  # of its outputs: passed, wrong, ...
    error: float | None  # the largest relative L2 error of its outputs; None: not defined
    inherited: float | None  # the largest one of its inputs; None: unknown, as not all of them were given
    added: float | None  # error - inherited: below 0 where the module reduces the error


class SetupCheck(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One aspect of the set-up of a port beside that of the reference."""

    aspect: str  # weights, inputs, mode, dtype, seed, versions
    same: bool | None  # None: unknown, as one of them does not state it
    detail: str
    names: tuple[str, ...] = ()  # the weights or inputs that differ
    decisive: bool = False  # a difference makes the values of all layers wrong


class Comparison(Document, frozen=True, kw_only=True, omit_defaults=False):
    """A candidate against the golden data, in order of execution."""

    schema: ClassVar[Schema] = Schema(kind="comparison", version=1)
    model: str
    candidate: str
    golden_created: str = ""  # when the golden data was made: a later one is another
    passed: bool
    setup: tuple[SetupCheck, ...] = ()  # compared before any number; () where the candidate is no port
    incomplete: str = ""  # what was not given, where that is most of the results or an output; --partial accepts it
    first_wrong: str | None = None  # the name of the first tensor that is wrong
    first_wrong_module: str | None = None  # the module that gave it; "" for the model itself
    verdicts: tuple[TensorVerdict, ...] = ()
    layers: tuple[LayerError, ...] = ()  # calls of modules in order of execution
    spread: str = ""  # where the error begins and how it grows, in words
    next_step: str = ""  # what to look at, where something is wrong
    unknown: tuple[str, ...] = ()  # names of the candidate that the golden data does not have
    notes: tuple[str, ...] = ()

    def check(self) -> None:
        """An error that spreads has layers to spread over."""
        if self.spread and not self.layers:
            msg = "spread describes layers, and there are none"
            raise ValueError(msg)

    @property
    def suspicious(self) -> tuple[TensorVerdict, ...]:
        """The tensors that passed with an error that noise explains only in part."""
        return tuple(verdict for verdict in self.verdicts if verdict.status is Status.SUSPICIOUS)

    @property
    def counts(self) -> dict[str, int]:
        """How many tensors ended how."""
        return dict(Counter(verdict.status.value for verdict in self.verdicts))


# --- Checklist: each box is ticked by checks that ran, never by hand ---


CHECKLIST_FILE = "checklist.json"
DELIVERABLES = {
    "golden_data": "Golden data",
    "graph": "Model graph",
    "summary": "Model summary",
    "operators": "Operators",
    "shapes": "Intermediate shapes and hierarchy",
    "parameters": "Parameters",
}  # the boxes by name, with their titles


class Check(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One check of a deliverable."""

    title: str
    passed: bool
    detail: str = ""  # what was found


class Box(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One deliverable."""

    name: str
    title: str
    files: tuple[str, ...]
    checks: tuple[Check, ...]

    @property
    def ticked(self) -> bool:
        """Every check passed, and there was at least one."""
        return bool(self.checks) and all(check.passed for check in self.checks)


class Checklist(Document, frozen=True, kw_only=True, omit_defaults=False):
    """The document checklist.json."""

    schema: ClassVar[Schema] = Schema(kind="checklist", version=1)
    banner: str = ""  # where the weights come from, in one line; "" when the model did not run
    model: str
    complete: bool  # every box is ticked
    boxes: tuple[Box, ...]
    seals: dict[str, str] = {}  # SHA-256 of each file when it was checked

    def check(self) -> None:
        """The files are below the folder of the checklist."""
        inside("seals", self.seals)
        for box in self.boxes:
            inside(f"box {box.name[:80]}", box.files)


# --- Torch functions that the model's code calls ---


class FunctionUse(Record, frozen=True, kw_only=True, omit_defaults=False):
    """A function with one set of arguments, and where it is called."""

    function: str  # torch.nn.functional.linear, torch.Tensor.view
    arguments: str
    output: str
    calls: Count
    modules: tuple[str, ...]  # the paths of the modules whose code calls it; "" is the model itself
