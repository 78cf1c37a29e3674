"""Which of a model type's classes is built: the one the configuration names, else the most usual task."""

from importlib import import_module
from inspect import isclass, signature
from pathlib import Path
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
    return model_classes_for(config)[0]


def model_classes_for(config: PreTrainedConfig) -> list[type[nn.Module]]:
    """All classes that come into question, the best first."""
    names = [*(config.architectures or ())[:1], *_usual_names(config.model_type)]
    listed = [getattr(transformers, name, None) for name in dict.fromkeys(names)]
    found = [each for each in listed if isclass(each) and issubclass(each, nn.Module) and _takes(each, config)]
    found = found or _classes_of(type(config))
    if found:
        return found
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
    package = import_module(config_class.__module__.rpartition(".")[0])
    found: list[Any] = []  # a package without modeling files only lends its configuration to another
    for file in sorted(Path(path) for folder in package.__path__ for path in Path(folder).glob("modeling_*.py")):
        module = import_module(f"{package.__name__}.{file.stem}")
        found.extend(value for value in vars(module).values() if _is_built_from(value, config_class))
    return sorted(found, key=lambda value: (not value.__name__.endswith("Model"), len(value.__name__), value.__name__))


def _is_built_from(value: Any, config_class: type[PreTrainedConfig]) -> bool:
    if not isclass(value) or not issubclass(value, PreTrainedModel) or value.__name__.endswith("PreTrainedModel"):
        return False
    parameter = signature(value.__init__).parameters.get("config")
    asked = None if parameter is None else parameter.annotation
    return getattr(value, "config_class", None) is config_class or asked in (config_class, config_class.__name__)
