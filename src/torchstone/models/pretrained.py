"""Models that transformers can build: from the zoo, a local folder, a config.json, or a model type at tiny size."""

import itertools
import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib import import_module
from inspect import isclass, signature
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from huggingface_hub import constants as hub_constants
from torch import nn
from torch.nn.modules.module import (
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from torch.overrides import TorchFunctionMode
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.utils import logging as transformers_logging

from torchstone.errors import InputError, ModelError, TorchstoneError, UnknownModelError, UnreadableFileError
from torchstone.foreign import foreign_code
from torchstone.models.inputs import InputOptions
from torchstone.models.prepare import memory_shortage
from torchstone.models.tiny import PARTS, default_config, keep_layers, tiny_config
from torchstone.models.user_code import TINY
from torchstone.models.weight_files import (
    CONFIG,
    ModelFolder,
    find_hub_model,
    hash_files,
    refuse_own_code,
    require_readable,
    uses_safetensors,
    weight_files,
)
from torchstone.models.zoo.catalogue import find_entry
from torchstone.record.files import read_json, shortened
from torchstone.record.reference import WeightsKind, WeightsSource

# --- Model classes: the one that the configuration names, else that of the most common task ---

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
    """All candidate classes, the best first."""
    names = [*(config.architectures or ())[:1], *_default_class_names(config.model_type)]
    listed = [getattr(transformers, name, None) for name in dict.fromkeys(names)]
    found = [each for each in listed if isclass(each) and issubclass(each, nn.Module) and _accepts_config(each, config)]
    found = found or _unlisted_classes(type(config))
    if found:
        return found
    msg = f"transformers has no model class for the model type {config.model_type!r}"
    raise ModelError(msg)


def _accepts_config(model_class: type[nn.Module], config: PreTrainedConfig) -> bool:
    """Whether a class is built from this configuration, and not from a part of it."""
    wanted = getattr(model_class, "config_class", None)
    return wanted is None or isinstance(config, wanted)


def _default_class_names(model_type: str) -> list[str]:
    tables = [f"MODEL_FOR_{task}_MAPPING_NAMES" for task in _TASKS] + ["MODEL_MAPPING_NAMES"]
    named = [getattr(modeling_auto, table, {}).get(model_type) for table in tables]
    flat: list[str] = []
    for name in named:
        flat.extend([name] if isinstance(name, str) else name or ())
    return flat


def _unlisted_classes(config_class: type[PreTrainedConfig]) -> list[type[nn.Module]]:
    """Model classes beside a config class that no auto class lists, such as the parts of composite models."""
    package = import_module(config_class.__module__.rpartition(".")[0])
    found: list[type[nn.Module]] = []  # stays empty for a package that only provides a configuration
    for file in sorted(Path(path) for folder in package.__path__ for path in Path(folder).glob("modeling_*.py")):
        module = import_module(f"{package.__name__}.{file.stem}")
        found.extend(value for value in vars(module).values() if _is_built_from(value, config_class))
    return sorted(found, key=lambda value: (not value.__name__.endswith("Model"), len(value.__name__), value.__name__))


def _is_built_from(value: object, config_class: type[PreTrainedConfig]) -> bool:
    if not isclass(value) or not issubclass(value, PreTrainedModel) or value.__name__.endswith("PreTrainedModel"):
        return False
    parameter = signature(value.__init__).parameters.get("config")
    asked = None if parameter is None else parameter.annotation
    return getattr(value, "config_class", None) is config_class or asked in (config_class, config_class.__name__)


# --- Blueprints: find a configuration, then build it ---

DEFAULT_OF = "default:"  # before a model type: its default configuration
_OFFLINE_BY_USER = hub_constants.HF_HUB_OFFLINE  # the environment variable of the same name


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """Everything needed to build a model."""

    name: str
    config: PreTrainedConfig
    model_class: type[nn.Module]
    notes: tuple[str, ...] = ()
    folder: ModelFolder | None = None  # the files beside the configuration: tokenizer, processor, weights
    weights: tuple[Path, ...] = ()  # the files whose weights are used when values are wanted; none: random


class Built(NamedTuple):
    """A model and the source of its weights; None where it has no values."""

    model: nn.Module
    weights: WeightsSource | None


def find_blueprint(name: str, options: InputOptions) -> Blueprint:
    """Read the configuration that a model name stands for and choose the model class."""
    with quiet_and_offline():
        blueprint = _blueprint(name, options)
        if options.pretrained:
            blueprint = _with_required_weights(blueprint)
        if options.layers is None:
            return blueprint
        note = keep_layers(blueprint.config, options.layers)
        return replace(
            blueprint, notes=(*blueprint.notes, note), weights=blueprint.weights if options.pretrained else ()
        )


def _blueprint(name: str, options: InputOptions) -> Blueprint:
    if name.startswith(TINY):
        return _tiny_blueprint(name)
    if Path(name).exists():
        if options.revision is not None or options.download:
            msg = f"{name} is a local path, to which --revision and --download do not apply; drop them"
            raise InputError(msg)
        return _local_blueprint(Path(name))
    if options.pretrained:
        with _allowing_network(allowed=options.download):
            folder = find_hub_model(name, options)
        return _folder_blueprint(folder)
    return _zoo_blueprint(name)


def _with_required_weights(blueprint: Blueprint) -> Blueprint:
    if blueprint.folder is None:
        msg = f"{blueprint.name} has no weight files; drop --pretrained, or give a folder or a model on the hub"
        raise InputError(msg)
    if not blueprint.weights:
        msg = (
            f"{blueprint.folder.path} has no model.safetensors or pytorch_model.bin; "
            "add the weights, or drop --pretrained for random ones"
        )
        raise ModelError(msg)
    at = f" at revision {blueprint.folder.revision}" if blueprint.folder.revision else ""
    note = f"weights: {', '.join(path.name for path in blueprint.weights)} of {blueprint.folder.name}{at}"
    return replace(blueprint, notes=(*blueprint.notes, note))


def build(blueprint: Blueprint, *, device: str, seed: int) -> nn.Module:
    """Build the model, in evaluation mode: on meta without memory, on cpu with seeded or the folder's own weights."""
    return build_with_source(blueprint, device=device, seed=seed).model


def build_with_source(blueprint: Blueprint, *, device: str, seed: int) -> Built:
    """Build the model as `build` does, and state the source of its weights."""
    with quiet_and_offline():
        if device == "meta":
            return Built(_construct_checked(blueprint, device, seed).model.eval(), None)
        _require_memory(blueprint)
        built = _construct_checked(blueprint, device, seed)
        return Built(built.model.eval(), built.weights)


def _require_memory(blueprint: Blueprint) -> None:
    """Refuse early: the kernel's out-of-memory killer would end this process, or another one, without a message."""
    if blueprint.name.startswith(TINY):
        return
    reason = memory_shortage(_construct_checked(blueprint, "meta", 0).model)
    if reason:
        msg = f"{blueprint.name} cannot be built with values: {reason}"
        raise ModelError(msg)


def _construct_checked(blueprint: Blueprint, device: str, seed: int) -> Built:
    with _seeded(seed):
        # transformers checks a configuration and weight files only while it builds
        with foreign_code(passing=(TorchstoneError,)) as ran, _bounded(blueprint.name):
            return _construct(blueprint, device)
        reason = " ".join(str(ran.error).split()) or type(ran.error).__name__
        kind = type(ran.error).__name__
        msg = f"{blueprint.name} cannot be built as {blueprint.model_class.__name__}: {kind}: {reason}"
        raise ModelError(msg) from ran.error


def _construct(blueprint: Blueprint, device: str) -> Built:
    if blueprint.folder is not None and blueprint.weights and device != "meta":
        built = _from_weight_files(blueprint, blueprint.folder)
        return Built(built.model.to(device), built.weights)
    model_class: Any = blueprint.model_class
    with torch.device(device), _known_scalars() if device == "meta" else nullcontext():
        model: nn.Module = model_class._from_config(blueprint.config)  # noqa: SLF001 - from_config of the chosen class
    return Built(model, WeightsSource(kind=WeightsKind.RANDOM))


@contextmanager
def _bounded(name: str) -> Iterator[None]:
    """Stop a model that is built without end: the names of its counts (codebooks, quantizers) differ between models."""
    counted = itertools.count(1)

    def count(*_: object) -> None:
        if next(counted) > _MOST_REGISTERED:
            msg = f"{name} has more than {_MOST_REGISTERED:,} modules and parameters; correct the counts in config.json"
            raise ModelError(msg)

    with ExitStack() as hooks:
        hooks.callback(register_module_module_registration_hook(count).remove)
        hooks.callback(register_module_parameter_registration_hook(count).remove)
        yield


class _known_scalars(TorchFunctionMode):  # noqa: N801 - used as a context, as torch.device is
    """Keep the values of single integers, such as the stride of a padded convolution, in a model without values."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Make a tensor of one integer on the cpu, where code asks for no device."""
        kwargs = kwargs or {}
        if func is torch.tensor and "device" not in kwargs and args and type(args[0]) is int:
            return func(*args, **{**kwargs, "device": "cpu"})
        return func(*args, **kwargs)


def _from_weight_files(blueprint: Blueprint, folder: ModelFolder) -> Built:
    """Load weights without running anything that is in their files: safetensors, or pickles of plain tensors."""
    require_readable(blueprint.weights)
    model_class: Any = blueprint.model_class
    model, info = model_class.from_pretrained(
        folder.path,
        config=blueprint.config,
        local_files_only=True,
        use_safetensors=uses_safetensors(blueprint.weights),
        weights_only=True,
        output_loading_info=True,
    )
    drawn = tuple(sorted(info["missing_keys"]))
    source = WeightsSource(
        kind=WeightsKind.PARTLY_RANDOM if drawn else WeightsKind.PRETRAINED,
        location=folder.name,
        revision=folder.revision,
        files=hash_files(blueprint.weights),
        drawn=drawn,
        unused=tuple(sorted(info["unexpected_keys"])),
    )
    return Built(model, source)


def _tiny_blueprint(name: str) -> Blueprint:
    model_type = name.removeprefix(TINY)
    config_class = _config_class(model_type, origin=name)
    config = tiny_config(config_class)
    note = (
        f"{model_type}: a small configuration with random weights, derived from the defaults of {config_class.__name__}"
    )
    model_class, skipped = _first_buildable_class(config)
    return Blueprint(name=name, config=config, model_class=model_class, notes=(note, *skipped))


def default_blueprint(model_type: str) -> Blueprint:
    """The default configuration of a model type, or a tiny one where its parts have no defaults."""
    if model_type in PARTS:
        return _tiny_blueprint(f"{TINY}{model_type}")
    with quiet_and_offline():
        config, completed = default_config(CONFIG_MAPPING[model_type])
        model_class, skipped = _first_buildable_class(config)
        return Blueprint(
            name=f"{DEFAULT_OF}{model_type}", config=config, model_class=model_class, notes=(*completed, *skipped)
        )


def _first_buildable_class(config: PreTrainedConfig) -> tuple[type[nn.Module], list[str]]:
    """The best class that needs no missing package, and a note on each class that was skipped for one."""
    classes: list[Any] = list(model_classes_for(config))  # transformers classes, which have _from_config
    skipped: list[str] = []
    for model_class in classes:
        with foreign_code() as ran, torch.device("meta"):  # building it later raises the same error, with its message
            model_class._from_config(config)  # noqa: SLF001 - as in _construct
        if ran.error is None:
            return model_class, skipped
        if not isinstance(ran.error, ImportError):
            break
        skipped.append(f"{model_class.__name__}: skipped, {' '.join(str(ran.error).split()).partition('.')[0]}")
    return classes[0], []


def _zoo_blueprint(name: str) -> Blueprint:
    entry = find_entry(name)
    if entry is None:
        msg = f"{name!r} is not in the zoo; `torchstone models` lists what ships"
        raise UnknownModelError(msg)
    config = _config_from(deepcopy(entry.config), origin=entry.id)  # transformers changes parts of it
    return Blueprint(name=entry.id, config=config, model_class=model_class_for(config))


def _local_blueprint(path: Path) -> Blueprint:
    if path.is_dir():
        return _folder_blueprint(ModelFolder(path=path, name=str(path)))
    config = _config_from(_read_json(path), origin=str(path))
    return Blueprint(name=str(path), config=config, model_class=model_class_for(config))


def _folder_blueprint(folder: ModelFolder) -> Blueprint:
    file = folder.path / CONFIG
    content = _read_json(file)
    weights = weight_files(folder.path)
    if weights:  # they belong to the code that the configuration names
        refuse_own_code(folder.path, CONFIG)
    config = _config_from(content, origin=str(file))
    return Blueprint(
        name=folder.name, config=config, model_class=model_class_for(config), folder=folder, weights=weights
    )


def _read_json(file: Path) -> dict[str, object]:
    try:
        content = read_json(file, object_hook=_special_float)
    except UnreadableFileError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        msg = f"the folder {file.parent} has no config.json; give a folder with one, or the file itself"
        raise UnreadableFileError(msg) from error
    if not isinstance(content, dict):
        msg = f"{file} is not a model configuration: it contains {type(content).__name__}; give a JSON object"
        raise UnreadableFileError(msg)
    return content


def _special_float(value: dict[str, object]) -> object:
    """Infinity and NaN as transformers writes them: {"__float__": "Infinity"}."""
    text = value.get("__float__")
    return float(text) if isinstance(text, str) and len(value) == 1 else value


_MOST_MODULES = {  # by how the name of a count in config.json ends
    re.compile(r"(^|_)(n_layer|(num_)?(\w+_)?(layers|blocks)|depths?)$"): 10_000,
    re.compile(r"(^|_)experts$"): 100_000,
    re.compile(r"^num_labels$"): 1_000_000,  # each has a name in the configuration
}
_MOST_REGISTERED = 400_000  # modules and parameters of a model, however its configuration leads to them
_IMPLEMENTATION = ("_implementation", "_implementation_internal")


def _config_from(content: dict[str, object], *, origin: str) -> PreTrainedConfig:
    model_type = content.get("model_type")
    schema = content.get("schema")
    if isinstance(schema, str) and schema.startswith("torchstone/"):
        msg = f"{origin} is a result ({schema[:60]}), not a model; give the model itself, or a folder with a trace.json"
        raise UnreadableFileError(msg)
    if not isinstance(model_type, str):
        msg = f'{origin} has no model_type, so its architecture is unknown; add a line such as "model_type": "llama"'
        raise UnreadableFileError(msg)
    architectures = content.get("architectures") or []
    if not isinstance(architectures, list) or not all(isinstance(one, str) for one in architectures):
        msg = f"{origin} has the architectures {architectures!r:.80}, not a list of class names; correct or remove them"
        raise UnreadableFileError(msg)
    config_class = _config_class(model_type, origin=origin)
    _refuse_kernels(content, origin)
    _refuse_endless(content, origin)
    with foreign_code() as ran:  # each config class checks its values in its own way
        return config_class.from_dict(content)
    msg = f"{origin} is not a valid {model_type} configuration: {shortened(ran.raised)}"
    raise UnreadableFileError(msg) from ran.raised


def _refuse_kernels(content: object, origin: str) -> None:
    """Refuse an implementation that is a repository (`org/kernel`): transformers would fetch and run its code."""
    if isinstance(content, list):
        for part in content:
            _refuse_kernels(part, origin)
    if not isinstance(content, dict):
        return
    for key, value in content.items():
        named = value.values() if isinstance(value, dict) else [value]
        if key.endswith(_IMPLEMENTATION) and any(isinstance(one, str) and "/" in one for one in named):
            msg = (
                f"{origin} asks for code from another repository ({key}: {value!r:.80}), "
                'which torchstone does not run; write "eager" or "sdpa" there'
            )
            raise InputError(msg)
        _refuse_kernels(value, origin)


def _refuse_endless(content: object, origin: str) -> None:
    """Refuse numbers of layers and experts that would take all memory, module by module, before anything is known."""
    pending = [content]
    while pending:
        part = pending.pop()
        pending += part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        for key, value in part.items() if isinstance(part, dict) else ():
            most = next((most for pattern, most in _MOST_MODULES.items() if pattern.search(str(key))), None)
            counts = value if isinstance(value, list) else [value]
            if most is not None and any(isinstance(one, int) and one > most for one in counts):
                msg = f"{origin} has {key}: {value!r:.80}, and at most {most:,} are built; correct it"
                raise UnreadableFileError(msg)


def _config_class(model_type: str, *, origin: str) -> type[PreTrainedConfig]:
    if model_type in CONFIG_MAPPING:
        return CONFIG_MAPPING[model_type]
    near = get_close_matches(model_type, list(CONFIG_MAPPING), n=3)
    meant = f"; did you mean {' or '.join(near)}?" if near else ""
    msg = f"{origin}: the installed transformers has no model type {model_type!r}{meant}"
    raise UnknownModelError(msg)


@contextmanager
def quiet_and_offline() -> Iterator[None]:
    """Keep transformers off the network and silent; every setting is restored on exit."""
    log = logging.getLogger("transformers")
    level, offline = log.level, hub_constants.HF_HUB_OFFLINE
    shows_progress = transformers_logging.is_progress_bar_enabled()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            log.setLevel(logging.CRITICAL)
            transformers_logging.disable_progress_bar()
            hub_constants.HF_HUB_OFFLINE = True
            yield
    finally:
        log.setLevel(level)
        hub_constants.HF_HUB_OFFLINE = offline
        if shows_progress:
            transformers_logging.enable_progress_bar()


@contextmanager
def _allowing_network(*, allowed: bool) -> Iterator[None]:
    """Allow the network inside `quiet_and_offline`, unless the user's environment forbids it."""
    offline = hub_constants.HF_HUB_OFFLINE
    hub_constants.HF_HUB_OFFLINE = not allowed or _OFFLINE_BY_USER
    try:
        yield
    finally:
        hub_constants.HF_HUB_OFFLINE = offline


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
