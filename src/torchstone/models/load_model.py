"""load(): a model name or a module -> a model with example inputs; imports torch only when called."""

from collections import Counter
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from torchstone.errors import InputError, MissingExtraError, ModelError, UnknownModelError, UnreadableFileError
from torchstone.foreign import foreign_code
from torchstone.models.inputs import InputOptions, Inputs, inputs_from_value
from torchstone.models.user_code import Target, UserCode, is_model_loader, make_loader, parse_target
from torchstone.models.zoo.catalogue import find_entry, suggest
from torchstone.record.files import require_regular_file, shortened
from torchstone.record.reference import WeightsKind, WeightsSource
from torchstone.record.trace import NOT_APPLIED

if TYPE_CHECKING:
    import torch
    from torch import nn

__all__ = ["InputOptions", "Inputs", "Loaded", "describe_source", "load"]

_DEFAULTS = InputOptions()
_EXPORTED = ".pt2"
_PAIR = 2
_INPUTS_FUNCTION = "get_inputs"


class Loaded(NamedTuple):
    """A model and the inputs to call it with."""

    model: "nn.Module"
    inputs: Inputs


class LoadedWithSource(NamedTuple):
    """A model, the inputs to call it with, and the source of its weights; None where it has no values."""

    model: "nn.Module"
    inputs: Inputs
    weights: WeightsSource | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _FoundModel:
    """A model, with the inputs that its source supplied or that were generated for it."""

    model: "nn.Module"
    inputs: Inputs | None
    weights: WeightsSource | None
    inputs_are_generated: bool = False
    code: UserCode | None = None


def load(
    model: "str | nn.Module", *, inputs: object = None, options: InputOptions = _DEFAULTS, device: str = "meta"
) -> Loaded:
    """Find or build a model, and take the given inputs or generate some.

    `device` is where models that torchstone builds itself live: "meta" needs no memory, "cpu" has seeded random
    weights. Models from user code are taken as they come.

    >>> import torchstone as ts
    >>> model, inputs = ts.load_model("tiny:bert")
    >>> type(model).__name__, sorted(inputs.kwargs)
    ('BertForMaskedLM', ['attention_mask', 'input_ids'])
    """
    loaded = load_with_source(model, inputs=inputs, options=options, device=device)
    return Loaded(loaded.model, loaded.inputs)


def load_with_source(
    model: "str | nn.Module", *, inputs: object = None, options: InputOptions = _DEFAULTS, device: str = "meta"
) -> LoadedWithSource:
    """Load a model as `load` does, and state the source of its weights."""
    _refuse_two_inputs(inputs, options)
    if isinstance(model, str):
        require_existing(model, options)
    _require("torch", needed_for="loading a model", extra="torch")
    from torchstone.models.prepare import cast_inputs, cast_model, generated, initialize_lazy_parameters, parse_dtype

    dtype = parse_dtype(options.dtype)
    found = _find(model, inputs_are_given=inputs is not None, options=options, device=device)
    cast_model(found.model, dtype)
    chosen = _read_inputs(inputs, found.code) if inputs is not None else found.inputs
    if chosen is not None and not found.inputs_are_generated:
        chosen = _with_unused_options(chosen, options)
    if chosen is None:
        from torchstone.models.example_inputs.plain import inputs_for_module

        chosen = generated(lambda: inputs_for_module(found.model, options), describe_source(model))
        found = replace(found, inputs_are_generated=True)
    chosen = replace(chosen, follows_options=found.inputs_are_generated and not options.given_media())
    chosen = cast_inputs(chosen, dtype)
    initialize_lazy_parameters(found.model, chosen)
    return LoadedWithSource(found.model, chosen, found.weights)


def require_existing(model: str, options: InputOptions = _DEFAULTS) -> None:
    """Raise for a name that stands for nothing, before torch is imported: a wrong path is answered at once."""
    if model in ("", "tiny:"):
        msg = f"{model!r} is not a model name; give one such as gpt2, tiny:bert or net.py::load_model"
        raise UnknownModelError(msg)
    target = parse_target(model)
    if target is not None:
        target.require_file()
    elif Path(model).exists():
        _require_model_file(Path(model))
    elif model.endswith(_EXPORTED):
        msg = f"the file {model} does not exist; give a .pt2 file written by torch.export.save"
        raise UnreadableFileError(msg)
    elif model.startswith("tiny:") or options.pretrained:
        return
    elif find_entry(model) is None:
        raise UnknownModelError(_unknown_model_message(model))


def _require_model_file(path: Path) -> None:
    require_regular_file(path)
    if path.is_file() and path.suffix not in (".json", _EXPORTED):
        msg = (
            f"{path} is not a file that a model is loaded from; give a function of a Python file (net.py::load_model), "
            "a .pt2 file, or a configuration (config.json)"
        )
        raise UnknownModelError(msg)


def _refuse_two_inputs(inputs: object, options: InputOptions) -> None:
    media = options.given_media()
    if inputs is not None and media:
        msg = f"the inputs are given twice, by --inputs and by --{media[0]}; drop one of them"
        raise InputError(msg)


def _refuse_transformers_options(model: str, options: InputOptions) -> None:
    """Refuse options that only a model built by transformers understands."""
    wrong = [
        *(("pretrained", "load the weights in its code") for _ in range(options.pretrained)),
        *((name, "give its inputs with --inputs FILE.py::FN") for name in options.given_media()),
        *(("layers", "let its code build fewer") for _ in range(options.layers is not None)),
    ]
    for option, way_out in wrong[:1]:
        msg = f"--{option} applies only to models that transformers builds, not to {model}; {way_out}"
        raise InputError(msg)


def _with_unused_options(inputs: Inputs, options: InputOptions) -> Inputs:
    """Note the options that have no effect because the inputs were not generated by torchstone."""
    unused = [f"{name}{NOT_APPLIED}the inputs come from {inputs.origin}" for name in options.given_input_options()]
    return replace(inputs, notes=(*inputs.notes, *unused))


def describe_source(model: "str | nn.Module") -> str:
    """The model name that provenance records: the full id of a zoo model, the class of a module."""
    if not isinstance(model, str):
        return f"{type(model).__module__}.{type(model).__qualname__}"
    entry = None if _names_something_local(model) else find_entry(model)
    return entry.id if entry is not None else model


def _names_something_local(model: str) -> bool:
    return parse_target(model) is not None or Path(model).exists()


def _find(model: "str | nn.Module", *, inputs_are_given: bool, options: InputOptions, device: str) -> _FoundModel:
    if not isinstance(model, str):
        _refuse_transformers_options("a module in memory", options)
        source = WeightsSource(kind=WeightsKind.MEMORY)
        return _FoundModel(model=_require_module(model, "the given object"), inputs=None, weights=source)
    if model.startswith("tiny:"):
        return _transformers_model(model, options, device, inputs_are_given=inputs_are_given)
    target = parse_target(model)
    if target is not None:
        _refuse_transformers_options(model, options)
        return _from_user_code(target, inputs_are_given=inputs_are_given)
    if model.endswith(_EXPORTED):
        _refuse_transformers_options(model, options)
        return _exported_model(Path(model), options)
    config = _diffusers_config(Path(model))
    if config is not None:
        return _diffusion_model(*config, options, device, inputs_are_given=inputs_are_given)
    return _transformers_model(model, options, device, inputs_are_given=inputs_are_given)


def _exported_model(path: Path, options: InputOptions) -> _FoundModel:
    from torchstone.models.exported import load_exported
    from torchstone.models.weight_files import hash_files

    module, inputs = load_exported(path, seed=options.seed)
    source = WeightsSource(kind=WeightsKind.FILE, location=str(path), files=hash_files((path,)))
    return _FoundModel(model=module, inputs=inputs, weights=source)


def _transformers_model(model: str, options: InputOptions, device: str, *, inputs_are_given: bool) -> _FoundModel:
    _require("transformers", needed_for=f"building {model}", extra="hf")
    from torchstone.models.example_inputs.architecture import inputs_for_architecture
    from torchstone.models.example_inputs.processed import inputs_from_media
    from torchstone.models.prepare import cast_inputs, cast_model, generated, parse_dtype
    from torchstone.models.pretrained import build_with_source, find_blueprint

    blueprint = find_blueprint(model, options)
    built = build_with_source(blueprint, device=device, seed=options.seed)
    # Before its decode cache is generated. Without values, a model in a dtype is what `model.to(dtype)` gives, as for
    # formulas; with values, tables such as the frequencies of a rotary embedding keep the precision they were built in.
    own = _float_type(built.model) if device == "meta" else None
    cast_model(built.model, parse_dtype(options.dtype) or own)
    if options.cache in ("expanded", "absorbed"):
        from torchstone.models.example_inputs.cache_kinds import choose_latent_form

        choose_latent_form(built.model, options.cache)
    if inputs_are_given:
        return _FoundModel(model=built.model, inputs=None, weights=built.weights)
    generate = inputs_from_media if options.given_media() else inputs_for_architecture
    inputs = generated(lambda: generate(built.model, blueprint, options), blueprint.name)
    inputs = cast_inputs(inputs, _float_type(built.model))
    return _FoundModel(model=built.model, inputs=inputs, weights=built.weights, inputs_are_generated=True)


def _diffusers_config(path: Path) -> tuple[Path, dict[str, object]] | None:
    """The configuration in a file or folder, if it is one of diffusers: it names its class."""
    file = path / "config.json" if path.is_dir() else path
    if file.suffix != ".json" or not file.is_file():
        return None
    from torchstone.record.files import read_json

    config = read_json(file)
    return (file, config) if isinstance(config, dict) and "_class_name" in config else None


def _diffusion_model(
    path: Path, config: dict[str, object], options: InputOptions, device: str, *, inputs_are_given: bool
) -> _FoundModel:
    _require("diffusers", needed_for=f"building {path}", extra="diffusers")
    from torchstone.models.diffusion import build_diffusion, diffusion_inputs
    from torchstone.models.prepare import cast_inputs, cast_model, generated, parse_dtype

    model = build_diffusion(path, config, options, device)
    cast_model(model, parse_dtype(options.dtype))
    source = None if device == "meta" else WeightsSource(kind=WeightsKind.RANDOM)
    if inputs_are_given:
        return _FoundModel(model=model, inputs=None, weights=source)
    inputs = cast_inputs(generated(lambda: diffusion_inputs(model, options), str(path)), _float_type(model))
    return _FoundModel(model=model, inputs=inputs, weights=source, inputs_are_generated=True)


def _float_type(model: "nn.Module") -> "torch.dtype | None":
    """The dtype of most weights, which generated inputs follow: a checkpoint in bfloat16 takes bfloat16 images.

    Single parameters may have another one, whatever dtype a model is built in, such as the first of XLNet.
    """
    sizes: Counter[torch.dtype] = Counter()
    for one in model.parameters():
        if one.dtype.is_floating_point:
            sizes[one.dtype] += one.numel()
    return max(sizes, key=sizes.__getitem__, default=None)


def _unknown_model_message(model: str) -> str:
    near = suggest(model)
    meant = f"; did you mean {' or '.join(near)}?" if near else ""
    return (
        f"{model!r} is neither a file nor in the zoo{meant} "
        "(pass a local folder or its config.json; `torchstone models` lists what ships; "
        "--pretrained finds models in the Hugging Face cache)"
    )


def _from_user_code(target: Target, *, inputs_are_given: bool) -> _FoundModel:
    code = UserCode.of(target)
    factory = code.attribute(target.name)
    name = target.name or factory.__name__
    source = WeightsSource(kind=WeightsKind.CODE, location=target.text)
    if is_model_loader(factory):
        loader = make_loader(code, factory, target.variant)
        model = _require_module(
            code.call(loader.load_model, name=f"{name}.load_model"), f"{name}.load_model in {target.module}"
        )
        if inputs_are_given:
            return _FoundModel(model=model, inputs=None, weights=source, code=code)
        value = code.call(loader.load_inputs, name=f"{name}.load_inputs")
        given = inputs_from_value(value, origin=f"{target.module}::{name}.load_inputs")
        return _FoundModel(model=model, inputs=given, weights=source)
    if target.variant is not None:
        msg = (
            f"{name} in {target.module} has no variants: [{target.variant}]; only a class with load_model and "
            "load_inputs has them"
        )
        raise ModelError(msg)
    return _from_factory(code, factory, name, inputs_are_given=inputs_are_given)


def _from_factory(code: UserCode, factory: object, name: str, *, inputs_are_given: bool) -> _FoundModel:
    source = WeightsSource(kind=WeightsKind.CODE, location=code.target.text)
    value = code.call(factory, name=name) if callable(factory) and not _is_module(factory) else factory
    origin = f"{name} in {code.target.module}"
    if isinstance(value, tuple | list) and len(value) == _PAIR and _is_module(value[0]):
        given = inputs_from_value(value[1], origin=f"{code.target.module}::{name}")
        return _FoundModel(model=_require_module(value[0], origin), inputs=given, weights=source)
    model = _require_module(value, origin)
    if not inputs_are_given and code.defines(_INPUTS_FUNCTION):
        origin = f"{code.target.module}::{_INPUTS_FUNCTION}"
        inputs = code.call(code.attribute(_INPUTS_FUNCTION), name=_INPUTS_FUNCTION)
        return _FoundModel(model=model, inputs=inputs_from_value(inputs, origin=origin), weights=source)
    return _FoundModel(model=model, inputs=None, weights=source, code=code)


def _read_inputs(inputs: object, ran: UserCode | None) -> Inputs:
    """Read the inputs that the user passed; a file that already ran for the model is not run again."""
    if not isinstance(inputs, str):
        return inputs_from_value(inputs, origin="the given inputs")
    target = parse_target(inputs)
    if target is None:
        msg = f"the inputs {inputs!r} are not a Python function; give them as path/to/file.py::get_inputs"
        raise ModelError(msg)
    code = ran if ran is not None and ran.target.is_same_module(target) else UserCode.of(target)
    name = target.name or _INPUTS_FUNCTION
    return inputs_from_value(code.call(code.attribute(name), name=name), origin=target.text)


def _is_module(value: object) -> bool:
    from torch import nn

    return isinstance(value, nn.Module)


def _require_module(value: object, origin: str) -> "nn.Module":
    from torch import nn

    if isinstance(value, nn.Module):
        with foreign_code() as ran:  # a class may look up attributes in its own way, or forget to call super().__init__
            sum(1 for _ in value.parameters())
        if ran.error is None:
            return value
        msg = f"the parameters of what {origin} returned cannot be listed: {shortened(ran.raised)}; correct its class"
        raise ModelError(msg) from ran.raised
    msg = (
        f"{origin} returned {type(value).__name__}, not a torch.nn.Module; return the model, or a (model, inputs) pair"
    )
    raise ModelError(msg)


def _require(module: str, *, needed_for: str, extra: str) -> None:
    if find_spec(module) is None:
        raise MissingExtraError(needed_for=needed_for, extra=extra)
