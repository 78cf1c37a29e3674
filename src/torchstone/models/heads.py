"""Which of a model type's classes is built: the one the configuration names, else the most usual task."""

from importlib import import_module
from inspect import isclass
from typing import Any

import transformers
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.models.auto import modeling_auto

from torchstone.errors import ModelError

_TASKS = (
    "SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ", "IMAGE_TEXT_TO_TEXT", "MULTIMODAL_LM", "MASKED_LM", "CAUSAL_LM",
    "ZERO_SHOT_IMAGE_CLASSIFICATION", "ZERO_SHOT_OBJECT_DETECTION", "IMAGE_CLASSIFICATION", "OBJECT_DETECTION",
    "UNIVERSAL_SEGMENTATION", "INSTANCE_SEGMENTATION", "IMAGE_SEGMENTATION", "DEPTH_ESTIMATION",
    "SEMANTIC_SEGMENTATION", "CTC", "AUDIO_CLASSIFICATION", "VIDEO_CLASSIFICATION", "TIME_SERIES_PREDICTION",
)  # fmt: skip


def model_class_for(config: PreTrainedConfig) -> type[nn.Module]:
    """The class to build a configuration with."""
    for name in [*(config.architectures or ())[:1], *_usual_names(config.model_type)]:
        found = getattr(transformers, name, None)
        if isclass(found) and issubclass(found, nn.Module) and _takes(found, config):
            return found
    by_config = _classes_of(type(config))
    if by_config:
        return by_config[0]
    msg = f"transformers has no model class for the model type {config.model_type!r}"
    raise ModelError(msg)


def _takes(model_class: Any, config: PreTrainedConfig) -> bool:
    """Whether a class is built from this configuration, and not from a part of it."""
    wanted = getattr(model_class, "config_class", None)
    return wanted is None or isinstance(config, wanted)


def _usual_names(model_type: str) -> list[str]:
    tables = [f"MODEL_FOR_{task}_MAPPING_NAMES" for task in _TASKS] + ["MODEL_MAPPING_NAMES"]
    named = [getattr(modeling_auto, table, {}).get(model_type) for table in tables]
    flat: list[str] = []
    for name in named:
        flat.extend([name] if isinstance(name, str) else name or ())
    return flat


def _classes_of(config_class: type[PreTrainedConfig]) -> list[type[nn.Module]]:
    """Model classes beside a config class that no auto class lists: the parts of composite models."""
    module = import_module(config_class.__module__.replace(".configuration_", ".modeling_"))
    found: list[Any] = [
        value
        for value in vars(module).values()
        if isclass(value)
        and issubclass(value, PreTrainedModel)
        and value.__module__ == module.__name__
        and getattr(value, "config_class", None) is config_class
        and not value.__name__.endswith("PreTrainedModel")
    ]
    return sorted(found, key=lambda value: value.__name__.endswith("Model"), reverse=True)
