"""Models that transformers can build: from the zoo, a local folder, a config.json, or a model type at tiny size."""

import json
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib import import_module
from inspect import isclass, signature
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub import constants as hub_constants
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from torchstone.errors import ModelError, UnknownModelError, UnreadableFileError
from torchstone.models.inputs import InputOptions
from torchstone.models.tiny import keep_layers, tiny_config
from torchstone.models.zoo.catalogue import find_entry
from torchstone.units import show_bytes

# Which of a model type's classes is built: the one the configuration names, else the most usual task.


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


# Whether a model fits in the memory that is free here, asked before it is built with values.


_MEMORY_INFO = Path("/proc/meminfo")
_FOR_ACTIVATIONS = 1.25  # weights are not all that a run needs


def why_no_room(model: nn.Module) -> str:
    """Why the weights of a model cannot be held here; empty where they can, or where nobody knows."""
    needed = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    free = free_bytes()
    if free is None or needed * _FOR_ACTIVATIONS <= free:
        return ""
    return f"{show_bytes(needed)} of weights do not fit in the {show_bytes(free)} that are free here (try --layers 2)"


def free_bytes() -> int | None:
    """Memory that can be had without pushing anything out; None where the system does not say."""
    if _MEMORY_INFO.is_file():
        for line in _MEMORY_INFO.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None


# Models that transformers can build: from the zoo, a local folder, a config.json, or a model type at tiny size.


TINY = "tiny:"
_WEIGHT_FILES = ("*.safetensors", "pytorch_model*.bin")


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """All that is needed to build a model."""

    name: str
    config: PreTrainedConfig
    model_class: type[nn.Module]
    notes: tuple[str, ...] = ()
    weights: Path | None = None  # the folder whose weights are used when values are wanted


def find_blueprint(name: str, options: InputOptions) -> Blueprint:
    """Read the configuration behind a name and choose the model class."""
    with quiet_and_offline():
        if name.startswith(TINY):
            blueprint = _tiny(name)
        elif Path(name).exists():
            blueprint = _local(Path(name))
        else:
            blueprint = _from_zoo(name)
        if options.layers is None:
            return blueprint
        note = keep_layers(blueprint.config, options.layers)
        return replace(blueprint, notes=(*blueprint.notes, note), weights=None)


def build(blueprint: Blueprint, *, device: str, seed: int) -> nn.Module:
    """Build the model, in evaluation mode: on meta without memory, on cpu with seeded or the folder's own weights."""
    with quiet_and_offline():
        if device != "meta":
            _refuse_without_room(blueprint)
        return _constructed(blueprint, device, seed).eval()


def _refuse_without_room(blueprint: Blueprint) -> None:
    """A system that runs out of memory ends the process, or another one, without a word."""
    if blueprint.name.startswith(TINY):
        return
    reason = why_no_room(_constructed(blueprint, "meta", 0))
    if reason:
        msg = f"{blueprint.name} cannot be built with values: {reason}"
        raise ModelError(msg)


def _constructed(blueprint: Blueprint, device: str, seed: int) -> nn.Module:
    with _seeded(seed):
        try:
            return _construct(blueprint, device)
        except Exception as error:  # transformers checks a configuration only while it builds
            reason = " ".join(str(error).split()) or type(error).__name__
            kind = type(error).__name__
            msg = f"{blueprint.name} cannot be built as {blueprint.model_class.__name__}: {kind}: {reason}"
            raise ModelError(msg) from error


def _construct(blueprint: Blueprint, device: str) -> nn.Module:
    model_class: Any = blueprint.model_class
    if blueprint.weights is not None and device != "meta":
        model: nn.Module = model_class.from_pretrained(
            blueprint.weights, config=blueprint.config, local_files_only=True
        )
        return model.to(device)
    with torch.device(device):
        built: nn.Module = model_class._from_config(blueprint.config)  # noqa: SLF001 - from_config of the chosen class
    return built


def _tiny(name: str) -> Blueprint:
    model_type = name.removeprefix(TINY)
    config_class = _config_class(model_type, origin=name)
    config = tiny_config(config_class)
    note = (
        f"{model_type}: a small configuration with random weights, made up from the defaults of {config_class.__name__}"
    )
    model_class, passed_over = _buildable(config)
    return Blueprint(name=name, config=config, model_class=model_class, notes=(note, *passed_over))


def _buildable(config: PreTrainedConfig) -> tuple[type[nn.Module], list[str]]:
    """The best class that needs no package that is missing, and a note on each that does."""
    classes: list[Any] = list(model_classes_for(config))
    passed_over: list[str] = []
    for model_class in classes:
        try:
            with torch.device("meta"):
                model_class._from_config(config)  # noqa: SLF001 - as in _construct
        except ImportError as error:
            passed_over.append(f"{model_class.__name__}: passed over, {' '.join(str(error).split()).partition('.')[0]}")
        except Exception:  # noqa: BLE001 - building it for good will tell
            break
        else:
            return model_class, passed_over
    return classes[0], []


def _from_zoo(name: str) -> Blueprint:
    entry = find_entry(name)
    if entry is None:
        msg = f"{name!r} is not in the zoo; `torchstone models` lists what ships"
        raise UnknownModelError(msg)
    config = _config_from(entry.config, origin=entry.id)
    return Blueprint(name=entry.id, config=config, model_class=model_class_for(config))


def _local(path: Path) -> Blueprint:
    file = path / "config.json" if path.is_dir() else path
    config = _config_from(_read_json(file), origin=str(file))
    weights = path if path.is_dir() and any(any(path.glob(pattern)) for pattern in _WEIGHT_FILES) else None
    return Blueprint(name=str(path), config=config, model_class=model_class_for(config), weights=weights)


def _read_json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_bytes())
    except FileNotFoundError as error:
        msg = f"the folder {file.parent} has no config.json; give a folder with one, or the file itself"
        raise UnreadableFileError(msg) from error
    except OSError as error:
        msg = f"cannot read {file}: {error.strerror or error}"
        raise UnreadableFileError(msg) from error
    except ValueError as error:
        msg = f"{file} is not valid JSON ({error}); save the configuration again"
        raise UnreadableFileError(msg) from error
    if not isinstance(content, dict):
        msg = f"{file} holds {type(content).__name__}, not the keys of a model configuration"
        raise UnreadableFileError(msg)
    return content


def _config_from(content: dict[str, Any], *, origin: str) -> PreTrainedConfig:
    model_type = content.get("model_type")
    if not isinstance(model_type, str):
        msg = f'{origin} names no model_type, so its architecture is unknown; add a line such as "model_type": "llama"'
        raise UnreadableFileError(msg)
    config_class = _config_class(model_type, origin=origin)
    try:
        return config_class.from_dict(content)
    except Exception as error:  # each config class checks its values in its own way
        reason = " ".join(str(error).split())
        msg = f"{origin} is not a valid {model_type} configuration: {reason}"
        raise UnreadableFileError(msg) from error


def _config_class(model_type: str, *, origin: str) -> type[PreTrainedConfig]:
    if model_type in CONFIG_MAPPING:
        return CONFIG_MAPPING[model_type]
    near = get_close_matches(model_type, list(CONFIG_MAPPING), n=3)
    meant = f"; did you mean {' or '.join(near)}?" if near else ""
    msg = f"{origin}: the installed transformers knows no model type {model_type!r}{meant}"
    raise UnknownModelError(msg)


@contextmanager
def quiet_and_offline() -> Iterator[None]:
    """Keep transformers from the network, from warning about kernels, and from printing; put everything back."""
    log = logging.getLogger("transformers")
    level, offline = log.level, hub_constants.HF_HUB_OFFLINE
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            log.setLevel(logging.CRITICAL)
            hub_constants.HF_HUB_OFFLINE = True
            yield
    finally:
        log.setLevel(level)
        hub_constants.HF_HUB_OFFLINE = offline


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
