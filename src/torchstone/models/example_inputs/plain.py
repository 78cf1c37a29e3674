"""Generate the input of any module with one argument from its first layer; otherwise an error asks for inputs."""

import sys
from inspect import Parameter, signature

from torch import nn

from torchstone.errors import ModelInputsError
from torchstone.models.example_inputs.context import (
    DEFAULT_FRAMES,
    DEFAULT_IMAGE_SIDE,
    DEFAULT_SEQ_LEN,
    InputBuilder,
)
from torchstone.models.inputs import InputOptions, Inputs
from torchstone.record.trace import NOT_APPLIED

_FIRST_LAYERS = (
    nn.Linear,
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.Embedding,
    nn.RNNBase,
    nn.LayerNorm,
    nn.MultiheadAttention,
)


def inputs_for_module(model: nn.Module, options: InputOptions) -> Inputs:
    """Generate the arguments of any module."""
    if _is_transformers_model(model):
        from torchstone.models.example_inputs.architecture import inputs_for_architecture
        from torchstone.models.example_inputs.cache_kinds import choose_latent_form
        from torchstone.models.pretrained import Blueprint

        choose_latent_form(model, options.cache)
        blueprint = Blueprint(name=type(model).__name__, config=model.config, model_class=type(model))
        return inputs_for_architecture(model, blueprint, options)
    needed = _required(model)
    if not needed:
        return Inputs(origin="nothing: forward needs no arguments")
    layer = _first_layer(model)
    if len(needed) > 1 or layer is None:
        msg = (
            f"inputs for {type(model).__name__} cannot be generated: its forward needs {', '.join(needed)}; "
            "pass them with --inputs file.py::get_inputs"
        )
        raise ModelInputsError(msg)
    return _from_first_layer(needed[0], *layer, options=options)


def _is_transformers_model(model: nn.Module) -> bool:
    transformers = sys.modules.get("transformers")  # code that built such a model has imported it
    return transformers is not None and isinstance(model, transformers.PreTrainedModel)


def _required(model: nn.Module) -> list[str]:
    kinds = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    each = signature(model.forward).parameters.values()
    named = [one.name for one in each if one.default is Parameter.empty and one.kind in kinds]
    return named or [one.name for one in each if one.kind is Parameter.VAR_POSITIONAL]


def _first_layer(model: nn.Module) -> tuple[str, nn.Module] | None:
    """The first layer with weights, if its type determines the shape of its input."""
    for path, module in model.named_modules():
        if isinstance(module, _FIRST_LAYERS):
            return path or "the model itself", module
        if next(module.parameters(recurse=False), None) is not None:
            return None
    return None


def _from_first_layer(name: str, path: str, layer: nn.Module, *, options: InputOptions) -> Inputs:
    builder = InputBuilder(options.seed)
    what = f"guessed from the first layer, {path} ({type(layer).__name__})"
    if isinstance(layer, nn.Embedding):
        shape = (options.batch_size or 1, options.seq_len or DEFAULT_SEQ_LEN)
        ids = builder.tokens(name, shape, below=layer.num_embeddings)
        builder.remove(name)
        value = builder.add(name, ids, what)
    else:
        value = builder.floats(name, _shape(layer, options), what)
    first = next(layer.parameters())
    if value.is_floating_point() and first.is_floating_point():
        value = value.to(first.dtype)
    unused = [name for name in options.given_input_options() if name not in _used_by(layer)]
    notes = (*builder.notes, *(f"{one}{NOT_APPLIED}the input of {type(layer).__name__} has none" for one in unused))
    return Inputs(args=(value,), origin="generated from the model's first layer", notes=notes)


def _used_by(layer: nn.Module) -> tuple[str, ...]:
    """The options about inputs that decide the shape of a layer's input."""
    if isinstance(layer, nn.LayerNorm):
        return ("batch_size",)
    return ("batch_size", "image_size" if isinstance(layer, nn.Conv2d | nn.Conv3d) else "seq_len")


def _shape(layer: nn.Module, options: InputOptions) -> tuple[int, ...]:
    """The shape of a batch; recurrent layers and attention take the sequence first unless they say otherwise."""
    batch, one = options.batch_size or 1, _shape_of_one(layer, options)
    if isinstance(layer, nn.RNNBase | nn.MultiheadAttention) and not layer.batch_first:
        return one[0], batch, *one[1:]
    return batch, *one


def _shape_of_one(layer: nn.Module, options: InputOptions) -> tuple[int, ...]:
    side = options.image_size or DEFAULT_IMAGE_SIDE
    length = options.seq_len or DEFAULT_SEQ_LEN
    match layer:
        case nn.Conv1d():
            return layer.in_channels, length
        case nn.Conv2d():
            return layer.in_channels, side, side
        case nn.Conv3d():
            return layer.in_channels, DEFAULT_FRAMES, side, side
        case nn.RNNBase():
            return length, layer.input_size
        case nn.LayerNorm():
            return layer.normalized_shape
        case nn.Linear():
            return (layer.in_features,) if options.seq_len is None else (options.seq_len, layer.in_features)
        case nn.MultiheadAttention():
            return length, layer.embed_dim
        case _:
            msg = f"no shape is known for a first layer of type {type(layer).__name__}"
            raise AssertionError(msg)
