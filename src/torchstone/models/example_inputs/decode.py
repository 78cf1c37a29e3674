"""The decode phase: one new token for each sequence, and a cache filled by the tokens before it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from inspect import signature
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import DynamicCache
from transformers.modeling_outputs import BaseModelOutput
from transformers.utils import ModelOutput

from torchstone.errors import InputError, ModelInputsError
from torchstone.foreign import foreign_code
from torchstone.models.example_inputs.cache_kinds import (
    choose_latent_form,
    empty_cache,
    empty_closed_windows,
    is_filled,
    set_lengths,
)
from torchstone.models.example_inputs.context import DEFAULT_SEQ_LEN, InputBuilder, InputContext
from torchstone.models.example_inputs.text import most_tokens, vocabulary
from torchstone.models.inputs import Inputs
from torchstone.models.prepare import memory_shortage
from torchstone.models.pretrained import Blueprint, build, quiet_and_offline
from torchstone.units import many

DECODE = "decode"
_CACHES = ("past_key_values", "cache_params", "state")
_ENCODED = "torchstone_encoder_output"
_ENCODER_CACHE = "encoder_past_key_values"
_SOUND = "encoder_inputs_embeds"
_HEARS_WHILE_IT_WRITES = ("voxtral_realtime",)  # each token is written beside a piece of sound
_IMAGES, _IMAGES_SEEN = "image_hidden_states", "image_attention_mask"
_MAIN_STATE = "last_hidden_state"
_DECODER_IDS = "decoder_input_ids"
_IDS = "input_ids"
_NEW_TOKENS = 1
_UNUSUAL = "torchstone_unusual"
_OWN_CACHES = ("dynamic", "paged", "absorbed")  # that a model makes by itself
_READ_BACK = "aten::_local_scalar_dense"
_MASK_COVERS_ROOM = ("bloom",)  # of a static cache: they derive the positions of keys from their mask
_TAKE_ALL_TOKENS = ("cpmant",)  # and leave out those in the cache after the embedding
_SMALL_BYTES = 4 << 30  # of weights that are made to run a prefill
_FEW_TOKENS = 32  # more than any convolution of a recurrent layer looks back


def decode_inputs(prefill: Inputs, context: InputContext, blueprint: Blueprint) -> Inputs:
    """Inputs for the step after a prefill, with the cache on the model's device."""
    cache_name = next((name for name in _CACHES if name in context.parameters), None)
    ids_name = _DECODER_IDS if _DECODER_IDS in prefill.kwargs else _IDS
    if cache_name is None or ids_name not in prefill.kwargs:
        name = type(context.model).__name__
        msg = _generating_part(context) or f"{name} has no decode phase, since its forward takes no cache; drop --phase"
        raise ModelInputsError(msg)
    cached = _cached_tokens(context)
    filled = _enough_tokens(prefill, context, blueprint, (ids_name, cache_name, cached))
    arguments = _prefill_arguments(prefill, context, ids_name, filled)
    chosen = _chosen_cache(context, cache_name, cached)
    if chosen is not None:
        arguments[cache_name] = chosen
    output = _run_prefill(arguments, context, blueprint)
    cache = getattr(output, cache_name, None)
    cache = chosen if cache is None else cache
    if cache is None and cache_name == _CACHES[0]:  # some keep it for themselves, but fill one that they are given
        arguments[cache_name] = cache = DynamicCache(config=context.config.get_text_config(decoder=True))
        _run_prefill(arguments, context, blueprint)
    if cache is None or not is_filled(cache):
        name = type(context.model).__name__
        msg = f"{name} returned no cache after the prefill, so it has no decode phase; drop --phase"
        raise ModelInputsError(msg)
    empty_closed_windows(cache)
    _Recast(_dtype_of(context.model)).parts(cache)
    set_lengths(cache, cached)
    builder = InputBuilder(context.options.seed)
    _add_step(builder, prefill, context, (ids_name, cache_name, cached))
    if context.config.model_type in _HEARS_WHILE_IT_WRITES:
        _add_sound(builder, context, getattr(output, _ENCODER_CACHE))
    if _IMAGES_SEEN in prefill.kwargs:
        _add_images(builder, prefill, context, getattr(output, _IMAGES))
    if _MAIN_STATE in prefill.kwargs:
        state = prefill.kwargs[_MAIN_STATE].to(_dtype_of(context.model))
        builder.add(_MAIN_STATE, state, "that of the prefill: all codebooks are of one token")
    same = "" if filled == cached else f" (filled with {filled}: its states have the same size after any number)"
    room = f", with room for {_room(context, cached)}" if context.options.cache == "static" else ""
    builder.add_value(cache_name, cache, f"{type(cache).__name__} filled with {many(cached, 'token')}{same}{room}")
    encoded = getattr(output, "encoder_last_hidden_state", None)
    if encoded is not None and "encoder_outputs" in context.parameters:
        given = _encoder_output(encoded, getattr(output, _ENCODED, None), _dtype_of(context.model))
        builder.add_value("encoder_outputs", given, "reused from the prefill")
    if "use_cache" in arguments:
        builder.kwargs["use_cache"] = True
    caches = (name for name in (cache_name, _ENCODER_CACHE) if name in builder.kwargs)
    notes = (*blueprint.notes, *builder.notes)
    return replace(prefill, kwargs=builder.kwargs, notes=notes, phase=DECODE, caches=tuple(caches))


def _cached_tokens(context: InputContext) -> int:
    """The tokens in the cache: as requested, else a default, with room for one more."""
    cached, most = context.options.cache_len or DEFAULT_SEQ_LEN, most_tokens(context)
    if most is None:
        return cached
    if context.options.cache_len is not None and cached >= most:
        kind = context.config.model_type
        msg = f"{kind} has {most} codebooks, one for each token; give --cache-len {most - 1} or less"
        raise ModelInputsError(msg)
    return min(cached, most - 1)


def _generating_part(context: InputContext) -> str:
    """The part that generates where a model only prepares what that part then continues; "" where there is none."""
    name = type(context.model).__name__
    for path, part in context.model.named_modules():
        generates = path and getattr(part, "can_generate", bool)()
        if generates and any(one in signature(part.forward).parameters for one in _CACHES):
            return (
                f"{name} takes no cache in its own forward: its {path} generates, a {type(part).__name__} of type "
                f"{part.config.model_type}; give the configuration of that part, or drop --phase"
            )
    return ""


def _sound_shape(context: InputContext, tokens: int) -> tuple[int, int, int]:
    """Embedded sound that belongs to a number of tokens."""
    frames = tokens * context.config.downsample_factor
    return context.batch, frames, context.config.audio_config.hidden_size


def _add_sound(builder: InputBuilder, context: InputContext, cache: object) -> None:
    """The sound of the new token, and what the encoder keeps of the sound before it."""
    _Recast(_dtype_of(context.model)).parts(cache)
    shape = _sound_shape(context, _NEW_TOKENS)
    builder.floats(_SOUND, shape, "random sound of the new token, embedded as a prompt's sound is")
    builder.add_value(_ENCODER_CACHE, cache, f"{type(cache).__name__} filled with the sound of the tokens before")


def _add_images(builder: InputBuilder, prefill: Inputs, context: InputContext, images: torch.Tensor) -> None:
    """What the prefill made of the images, and that the new token attends to them."""
    name = "perceiver_embeddings" if context.config.use_resampler else "image_encoder_embeddings"
    builder.add(name, images.to(_dtype_of(context.model)), "reused from the prefill")
    builder.add(_IMAGES_SEEN, prefill.kwargs[_IMAGES_SEEN][:, :_NEW_TOKENS], "all ones, for the new token")


def _chosen_cache(context: InputContext, cache_name: str, cached: int) -> object:
    """The empty cache that was asked for; None: the model makes its own."""
    kind = context.options.cache
    if kind is None or not context.options.needs_own_cache:
        return None
    name = type(context.model).__name__
    if cache_name != _CACHES[0]:
        msg = f"{name} keeps states in {cache_name}, which are no keys and values; drop --cache {kind}"
        raise ModelInputsError(msg)
    if kind == "static" and not getattr(context.model, "_can_compile_fullgraph", False):
        msg = f"{name} does not support a static cache in transformers; drop --cache static"
        raise ModelInputsError(msg)
    room = _room(context, cached)
    if room < cached + _NEW_TOKENS:
        msg = (
            f"--cache-size {room} has no room for {many(cached, 'token')} and the new one; give "
            f"{cached + _NEW_TOKENS} or more"
        )
        raise InputError(msg)
    return empty_cache(kind, context.config.get_text_config(decoder=True), name, room)


def _room(context: InputContext, cached: int) -> int:
    return context.options.cache_size or cached + _NEW_TOKENS


def _enough_tokens(prefill: Inputs, context: InputContext, blueprint: Blueprint, asked: tuple[str, str, int]) -> int:
    """The number of tokens after which the cache looks as it does after all of them.

    A recurrent model computes its states token by token, which takes long, and they do not grow. Where two short runs
    leave equal states, the short one does.
    """
    ids_name, cache_name, cached = asked
    if cache_name == _CACHES[0] or cached <= _FEW_TOKENS:
        return cached
    looks = []
    for tokens in (_FEW_TOKENS - 1, _FEW_TOKENS):
        output = _run_prefill(_prefill_arguments(prefill, context, ids_name, tokens), context, blueprint)
        looks.append(_looks(getattr(output, cache_name, None)))
    return _FEW_TOKENS if looks[0] and looks[0] == looks[1] else cached


def _looks(holder: object) -> list[tuple[torch.Size, torch.dtype]]:
    """Shape and type of every tensor in a cache, in order."""
    if isinstance(holder, torch.Tensor):
        return [(holder.shape, holder.dtype)]
    parts = holder if isinstance(holder, list | tuple) else vars(holder).values() if hasattr(holder, "__dict__") else ()
    return [look for part in (holder.values() if isinstance(holder, dict) else parts) for look in _looks(part)]


def _prefill_arguments(prefill: Inputs, context: InputContext, ids_name: str, cached: int) -> dict[str, object]:
    """Token ids of the cache's length; no mask, because models read its values and meta tensors have none."""
    own = prefill.kwargs[ids_name].shape  # a codebook may have rows of its own
    shape = (own[0], cached, *own[2:])
    ids = InputBuilder(context.options.seed).tokens(
        ids_name, shape, below=vocabulary(context), avoid=context.special_tokens()
    )
    if ids_name == _IDS:
        arguments: dict[str, object] = {_IDS: ids}
        if context.config.model_type in _HEARS_WHILE_IT_WRITES:
            arguments[_SOUND] = InputBuilder(context.options.seed).floats(_SOUND, _sound_shape(context, cached))
        if _IMAGES_SEEN in prefill.kwargs:  # by each token
            seen = prefill.kwargs[_IMAGES_SEEN][:, :1].expand(-1, cached, -1)
            arguments |= {"pixel_values": prefill.kwargs["pixel_values"], _IMAGES_SEEN: seen}
        if _MAIN_STATE in prefill.kwargs:
            arguments[_MAIN_STATE] = prefill.kwargs[_MAIN_STATE]
    else:
        arguments = {**prefill.kwargs, ids_name: ids}
        arguments.pop("attention_mask", None)
    if "use_cache" in context.parameters:
        arguments["use_cache"] = True
    return arguments


def _run_prefill(arguments: Mapping[str, object], context: InputContext, blueprint: Blueprint) -> object:
    """Let the model fill its own cache.

    On cpu the model itself runs. On meta a copy in bfloat16 runs, because every meta kernel accepts that dtype.
    """
    parameters = list(context.model.parameters())  # a table of positions may have values where weights have none
    device = next((one.device for one in parameters if one.is_meta), parameters[0].device)
    runner = _bfloat16_copy(blueprint, context) if device.type == "meta" else context.model
    given = {name: _moved(value, device, _dtype_of(runner)) for name, value in arguments.items()}
    # whatever the model raises, there is no cache to continue with
    with foreign_code() as ran, quiet_and_offline(), torch.no_grad(), _ChecksPass(), _encoder_watched(runner) as seen:
        output = runner(**given)
    if ran.error is not None:
        if device.type == "meta" and _is_small(context.model) and context.options.cache in (None, *_OWN_CACHES):
            return _run_really(arguments, context, blueprint)
        raise _failed(context, ran.error) from ran.error
    if runner is not context.model:
        _copy_states(runner, context.model)
    if isinstance(output, ModelOutput):
        setattr(output, _ENCODED, seen)
    return output


@contextmanager
def _encoder_watched(runner: Any) -> Iterator[list[ModelOutput]]:
    """What an encoder gives, of which a model gives back the last hidden state alone."""
    seen: list[ModelOutput] = []

    def note(_module: nn.Module, _given: object, output: object) -> None:
        if isinstance(output, ModelOutput):
            seen[:] = [output]

    encoder = runner.get_encoder() if runner.config.is_encoder_decoder else runner
    hook = encoder.register_forward_hook(note) if isinstance(encoder, nn.Module) and encoder is not runner else None
    try:
        yield seen
    finally:
        if hook is not None:
            hook.remove()


def _encoder_output(encoded: torch.Tensor, seen: Sequence[ModelOutput] | None, dtype: torch.dtype) -> ModelOutput:
    """The output of an encoder for its decoder, which may attend to another one than the last hidden state."""
    found = {"last_hidden_state": encoded}
    for output in seen or ():
        found |= {
            name: value for name, value in output.items() if isinstance(value, torch.Tensor) and name not in found
        }
    found = {name: value.to(dtype) if value.is_floating_point() else value for name, value in found.items()}
    return type(seen[0])(**found) if seen and len(found) > 1 else _EncoderOutput(**found)


def _failed(context: InputContext, error: Exception) -> ModelInputsError:
    reason = " ".join(str(error).split()).partition(". ")[0]
    name = type(context.model).__name__
    why = f"the cache for the decode phase cannot be generated, since {name} failed on the prefill ({reason})"
    return ModelInputsError(_generating_part(context) or f"{why}; drop --phase")


def _is_small(model: nn.Module) -> bool:
    size = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    return size <= _SMALL_BYTES and not memory_shortage(model)


def _run_really(arguments: Mapping[str, object], context: InputContext, blueprint: Blueprint) -> object:
    """Run a prefill that needs values, such as the experts that tokens go to, on weights made for it.

    What it leaves is handed over without values: the form of a cache does not depend on them.
    """
    runner = build(blueprint, device="cpu", seed=context.options.seed)
    # as above: it is the model's own code
    with foreign_code() as ran, quiet_and_offline(), torch.no_grad(), _encoder_watched(runner) as seen:
        output = runner(**arguments)
    if ran.error is not None:
        raise _failed(context, ran.error) from ran.error
    kept = (*_CACHES, _ENCODER_CACHE, _IMAGES, "encoder_last_hidden_state")
    left: dict[str, object] = {name: getattr(output, name, None) for name in kept} | {_ENCODED: seen}
    for holder in (left, *(value for name, value in arguments.items() if name in _CACHES)):
        _without_values(holder, {})
    for module in runner.modules():
        own = vars(module)
        own.update({name: _without_values(one, {}) for name, one in own.items() if isinstance(one, torch.Tensor)})
    _copy_states(runner, context.model)
    return SimpleNamespace(**left)


def _without_values(holder: object, met: dict[int, tuple[object, object]]) -> object:
    """A tensor on the meta device; of anything else, the tensors inside it are exchanged for such, in place.

    `met` has each object that was met, and what stands for it: a tensor in two places stays one.
    """
    if isinstance(holder, type):
        return holder
    if id(holder) in met:
        return met[id(holder)][1]
    if isinstance(holder, torch.Tensor):
        found = holder.to("meta", torch.bfloat16 if holder.is_floating_point() else holder.dtype)
        met[id(holder)] = (holder, found)
        return found
    met[id(holder)] = (holder, holder)
    if isinstance(holder, list):
        holder[:] = [_without_values(value, met) for value in holder]
    elif isinstance(holder, tuple) and type(holder) is tuple:
        return tuple(_without_values(value, met) for value in holder)
    attributes = holder if isinstance(holder, dict) else getattr(holder, "__dict__", {})
    for name, value in list(attributes.items()):
        attributes[name] = torch.device("meta") if isinstance(value, torch.device) else _without_values(value, met)
    return holder


class _EncoderOutput(BaseModelOutput):
    """What an encoder gave; what else its own class of outputs has is None, as without a mask or a router."""

    def __getattr__(self, name: str) -> None:
        """None for anything but what Python itself asks for."""
        if name.startswith("_"):
            raise AttributeError(name)


class _ChecksPass(TorchDispatchMode):
    """Answers what a model asks about values that meta tensors do not have: all of them are as they should be.

    Such questions decide whether a mask is needed or an error is raised. The form of a cache does not depend on them.
    """

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> object:
        """Run an op; read a value back without one."""
        if func.name() == _READ_BACK and args[0].is_meta:
            return False if hasattr(args[0], _UNUSUAL) else torch.ones((), dtype=args[0].dtype).item()
        if func is torch.ops.aten.nonzero.default and args[0].is_meta:  # every expert is given every token
            return args[0].new_empty((args[0].numel(), args[0].dim()), dtype=torch.int64)
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket is torch.ops.aten.any:  # it asks for something unusual
            setattr(result, _UNUSUAL, True)
        return result


def _copy_states(runner: nn.Module, model: nn.Module) -> None:
    """Hand over what modules keep as attributes from the prefill on, such as the states of a recurrence."""
    for name, source in runner.named_modules():
        own = vars(model.get_submodule(name))
        for attribute, value in vars(source).items():
            if isinstance(value, torch.Tensor) and attribute in own and own[attribute] is None:
                own[attribute] = _Recast(_dtype_of(model)).value(value)


def _bfloat16_copy(blueprint: Blueprint, context: InputContext) -> nn.Module:
    copy = build(blueprint, device="meta", seed=0).to(torch.bfloat16)
    if context.options.cache == "expanded":
        choose_latent_form(copy, "expanded")
    return copy


def _moved(value: object, device: torch.device, dtype: torch.dtype) -> object:
    if not isinstance(value, torch.Tensor):
        return value
    return value.to(device, dtype) if value.is_floating_point() else value.to(device)


def _dtype_of(model: nn.Module) -> torch.dtype:
    return next(parameter.dtype for parameter in model.parameters() if parameter.is_floating_point())


class _Recast:
    """Gives every bfloat16 tensor inside a cache the model's own dtype, and each tensor its own memory, in place.

    A tensor that stands in two places, such as one row for keys and values, stays one.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._known: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # by id; the old one lives as long as its id

    def parts(self, holder: object) -> None:
        """Exchange the tensors that an object has, however deep."""
        if isinstance(holder, list):
            holder[:] = [self.value(value) for value in holder]
            return
        if isinstance(holder, type):
            return
        attributes = holder if isinstance(holder, dict) else getattr(holder, "__dict__", {})
        for name, value in list(attributes.items()):
            attributes[name] = self.value(value)

    def value(self, value: object) -> object:
        """What stands in the place of a value; of anything but tensors, dtypes and tuples, the same object."""
        if isinstance(value, torch.Tensor):
            if id(value) not in self._known:
                cast = value.to(self._dtype) if value.dtype == torch.bfloat16 else value
                self._known[id(value)] = (value, _alone(cast))
            return self._known[id(value)][1]
        if isinstance(value, torch.dtype):
            return self._dtype if value == torch.bfloat16 else value
        if type(value) is tuple:
            return tuple(map(self.value, value))
        self.parts(value)
        return value


def _alone(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in memory of its own: a sliding window is a view of a longer cache, which a server does not keep."""
    shares = tensor.untyped_storage().nbytes() > tensor.numel() * tensor.element_size()
    return tensor.clone(memory_format=torch.contiguous_format) if shares else tensor


def _add_step(builder: InputBuilder, prefill: Inputs, context: InputContext, asked: tuple[str, str, int]) -> None:
    """One token, a mask over the cache and it, and its position.

    States do not have the tokens before, so that there is nothing to mask: `generate` drops the mask then, and Mamba
    would multiply the new token by each of its places.
    """
    ids_name, cache_name, cached = asked
    own = prefill.kwargs[ids_name].shape
    tokens = cached + _NEW_TOKENS if context.config.model_type in _TAKE_ALL_TOKENS else _NEW_TOKENS
    shape = (own[0], tokens, *own[2:])
    builder.tokens(ids_name, shape, below=vocabulary(context), avoid=context.special_tokens())
    if ids_name == _DECODER_IDS:
        if "attention_mask" in prefill.kwargs:  # over the encoder's tokens
            builder.add("attention_mask", prefill.kwargs["attention_mask"], "all ones, over the encoder's tokens")
        return
    if "attention_mask" in context.parameters and cache_name == _CACHES[0]:
        seen = cached + _NEW_TOKENS
        if context.options.cache == "static" and context.config.model_type in _MASK_COVERS_ROOM:
            mask = (torch.arange(_room(context, cached)) < seen).long().expand(context.batch, -1).contiguous()
            builder.add("attention_mask", mask, "ones over the cache and the new token, then zeros")
        else:
            builder.ones("attention_mask", (context.batch, seen), what="all ones, over the cache and the new token")
    if "position_ids" in context.parameters:
        builder.add("position_ids", torch.full((context.batch, _NEW_TOKENS), cached), "the place after the cache")
