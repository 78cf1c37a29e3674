"""Golden data: which tensors a reference run took and gave, how to make that run again, and how sure it is."""

from __future__ import annotations

from enum import StrEnum

from torchstone.record.base import Record


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


class GoldenTensor(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One tensor of the reference run."""

    name: str  # its key in golden_data.safetensors
    role: Role
    shape: tuple[int, ...]
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
    inputs: str | None = None  # a function that gives the inputs; None: they come with the model or are made up
    options: dict[str, int | str | None] = {}


class Weights(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The state that the run used, told by its fingerprint."""

    sha256: str  # over names, shapes, element types and bytes of all parameters and buffers, in the order of names
    tensors: int
    size_bytes: int
    file: str = ""  # "" when the seed makes them again


class GoldenData(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The document golden_data.json."""

    model: str
    rebuild: Rebuild
    seed: int
    dtypes: tuple[str, ...]  # of the parameters
    versions: dict[str, str]
    threads: int  # the order of additions, and so the last bits, depend on it
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
    notes: tuple[str, ...] = ()  # what was made up
    tensors_sha256: str = ""  # of golden_data.safetensors; "" before it is written
