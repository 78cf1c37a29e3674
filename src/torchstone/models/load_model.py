"""load(): the one way from a name, or a module, to a model with example inputs; imports torch only when called."""

from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from torchstone.errors import MissingExtraError, ModelError, UnknownModelError
from torchstone.models.inputs import InputOptions, Inputs, inputs_from_value
from torchstone.models.user_code import Target, UserCode, is_model_loader, make_loader, parse_target
from torchstone.models.zoo.catalogue import find_entry, suggest

if TYPE_CHECKING:
    from torch import nn

__all__ = ["InputOptions", "Inputs", "Loaded", "describe_source", "load"]

_DEFAULTS = InputOptions()
_PAIR = 2
_INPUTS_FUNCTION = "get_inputs"


class Loaded(NamedTuple):
    """A model and what to call it with."""

    model: "nn.Module"
    inputs: Inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A model from user code, with the inputs that came with it."""

    model: "nn.Module"
    inputs: Inputs | None
    inputs_are_made_up: bool = False
    code: UserCode | None = None


def load(
    model: "str | nn.Module", *, inputs: object = None, options: InputOptions = _DEFAULTS, device: str = "meta"
) -> Loaded:
    """Find or build a model, and take or make up inputs for it.

    `device` is where models that torchstone builds itself live: "meta" needs no memory, "cpu" has seeded random
    weights. Models from user code are taken as they come.
    """
    _require("torch", needed_for="loading a model", extra="torch")
    from torchstone.models.prepare import cast_inputs, cast_model, give_shapes, parse_dtype

    dtype = parse_dtype(options.dtype)
    found = _find(model, inputs_are_given=inputs is not None, options=options, device=device)
    cast_model(found.model, dtype)
    chosen = _given(inputs, found.code) if inputs is not None else found.inputs
    if chosen is not None and not found.inputs_are_made_up:
        chosen = _with_unused_options(chosen, options)
    if chosen is None:
        from torchstone.models.example_inputs.plain import inputs_for_module

        chosen = inputs_for_module(found.model, options)
    chosen = cast_inputs(chosen, dtype)
    give_shapes(found.model, chosen)
    return Loaded(found.model, chosen)


def _with_unused_options(inputs: Inputs, options: InputOptions) -> Inputs:
    """Inputs that somebody else made do not follow the options: say so."""
    unused = [f"{name}: not applied, the inputs come from {inputs.origin}" for name in options.asked_of_inputs()]
    return replace(inputs, notes=(*inputs.notes, *unused))


def describe_source(model: "str | nn.Module") -> str:
    """The name of a model as provenance records it: a zoo model by its full id, a module by its class."""
    if not isinstance(model, str):
        return f"{type(model).__module__}.{type(model).__qualname__}"
    entry = None if _names_something_local(model) else find_entry(model)
    return entry.id if entry is not None else model


def _names_something_local(model: str) -> bool:
    return parse_target(model) is not None or Path(model).exists()


def _find(model: "str | nn.Module", *, inputs_are_given: bool, options: InputOptions, device: str) -> _Found:
    if not isinstance(model, str):
        return _Found(model=_checked(model, "the given object"), inputs=None)
    if model in ("", "tiny:"):
        msg = f"{model!r} names no model; give one such as gpt2, tiny:bert or net.py::load_model"
        raise UnknownModelError(msg)
    if model.startswith("tiny:"):
        return _transformers_model(model, options, device, inputs_are_given=inputs_are_given)
    target = parse_target(model)
    if target is not None:
        return _from_user_code(target, inputs_are_given=inputs_are_given)
    if model.endswith(".pt2"):
        from torchstone.models.exported import load_exported

        module, inputs = load_exported(Path(model), seed=options.seed)
        return _Found(model=module, inputs=inputs)
    return _transformers_model(model, options, device, inputs_are_given=inputs_are_given)


def _transformers_model(model: str, options: InputOptions, device: str, *, inputs_are_given: bool) -> _Found:
    if not model.startswith("tiny:") and not Path(model).exists() and find_entry(model) is None:
        raise UnknownModelError(_unknown(model))
    _require("transformers", needed_for=f"building {model}", extra="hf")
    from torchstone.models.example_inputs.architecture import inputs_for_architecture
    from torchstone.models.prepare import cast_model, parse_dtype
    from torchstone.models.pretrained import build, find_blueprint

    blueprint = find_blueprint(model, options)
    module = build(blueprint, device=device, seed=options.seed)
    cast_model(module, parse_dtype(options.dtype))  # before a cache is made for it
    if inputs_are_given:
        return _Found(model=module, inputs=None)
    made_up = inputs_for_architecture(module, blueprint, options)
    return _Found(model=module, inputs=made_up, inputs_are_made_up=True)


def _unknown(model: str) -> str:
    near = suggest(model)
    meant = f"; did you mean {' or '.join(near)}?" if near else ""
    return (
        f"{model!r} is neither a file nor in the zoo{meant} "
        "(pass a local folder or its config.json; `torchstone models` lists what ships)"
    )


def _from_user_code(target: Target, *, inputs_are_given: bool) -> _Found:
    code = UserCode.of(target)
    factory = code.named(target.name)
    name = target.name or factory.__name__
    if is_model_loader(factory):
        loader = make_loader(code, factory, target.variant)
        model = _checked(
            code.call(loader.load_model, name=f"{name}.load_model"), f"{name}.load_model in {target.module}"
        )
        if inputs_are_given:
            return _Found(model=model, inputs=None, code=code)
        value = code.call(loader.load_inputs, name=f"{name}.load_inputs")
        return _Found(model=model, inputs=inputs_from_value(value, origin=f"{target.module}::{name}.load_inputs"))
    if target.variant is not None:
        msg = f"{name} in {target.module} takes no [variant]: only a class with load_model and load_inputs does"
        raise ModelError(msg)
    return _from_factory(code, factory, name, inputs_are_given=inputs_are_given)


def _from_factory(code: UserCode, factory: object, name: str, *, inputs_are_given: bool) -> _Found:
    value = code.call(factory, name=name) if callable(factory) and not _is_module(factory) else factory
    origin = f"{name} in {code.target.module}"
    if isinstance(value, tuple | list) and len(value) == _PAIR and _is_module(value[0]):
        model, inputs = value
        return _Found(model=model, inputs=inputs_from_value(inputs, origin=f"{code.target.module}::{name}"))
    model = _checked(value, origin)
    if not inputs_are_given and code.offers(_INPUTS_FUNCTION):
        origin = f"{code.target.module}::{_INPUTS_FUNCTION}"
        inputs = code.call(code.named(_INPUTS_FUNCTION), name=_INPUTS_FUNCTION)
        return _Found(model=model, inputs=inputs_from_value(inputs, origin=origin))
    return _Found(model=model, inputs=None, code=code)


def _given(inputs: object, ran: UserCode | None) -> Inputs:
    """Read the inputs that were given; a file that already ran for the model is not run again."""
    if not isinstance(inputs, str):
        return inputs_from_value(inputs, origin="the given inputs")
    target = parse_target(inputs)
    if target is None:
        msg = f"the inputs {inputs!r} name no Python function; give them as path/to/file.py::get_inputs"
        raise ModelError(msg)
    code = ran if ran is not None and ran.target.is_same_module(target) else UserCode.of(target)
    name = target.name or _INPUTS_FUNCTION
    return inputs_from_value(code.call(code.named(name), name=name), origin=target.text)


def _is_module(value: object) -> bool:
    from torch import nn

    return isinstance(value, nn.Module)


def _checked(value: object, origin: str) -> "nn.Module":
    from torch import nn

    if isinstance(value, nn.Module):
        return value
    msg = f"{origin} gave {type(value).__name__}, not a torch.nn.Module; return the model, or a (model, inputs) pair"
    raise ModelError(msg)


def _require(module: str, *, needed_for: str, extra: str) -> None:
    if find_spec(module) is None:
        raise MissingExtraError(needed_for=needed_for, extra=extra)
