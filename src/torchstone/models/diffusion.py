"""Diffusion transformers and UNets: a config.json of diffusers -> a model with random weights and example inputs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter, isclass, signature
from pathlib import Path
from typing import Any

import torch
from torch import nn

from torchstone.errors import InputError, ModelError, ModelInputsError
from torchstone.models.example_inputs.context import InputBuilder
from torchstone.models.inputs import InputOptions, Inputs

_CLASS = "_class_name"
_PIXELS_PER_LATENT = 8  # of the autoencoders that these models work behind
_PATCH = 2  # latents to a side that Flux packs into a token
_TEXT_TOKENS = 77  # of CLIP
_LONG_TEXT = {"SD3Transformer2DModel": 333, "FluxTransformer2DModel": 512, "PixArtTransformer2DModel": 300}
_TIMES = 6  # sizes and crops that SDXL takes as conditions
_SIDE = 128  # latents, where the configuration has no size: an image of 1,024 pixels
_UNUSED = ("seq_len", "phase", "cache_len", "cache", "layers")


def build_diffusion(path: Path, config: Mapping[str, Any], options: InputOptions, device: str) -> nn.Module:
    """The model that a configuration of diffusers describes; its weights are random, or absent on meta."""
    unused = next((name for name in _UNUSED if getattr(options, name) is not None), None)
    if options.pretrained or unused is not None:
        option = "pretrained" if options.pretrained else str(unused).replace("_", "-")
        msg = f"--{option} does not apply to {path}, a model of diffusers; drop it"
        raise InputError(msg)
    import diffusers

    found = getattr(diffusers, str(config[_CLASS]), None)
    if not isclass(found) or not issubclass(found, nn.Module):
        msg = f"{path} names {config[_CLASS]!r}, and the installed diffusers has no such model class"
        raise ModelError(msg)
    make: Any = found  # every model of diffusers can be made from its configuration
    torch.manual_seed(options.seed)
    with torch.device(device):
        model: nn.Module = make.from_config(dict(config))
    return model.eval()


def diffusion_inputs(model: nn.Module, options: InputOptions) -> Inputs:
    """Latents, a time step, and text as an encoder gives it; raises ModelInputsError where more is needed."""
    context = _Context(model=model, options=options, builder=InputBuilder(options.seed))
    parameters = signature(model.forward).parameters
    wanted = [
        name for name, one in parameters.items() if one.default is Parameter.empty and one.kind is not one.VAR_KEYWORD
    ]
    wanted += [name for name in _WITH_DEFAULTS if name in parameters and _WITH_DEFAULTS[name](context.config)]
    for name in dict.fromkeys(wanted):
        if name not in _BUILDERS:
            msg = (
                f"inputs for {type(model).__name__} cannot be generated: its forward needs {name}; "
                "pass them with --inputs file.py::get_inputs"
            )
            raise ModelInputsError(msg)
        _BUILDERS[name](context)
    builder = context.builder
    return Inputs(
        kwargs=builder.kwargs, origin="generated from the configuration of diffusers", notes=tuple(builder.notes)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Context:
    model: nn.Module
    options: InputOptions
    builder: InputBuilder

    @property
    def config(self) -> Mapping[str, Any]:
        return dict(self.model.config)  # type: ignore[arg-type]  # a frozen dictionary

    @property
    def batch(self) -> int:
        return self.options.batch_size or 1

    @property
    def side(self) -> int:
        """Latents to a side: of the requested image, or as configured."""
        asked = self.options.image_size
        if asked is not None:
            return asked if "Autoencoder" in type(self.model).__name__ else max(asked // _PIXELS_PER_LATENT, 1)
        own = self.config.get("sample_size")
        return own if isinstance(own, int) else _SIDE

    @property
    def text_tokens(self) -> int:
        return _LONG_TEXT.get(type(self.model).__name__, _TEXT_TOKENS)


def _add_sample(context: _Context, name: str = "sample") -> None:
    channels = context.config["in_channels"]
    if "joint_attention_dim" in context.config and "axes_dims_rope" in context.config:  # Flux packs its latents
        tokens = (context.side // _PATCH) ** 2
        context.builder.floats(
            name, (context.batch, tokens, channels), f"random packed latents, {context.side} to a side"
        )
        return
    shape = (context.batch, channels, context.side, context.side)
    context.builder.floats(name, shape, "random latents")


def _add_timestep(context: _Context) -> None:
    context.builder.add("timestep", torch.full((context.batch,), 500), "a step in the middle")


def _add_text(context: _Context) -> None:
    config = context.config
    names = ("joint_attention_dim", "caption_channels", "cross_attention_dim", "encoder_hid_dim")
    width = next((config[name] for name in names if isinstance(config.get(name), int)), None)
    if width is None:
        name = type(context.model).__name__
        msg = f"the width of the text that {name} reads is not in its configuration; pass --inputs file.py::get_inputs"
        raise ModelInputsError(msg)
    context.builder.floats("encoder_hidden_states", (context.batch, context.text_tokens, width), "random text features")


def _add_pooled(context: _Context) -> None:
    width = context.config["pooled_projection_dim"]
    context.builder.floats("pooled_projections", (context.batch, width), "a random text feature")


def _add_labels(context: _Context) -> None:
    context.builder.zeros("class_labels", (context.batch,), what="the first class")


def _add_conditions(context: _Context) -> None:
    config = context.config
    if config.get("addition_embed_type") == "text_time":  # SDXL
        width = config["projection_class_embeddings_input_dim"] - _TIMES * config["addition_time_embed_dim"]
        given: dict[str, object] = {
            "text_embeds": torch.randn(context.batch, width, generator=torch.Generator().manual_seed(0)),
            "time_ids": torch.ones(context.batch, _TIMES),
        }
    else:
        given = {"resolution": torch.full((context.batch, 2), 1024.0), "aspect_ratio": torch.ones(context.batch, 1)}
    context.builder.add_value("added_cond_kwargs", given, ", ".join(given))


def _add_places(context: _Context, name: str) -> None:
    tokens = (context.side // _PATCH) ** 2 if name == "img_ids" else context.text_tokens
    context.builder.zeros(name, (tokens, 3), dtype=torch.float32, what="all at the first place")


def _add_guidance(context: _Context) -> None:
    context.builder.add("guidance", torch.full((context.batch,), 3.5), "a usual strength")


_BUILDERS: Mapping[str, Callable[[_Context], None]] = {
    "sample": _add_sample,
    "hidden_states": lambda context: _add_sample(context, "hidden_states"),
    "timestep": _add_timestep,
    "encoder_hidden_states": _add_text,
    "pooled_projections": _add_pooled,
    "class_labels": _add_labels,
    "added_cond_kwargs": _add_conditions,
    "img_ids": lambda context: _add_places(context, "img_ids"),
    "txt_ids": lambda context: _add_places(context, "txt_ids"),
    "guidance": _add_guidance,
}
# Parameters that forward can do without but these configurations cannot.
_WITH_DEFAULTS: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {
    "timestep": lambda _config: True,
    "encoder_hidden_states": lambda config: any(
        isinstance(config.get(name), int) for name in ("joint_attention_dim", "caption_channels")
    ),
    "class_labels": lambda config: config.get("norm_type") == "ada_norm_zero",
    "pooled_projections": lambda config: "pooled_projection_dim" in config,
    "added_cond_kwargs": lambda config: (
        config.get("addition_embed_type") == "text_time" or "caption_channels" in config
    ),
    "img_ids": lambda _config: True,
    "txt_ids": lambda _config: True,
    "guidance": lambda config: bool(config.get("guidance_embeds")),
}
