"""The context of generated inputs: the model, its configuration, the requested sizes, and the tensors so far."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig

from torchstone.models.inputs import InputOptions
from torchstone.models.prepare import require_room


class InputBuilder:
    """Collects keyword arguments and notes; the same seed gives the same values."""

    def __init__(self, seed: int) -> None:
        self.kwargs: dict[str, Any] = {}
        self.notes: list[str] = []
        self.used: set[str] = set()  # sizes among the options that decided the shape of an input
        self._generator = torch.Generator().manual_seed(seed)

    def tokens(self, name: str, shape: Sequence[int], *, below: int, avoid: Collection[int] = ()) -> torch.Tensor:
        """Random ids, none of them special."""
        require_room(name, shape, torch.int64)
        ids = torch.randint(0, max(below, 1), tuple(shape), generator=self._generator)
        plain = next((candidate for candidate in range(below) if candidate not in avoid), 0)
        if avoid:
            ids = torch.where(torch.isin(ids, torch.tensor(sorted(avoid))), plain, ids)
        return self.add(name, ids, f"random token ids below {below}")

    def ones(
        self, name: str, shape: Sequence[int], *, dtype: torch.dtype = torch.int64, what: str = "all ones"
    ) -> None:
        """A mask that hides nothing."""
        require_room(name, shape, dtype)
        self.add(name, torch.ones(tuple(shape), dtype=dtype), what)

    def zeros(
        self, name: str, shape: Sequence[int], *, dtype: torch.dtype = torch.int64, what: str = "all zeros"
    ) -> None:
        """Indices that all point at the first entry."""
        require_room(name, shape, dtype)
        self.add(name, torch.zeros(tuple(shape), dtype=dtype), what)

    def floats(self, name: str, shape: Sequence[int], what: str = "random values") -> torch.Tensor:
        """Normally distributed values."""
        require_room(name, shape, torch.float32)
        return self.add(name, torch.randn(tuple(shape), generator=self._generator), what)

    def add(self, name: str, tensor: torch.Tensor, what: str) -> torch.Tensor:
        """Add a tensor as it is, with a note of its dtype, shape and contents."""
        self.kwargs[name] = tensor
        dtype = str(tensor.dtype).removeprefix("torch.")
        self.notes.append(f"{name}: {dtype}{list(tensor.shape)}, {what}")
        return tensor

    def add_value(self, name: str, value: object, what: str) -> None:
        """Add a value that is not a tensor."""
        self.kwargs[name] = value
        self.notes.append(f"{name}: {what}")

    def remove(self, name: str) -> None:
        """Remove an input and its notes."""
        self.kwargs.pop(name, None)
        self.notes = [note for note in self.notes if not note.startswith(f"{name}:")]


DEFAULT_SEQ_LEN = 128
_POSITION_LIMITS = ("max_position_embeddings", "n_positions", "max_seq_len", "max_target_positions", "context_length")
_IMAGE_SIDES = (
    "image_size",
    "img_size",
    "input_size",
    "pretrain_image_size",
    "crop_size",
    "resolution",
    "max_img_size",
)
DEFAULT_IMAGE_SIDE = 224
DEFAULT_FRAMES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class InputContext:
    """Everything that decides an input, and the builder it is added to."""

    model: nn.Module
    config: PreTrainedConfig
    options: InputOptions
    builder: InputBuilder

    @property
    def parameters(self) -> dict[str, Parameter]:
        """The parameters of forward by name."""
        return dict(signature(self.model.forward).parameters)

    @property
    def required(self) -> list[str]:
        """The parameters of forward that have no default."""
        named = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
        return [
            name for name, each in self.parameters.items() if each.default is Parameter.empty and each.kind in named
        ]

    @property
    def batch(self) -> int:
        """Samples in the batch."""
        return self.options.batch_size or 1

    @property
    def text(self) -> PreTrainedConfig:
        """The part of the configuration that describes the text model."""
        try:
            return self.config.get_text_config()
        except ValueError:  # several text models: take the decoder
            return self.config.get_text_config(decoder=True)

    @property
    def vision(self) -> PreTrainedConfig:
        """The part of the configuration that describes the vision model, or the whole."""
        return (
            nested_config(self.config, "vision_config", "backbone_config", "encoder", "vision_encoder_config")
            or self.config
        )

    @property
    def audio(self) -> PreTrainedConfig:
        """The part of the configuration that describes the audio model, or the whole."""
        return (
            nested_config(self.config, "audio_config", "audio_encoder_config", "encoder_config", "encoder")
            or self.config
        )

    def seq_len(self) -> int:
        """Tokens in a sequence: as requested, else a default within the model's positions."""
        self.builder.used.add("seq_len")
        if self.options.seq_len is not None:
            return self.options.seq_len
        limit = self.position_limit()
        return DEFAULT_SEQ_LEN if limit is None else max(1, min(DEFAULT_SEQ_LEN, limit))

    def position_limit(self) -> int | None:
        """The number of positions of the text model, if its configuration has one."""
        for name in _POSITION_LIMITS:
            value = getattr(self.text, name, None)
            if isinstance(value, int) and value > 0:
                return value
        return None

    def image_sides(self) -> tuple[int, int]:
        """Height and width of an image: as requested, else from the configuration, else a default."""
        self.builder.used.add("image_size")
        if self.options.image_size is not None:
            return self.options.image_size, self.options.image_size
        for config in (self.vision, self.config, *nested_configs(self.config)):
            for name in _IMAGE_SIDES:
                sides = height_width(getattr(config, name, None))
                if sides is not None:
                    return sides
        return DEFAULT_IMAGE_SIDE, DEFAULT_IMAGE_SIDE

    def special_tokens(self) -> set[int]:
        """Ids with a special meaning: padding, image placeholders and so on."""
        found: set[int] = set()
        for config in (self.config, *nested_configs(self.config)):
            for name, value in vars(config).items():
                if name.endswith(("token_id", "token_index", "token_ids")):
                    found.update(
                        item for item in (value if isinstance(value, list) else [value]) if isinstance(item, int)
                    )
        return found


def nested_configs(config: PreTrainedConfig) -> Iterator[PreTrainedConfig]:
    """The configurations inside a configuration, at any depth."""
    for value in vars(config).values():
        if isinstance(value, PreTrainedConfig):
            yield value
            yield from nested_configs(value)


def nested_config(config: PreTrainedConfig, *names: str) -> PreTrainedConfig | None:
    """The first of the named configurations inside a configuration."""
    found = (getattr(config, name, None) for name in names)
    return next((value for value in found if isinstance(value, PreTrainedConfig)), None)


def positive_int(config: object, *names: str) -> int | None:
    """The first of the named fields whose value is a positive integer."""
    for name in names:
        value = getattr(config, name, None)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def height_width(value: object) -> tuple[int, int] | None:
    """A size given as one side, as (height, width), or as a dict of them."""
    if isinstance(value, dict):
        value = (value.get("height"), value.get("width"))
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value, value
    if isinstance(value, list | tuple) and value and all(isinstance(side, int) for side in value):
        return (value[-2], value[-1]) if len(value) > 1 else (value[0], value[0])
    return None
