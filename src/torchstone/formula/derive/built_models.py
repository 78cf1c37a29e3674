"""A model type and the values of its coordinates -> a model without memory, and inputs for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from torchstone.formula.derive.plans import NO_WINDOW, WINDOW, Plan, plan_for
from torchstone.formula.derive.reading import BATCH, CACHE_LENGTH, DECODER_LENGTH, LENGTH
from torchstone.models.heads import model_class_for
from torchstone.models.inputs import InputOptions, Inputs
from torchstone.models.made_up.architecture import inputs_for_architecture
from torchstone.models.pretrained import Blueprint, build, quiet_and_offline
from torchstone.models.tiny import tiny_config


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The code path of a whole model."""

    dtype: str = "float32"
    attention: str = ""  # eager, or "" for the model's own choice
    use_cache: bool = True
    decode: bool = False  # one new token, and a cache of those before it


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A model at one point."""

    model: nn.Module
    inputs: Inputs
    known: dict[str, int]  # parameters of the configuration


def model_types() -> Mapping[str, object]:
    """Every model type that transformers knows."""
    return CONFIG_MAPPING


def plan_of(model_type: str, *, decode: bool = False) -> Plan:
    """Which sizes of a model type are varied."""
    with quiet_and_offline():
        return plan_for(tiny_config(CONFIG_MAPPING[model_type]), decode=decode)


def build_at(model_type: str, plan: Plan, values: Mapping[str, int], options: Options) -> Built:
    """The model with the sizes of a point."""
    with quiet_and_offline():
        blueprint = _blueprint(model_type, plan, values, options)
        model = build(blueprint, device="meta", seed=0).to(getattr(torch, options.dtype))
        asked = InputOptions(
            batch_size=values[BATCH],
            seq_len=values.get(LENGTH),
            image_size=plan.settings(values).get("image_size"),
            phase="decode" if options.decode else None,
            cache_len=values.get(CACHE_LENGTH),
        )
        inputs = inputs_for_architecture(model, blueprint, asked)
    _adapt(inputs.kwargs, values, options)
    return Built(model=model, inputs=inputs, known=plan.parameters(values))


def _blueprint(model_type: str, plan: Plan, values: Mapping[str, int], options: Options) -> Blueprint:
    config = tiny_config(CONFIG_MAPPING[model_type])
    for name, value in plan.settings(values).items():
        setattr(config, name, None if name == WINDOW and value >= NO_WINDOW else value)
    _follow_layers(config)
    if options.attention:
        config._attn_implementation = options.attention  # noqa: SLF001 - the name under which it is passed on
    return Blueprint(name=model_type, config=config, model_class=model_class_for(config))


def build_on_cpu(model_type: str, plan: Plan, values: Mapping[str, int], options: Options) -> nn.Module:
    """The model as a cpu would hold it; inside a fake mode it needs no memory."""
    with quiet_and_offline():
        blueprint = _blueprint(model_type, plan, values, options)
        blueprint.config.dtype = getattr(torch, options.dtype)
        return build(blueprint, device="cpu", seed=0)


def _follow_layers(config: PreTrainedConfig) -> None:
    """Lists with one entry for each layer get the length of the new number of layers."""
    layers = getattr(config, "num_hidden_layers", None)
    for name in ("layer_types", "mlp_layer_types"):
        listed = getattr(config, name, None)
        if isinstance(listed, list) and listed and isinstance(layers, int):
            setattr(config, name, [listed[min(index, len(listed) - 1)] for index in range(layers)])


def _adapt(kwargs: dict[str, Any], values: Mapping[str, int], options: Options) -> None:
    """Give the decoder a length of its own, and pictures the type of the weights."""
    if "decoder_input_ids" in kwargs and not options.decode:
        kwargs["decoder_input_ids"] = torch.zeros((values[BATCH], values[DECODER_LENGTH]), dtype=torch.int64)
    if not options.use_cache:
        kwargs["use_cache"] = False
    for name, value in kwargs.items():
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            kwargs[name] = value.to(getattr(torch, options.dtype))
