"""The arguments of a model call, and the options for generated ones; imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torchstone.errors import InputError, ModelInputsError

PHASES = ("prefill", "decode")
CACHES = ("dynamic", "static", "paged", "expanded", "absorbed")
DEFAULT_BLOCK = 16  # tokens, as vLLM's default
MEDIA = ("text", "image", "audio")  # real inputs, by the name of their option
_SIZES = ("batch_size", "seq_len", "image_size")
_PAIR = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class InputOptions:
    """Options of a model and of the inputs generated for it; None lets torchstone choose, and a note says what."""

    batch_size: int | None = None
    seq_len: int | None = None
    image_size: int | None = None
    phase: str | None = None  # "prefill" or "decode"
    cache_len: int | None = None  # tokens already in the cache when the phase is decode
    cache: str | None = None  # of the decode phase: one of CACHES; None: dynamic, which grows with the tokens
    cache_size: int | None = None  # tokens that a static cache is allocated for; None: those of this step
    block_size: int | None = None  # tokens in a block of a paged cache
    dtype: str | None = None  # of weights and float inputs: "float32", "bfloat16", "float16", ...
    layers: int | None = None  # limit each layer stack to this many layers
    seed: int = 0
    pretrained: bool = False  # take the weights from a folder, the Hugging Face cache or, with `download`, the hub
    revision: str | None = None  # branch, tag or commit of a model on the hub
    download: bool = False  # allow the network: download the model if it is not in the cache
    text: tuple[str, ...] = ()  # inputs for the model's own tokenizer: one sequence each
    image: tuple[str, ...] = ()  # image files for the model's own image processor
    audio: tuple[str, ...] = ()  # WAV files for the model's own feature extractor

    def __post_init__(self) -> None:
        """Refuse values that no model accepts."""
        for name in (*_SIZES, "cache_len", "cache_size", "block_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                msg = f"--{name.replace('_', '-')} must be at least 1, not {value}"
                raise InputError(msg)
        if self.phase not in (None, *PHASES):
            msg = f"unknown phase {self.phase!r}; use {' or '.join(PHASES)}"
            raise InputError(msg)
        if self.cache_len is not None and self.phase != "decode":
            msg = "--cache-len applies only to the decode phase; add --phase decode or drop --cache-len"
            raise InputError(msg)
        self._check_cache()
        self._check_sources()

    @property
    def paged_block(self) -> int | None:
        """Tokens in a block of a paged cache; None for any other cache."""
        return (self.block_size or DEFAULT_BLOCK) if self.cache == "paged" else None

    @property
    def needs_own_cache(self) -> bool:
        """Whether the model runs on another cache than the one it makes by itself, or uses it in another way."""
        return self.cache in ("static", "expanded", "absorbed")

    def _check_cache(self) -> None:
        if self.cache not in (None, *CACHES):
            msg = f"unknown cache {self.cache!r}; use {', '.join(CACHES)}"
            raise InputError(msg)
        if self.needs_own_cache and self.phase != "decode":
            msg = f"--cache {self.cache} applies only to the decode phase; add --phase decode or drop --cache"
            raise InputError(msg)
        for option, kind in (("cache_size", "static"), ("block_size", "paged")):
            if getattr(self, option) is not None and self.cache != kind:
                name = option.replace("_", "-")
                msg = f"--{name} is the size of a {kind} cache; add --cache {kind} or drop --{name}"
                raise InputError(msg)

    def _check_sources(self) -> None:
        for name in MEDIA:
            object.__setattr__(self, name, tuple(getattr(self, name)))  # JSON gives lists
        if not self.pretrained and (self.revision is not None or self.download):
            option = "--revision" if self.revision is not None else "--download"
            msg = f"{option} applies only to pretrained weights; add --pretrained or drop {option}"
            raise InputError(msg)
        media = self.given_media()
        if media and self.phase == "decode":
            msg = f"--{media[0]} gives the inputs of a prefill; drop --phase decode or --{media[0]}"
            raise InputError(msg)

    def given_media(self) -> list[str]:
        """The kinds of real inputs that the user gave: text, image, audio."""
        return [name for name in MEDIA if getattr(self, name)]

    def given_input_options(self) -> list[str]:
        """The names of the options about inputs that the user set."""
        return [
            name for name in (*_SIZES, "phase", "cache_len", "cache", "cache_size") if getattr(self, name) is not None
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The arguments of one forward call, and where they come from."""

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    origin: str
    notes: tuple[str, ...] = ()  # one for each generated value
    phase: str = ""  # "prefill", "decode" or "" where a model has no phases
    caches: tuple[str, ...] = ()  # keyword arguments that a model filled, each tensor in the dtype that it has there
    follows_options: bool = False  # generated with the sizes that the options ask for


def inputs_from_value(value: object, *, origin: str) -> Inputs:
    """Convert what a user passed as inputs.

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
        f"{origin}: {_article(type(value).__name__)} cannot be used as model inputs; "
        "give a tensor, a tuple or list, a dict of keyword arguments, or an (args, kwargs) pair"
    )
    raise ModelInputsError(msg)


def _is_tensor(value: object) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _is_args_and_kwargs(value: tuple[object, ...] | list[object]) -> bool:
    return len(value) == _PAIR and isinstance(value[0], tuple | list) and isinstance(value[1], Mapping)


def _keywords(value: Mapping[object, object], origin: str) -> dict[str, object]:
    named: dict[str, object] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            msg = f"{origin} has a keyword argument whose name is not a string: {key!r}; use the names of forward()"
            raise ModelInputsError(msg)
        named[key] = item
    return named


def _article(name: str) -> str:
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
