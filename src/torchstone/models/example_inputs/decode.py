"""The decode phase: one new token for each sequence, and a cache filled by the tokens before it."""

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from torchstone.errors import ModelInputsError
from torchstone.models.example_inputs.context import DEFAULT_SEQ_LEN, Draft, Scene
from torchstone.models.example_inputs.text import vocabulary
from torchstone.models.inputs import Inputs
from torchstone.models.pretrained import Blueprint, build, quiet_and_offline

DECODE = "decode"
_CACHES = ("past_key_values", "cache_params", "state")
_DECODER_IDS = "decoder_input_ids"
_IDS = "input_ids"
_NEW_TOKENS = 1


def decode_inputs(prefill: Inputs, scene: Scene, blueprint: Blueprint) -> Inputs:
    """Inputs for the step after a prefill, with the cache on the model's device."""
    cache_name = next((name for name in _CACHES if name in scene.parameters), None)
    ids_name = _DECODER_IDS if _DECODER_IDS in prefill.kwargs else _IDS
    if cache_name is None or ids_name not in prefill.kwargs:
        msg = f"{type(scene.model).__name__} has no decode phase, since its forward takes no cache; leave --phase out"
        raise ModelInputsError(msg)
    cached = scene.options.cache_len or DEFAULT_SEQ_LEN
    output = _run_prefill(_prefill_arguments(prefill, scene, ids_name, cached), scene, blueprint)
    cache = getattr(output, cache_name, None)
    if cache is None:
        name = type(scene.model).__name__
        msg = f"{name} gave no cache after the prefill, so it has no decode phase; leave --phase out"
        raise ModelInputsError(msg)
    _recast(cache, _dtype_of(scene.model))
    draft = Draft(scene.options.seed)
    _add_step(draft, prefill, scene, ids_name, cached)
    draft.say(cache_name, cache, f"{type(cache).__name__} filled with {cached} tokens")
    encoded = getattr(output, "encoder_last_hidden_state", None)
    if encoded is not None and "encoder_outputs" in scene.parameters:
        draft.say("encoder_outputs", (encoded.to(_dtype_of(scene.model)),), "kept from the prefill")
    if "use_cache" in scene.parameters:
        draft.kwargs["use_cache"] = True
    return replace(prefill, kwargs=draft.kwargs, notes=(*blueprint.notes, *draft.notes), phase=DECODE)


def _prefill_arguments(prefill: Inputs, scene: Scene, ids_name: str, cached: int) -> dict[str, Any]:
    """Plain text of the cache's length; no mask, since meta tensors have no values to read in one."""
    shape = (scene.batch, cached, *prefill.kwargs[ids_name].shape[2:])
    ids = Draft(scene.options.seed).tokens(ids_name, shape, below=vocabulary(scene), avoid=scene.special_tokens())
    if ids_name == _IDS:
        arguments: dict[str, Any] = {_IDS: ids}
    else:
        arguments = {**prefill.kwargs, ids_name: ids}
        arguments.pop("attention_mask", None)
    if "use_cache" in scene.parameters:
        arguments["use_cache"] = True
    return arguments


def _run_prefill(arguments: dict[str, Any], scene: Scene, blueprint: Blueprint) -> Any:
    """Let the model fill its own cache: really on cpu; on meta by a twin in bfloat16, which all meta kernels take."""
    device = next(scene.model.parameters()).device
    runner = _twin(blueprint) if device.type == "meta" else scene.model
    try:
        with quiet_and_offline(), torch.no_grad():
            return runner(**{name: _moved(value, device, _dtype_of(runner)) for name, value in arguments.items()})
    except Exception as error:  # whatever the model raises, there is no cache to go on with
        reason = " ".join(str(error).split())
        name = type(scene.model).__name__
        msg = f"the cache for the decode phase cannot be made, since {name} failed on the prefill: {reason}"
        raise ModelInputsError(msg) from error


def _twin(blueprint: Blueprint) -> nn.Module:
    return build(blueprint, device="meta", seed=0).to(torch.bfloat16)


def _moved(value: Any, device: torch.device, dtype: torch.dtype) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return value.to(device, dtype) if value.is_floating_point() else value.to(device)


def _dtype_of(model: nn.Module) -> torch.dtype:
    return next(parameter.dtype for parameter in model.parameters() if parameter.is_floating_point())


def _recast(holder: Any, dtype: torch.dtype) -> None:
    """Give every bfloat16 tensor inside a cache the model's own dtype."""
    if isinstance(holder, list):
        places: Any = dict(enumerate(holder))
    else:
        places = holder if isinstance(holder, dict) else getattr(holder, "__dict__", {})
    target = holder if isinstance(holder, list) else places
    for key, value in list(places.items()):
        if isinstance(value, torch.Tensor):
            target[key] = value.to(dtype) if value.dtype == torch.bfloat16 else value
        elif isinstance(value, torch.dtype):
            target[key] = dtype if value == torch.bfloat16 else value
        else:
            _recast(value, dtype)


def _add_step(draft: Draft, prefill: Inputs, scene: Scene, ids_name: str, cached: int) -> None:
    """One token, a mask over the cache and it, and its position."""
    shape = (scene.batch, _NEW_TOKENS, *prefill.kwargs[ids_name].shape[2:])
    draft.tokens(ids_name, shape, below=vocabulary(scene), avoid=scene.special_tokens())
    if ids_name == _DECODER_IDS:
        if "attention_mask" in prefill.kwargs:  # over the encoder's tokens
            draft.put("attention_mask", prefill.kwargs["attention_mask"], "all ones, over the encoder's tokens")
        return
    if "attention_mask" in scene.parameters:
        draft.ones(
            "attention_mask", (scene.batch, cached + _NEW_TOKENS), what="all ones, over the cache and the new token"
        )
    if "position_ids" in scene.parameters:
        draft.put("position_ids", torch.full((scene.batch, _NEW_TOKENS), cached), "the place after the cache")
