"""The decode phase: one new token for each sequence, and a cache filled by the tokens before it."""

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from torchstone.errors import ModelInputsError
from torchstone.models.inputs import Inputs
from torchstone.models.made_up.scene import DEFAULT_SEQ_LEN, Scene
from torchstone.models.pretrained import Blueprint, build, quiet_and_offline

DECODE = "decode"
_CACHES = ("past_key_values", "cache_params", "state")
_NEW_TOKENS = 1


def decode_inputs(prefill: Inputs, scene: Scene, blueprint: Blueprint) -> Inputs:
    """Inputs for the step after a prefill, with the cache on the model's device."""
    name = next((cache for cache in _CACHES if cache in scene.parameters), None)
    ids_name = "decoder_input_ids" if "decoder_input_ids" in prefill.kwargs else "input_ids"
    if name is None or ids_name not in prefill.kwargs:
        msg = f"{type(scene.model).__name__} has no decode phase, since its forward takes no cache; leave --phase out"
        raise ModelInputsError(msg)
    cached = scene.options.cache_len or DEFAULT_SEQ_LEN
    before = _prefilled(prefill, scene, ids_name, cached)
    cache, encoder_output = _run_prefill(before, scene, blueprint, name)
    step = _step(before, scene, ids_name, cached)
    notes = [
        note
        for note in prefill.notes
        if note.split(":")[0] in step or note.split(":")[0] == blueprint.config.model_type
    ]
    notes.append(f"{name}: {type(cache).__name__} filled with {cached} tokens")
    step[name] = cache
    if encoder_output is not None:
        step["encoder_outputs"] = encoder_output
        notes.append("encoder_outputs: kept from the prefill")
    if "use_cache" in scene.parameters:
        step["use_cache"] = True
    return replace(prefill, kwargs=step, notes=tuple(notes), phase=DECODE)


def _prefilled(prefill: Inputs, scene: Scene, ids_name: str, length: int) -> dict[str, Any]:
    """The prefill's arguments with as many tokens as the cache shall hold, and no mask over them."""
    ids = prefill.kwargs[ids_name]
    kwargs = {
        name: value for name, value in prefill.kwargs.items() if ids_name != "input_ids" or name != "attention_mask"
    }
    repeats = -(-length // ids.shape[1])
    kwargs[ids_name] = ids.repeat(1, repeats)[:, :length]
    if "use_cache" in scene.parameters:
        kwargs["use_cache"] = True
    return kwargs


def _run_prefill(kwargs: dict[str, Any], scene: Scene, blueprint: Blueprint, name: str) -> tuple[Any, Any]:
    """Let the model fill its own cache: really on cpu; on meta by a twin in bfloat16, which all meta kernels take."""
    model = scene.model
    device = next(model.parameters()).device
    on_meta = device.type == "meta"
    runner = _twin(blueprint) if on_meta else model
    try:
        with quiet_and_offline(), torch.no_grad():
            output = runner(**{key: _moved(value, device, runner) for key, value in kwargs.items()})
    except Exception as error:  # whatever the model raises, there is no cache to go on with
        reason = " ".join(str(error).split())
        msg = f"the cache for the decode phase cannot be made: {type(model).__name__} failed on the prefill ({reason})"
        raise ModelInputsError(msg) from error
    cache = getattr(output, name, None)
    if cache is None:
        msg = f"{type(model).__name__} gave no cache after the prefill, so it has no decode phase; leave --phase out"
        raise ModelInputsError(msg)
    if on_meta:
        _recast(cache, _dtype_of(model))
    encoder = getattr(output, "encoder_last_hidden_state", None)
    if encoder is None or "encoder_outputs" not in scene.parameters:
        return cache, None
    return cache, (encoder.to(_dtype_of(model)),)


def _twin(blueprint: Blueprint) -> nn.Module:
    return build(blueprint, device="meta", seed=0).to(torch.bfloat16)


def _moved(value: Any, device: torch.device, runner: nn.Module) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return value.to(device, _dtype_of(runner)) if value.is_floating_point() else value.to(device)


def _dtype_of(model: nn.Module) -> torch.dtype:
    return next(parameter.dtype for parameter in model.parameters() if parameter.is_floating_point())


def _recast(holder: Any, dtype: torch.dtype) -> None:
    """Give every floating-point tensor inside a cache another dtype."""
    if isinstance(holder, list):
        for item in holder:
            _recast(item, dtype)
        return
    places = holder if isinstance(holder, dict) else getattr(holder, "__dict__", {})
    for key, value in list(places.items()):
        if isinstance(value, torch.Tensor) and value.dtype == torch.bfloat16:
            places[key] = value.to(dtype)
        elif value is torch.bfloat16:
            places[key] = dtype
        elif not isinstance(value, torch.Tensor | str | int | float | torch.dtype | torch.device | type(None)):
            _recast(value, dtype)


def _step(before: dict[str, Any], scene: Scene, ids_name: str, cached: int) -> dict[str, Any]:
    """One token, a mask over the cache and it, and its position."""
    ids = before[ids_name]
    draft = scene.draft
    draft.notes.clear()
    step: dict[str, Any] = {ids_name: ids[:, :_NEW_TOKENS].clone()}
    if ids_name == "input_ids" and "attention_mask" in scene.parameters:
        step["attention_mask"] = torch.ones(ids.shape[0], cached + _NEW_TOKENS, dtype=torch.int64)
    elif "attention_mask" in before:
        step["attention_mask"] = before["attention_mask"]
    if "position_ids" in scene.parameters and ids_name == "input_ids":
        step["position_ids"] = torch.full((ids.shape[0], _NEW_TOKENS), cached)
    return step
