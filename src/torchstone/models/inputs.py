"""What a model is called with, and what may be asked about it; imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torchstone.errors import InputError, ModelInputsError

PHASES = ("prefill", "decode")
_SIZES = ("batch_size", "seq_len", "image_size")
_PAIR = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class InputOptions:
    """What the user asked of a model and of the inputs made up for it; None means: torchstone chooses, and says so."""

    batch_size: int | None = None
    seq_len: int | None = None
    image_size: int | None = None
    phase: str | None = None  # "prefill" or "decode"
    cache_len: int | None = None  # tokens already in the cache when the phase is decode
    dtype: str | None = None  # of weights and float inputs: "float32", "bfloat16", "float16", ...
    layers: int | None = None  # build only so many layers of each stack
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what no model can be given."""
        for name in (*_SIZES, "cache_len"):
            value = getattr(self, name)
            if value is not None and value < 1:
                msg = f"--{name.replace('_', '-')} must be at least 1, not {value}"
                raise InputError(msg)
        if self.phase not in (None, *PHASES):
            msg = f"the phase {self.phase!r} is not known; use {' or '.join(PHASES)}"
            raise InputError(msg)
        if self.cache_len is not None and self.phase != "decode":
            msg = "--cache-len is for the decode phase; add --phase decode or leave it out"
            raise InputError(msg)

    def asked_of_inputs(self) -> list[str]:
        """The options about inputs that were given."""
        return [name for name in (*_SIZES, "phase", "cache_len") if getattr(self, name) is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The arguments of one forward call, and where they come from."""

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    origin: str
    notes: tuple[str, ...] = ()  # one for each thing that was made up
    phase: str = ""  # "prefill", "decode" or "" where a model has no phases


def inputs_from_value(value: object, *, origin: str) -> Inputs:
    """Read the inputs somebody gave.

    A tensor is the only argument; a mapping holds keyword arguments; a pair of a tuple or list and a mapping holds
    both; any other tuple or list holds positional arguments.
    """
    if isinstance(value, Inputs):
        return value
    if _is_tensor(value):
        return Inputs(args=(value,), origin=origin)
    if isinstance(value, Mapping):
        return Inputs(kwargs=_keywords(value, origin), origin=origin)
    if isinstance(value, tuple | list):
        if _is_args_and_kwargs(value):
            args, kwargs = value
            return Inputs(args=tuple(args), kwargs=_keywords(kwargs, origin), origin=origin)
        return Inputs(args=tuple(value), origin=origin)
    msg = (
        f"{origin}: {_article(type(value).__name__)} cannot be the inputs of a model; "
        "give a tensor, a tuple or list, a dict of keyword arguments, or an (args, kwargs) pair"
    )
    raise ModelInputsError(msg)


def _is_tensor(value: object) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _is_args_and_kwargs(value: tuple[Any, ...] | list[Any]) -> bool:
    return len(value) == _PAIR and isinstance(value[0], tuple | list) and isinstance(value[1], Mapping)


def _keywords(value: Mapping[Any, Any], origin: str) -> dict[str, Any]:
    wrong = [key for key in value if not isinstance(key, str)]
    if wrong:
        msg = f"{origin} gave keyword arguments whose names are not text ({wrong[0]!r}); use the names of forward()"
        raise ModelInputsError(msg)
    return dict(value)


def _article(name: str) -> str:
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
