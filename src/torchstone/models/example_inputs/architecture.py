"""Generate inputs for a transformers model from the signature of its forward and its configuration."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from torch import nn

from torchstone.errors import ModelInputsError
from torchstone.models.example_inputs import parts, signals, text, vision
from torchstone.models.example_inputs.context import InputBuilder, InputContext, nested_config
from torchstone.models.example_inputs.vision import add_images_and_text
from torchstone.models.inputs import InputOptions, Inputs
from torchstone.models.pretrained import Blueprint
from torchstone.record.trace import NOT_APPLIED

ORIGIN = "generated from the model's configuration and signature"
PREFILL = "prefill"
_BUILDERS: Mapping[str, Callable[[InputContext], None]] = {
    "input_ids": text.add_input_ids,
    "decoder_input_ids": text.add_decoder_input_ids,
    "inputs_embeds": text.add_inputs_embeds,
    "last_hidden_state": text.add_last_hidden_state,
    "qformer_input_ids": text.add_qformer_input_ids,
    "query_embeds": text.add_query_embeds,
    "task_inputs": text.add_task_inputs,
    "bbox": text.add_bbox,
    "pixel_values": vision.add_pixel_values,
    "spatial_shapes": vision.add_spatial_shapes,
    "pixel_mask": vision.add_pixel_mask,
    "pixel_values_videos": vision.add_pixel_values_videos,
    "hidden_states": signals.add_hidden_states,
    "image": partial(vision.add_pixel_values, name="image"),
    "image_grid_thw": partial(vision.add_grid, name="image_grid_thw"),
    "grid_thw": partial(vision.add_grid, name="grid_thw"),
    "merge_sizes": vision.add_merge_sizes,
    "visual_feats": vision.add_visual_feats,
    "bool_masked_pos": vision.add_bool_masked_pos,
    "input_features": signals.add_input_features,
    "input_features_mask": partial(signals.add_features_mask, name="input_features_mask"),
    "feature_attention_mask": partial(signals.add_features_mask, name="feature_attention_mask"),
    "audio_mel": signals.add_audio_mel,
    "input_values": signals.add_input_values,
    "spectrogram": signals.add_spectrogram,
    "past_values": signals.add_past_values,
    "past_time_features": signals.add_past_time_features,
    "past_observed_mask": signals.add_past_observed_mask,
    "inputs": signals.add_perceiver_inputs,
    "input_points": signals.add_input_points,
    "flattened_patches": signals.add_flattened_patches,
    "states": signals.add_states,
    "latents": parts.add_latents,
    "context": parts.add_context,
    "mask": parts.add_no_mask,
    "mel_spectrogram": parts.add_mel_spectrogram,
    "patch_embeds": parts.add_patch_embeds,
    "vision_features": parts.add_vision_features,
    "text_features": parts.add_text_features,
    "decoder_queries": parts.add_decoder_queries,
    "encoder_hidden_states": parts.add_encoder_hidden_states,
    "box_embeddings": parts.add_boxes,
    "target_sizes": vision.add_target_sizes,
    "image_embeds_position_mask": vision.add_image_places,
    "image_attention_mask": vision.add_image_attention_mask,
}
_COMPANIONS = (
    ("input_ids", "visual_feats"),
    ("pixel_values", "spatial_shapes"),
    ("input_features", "input_features_mask"),
    ("input_features", "feature_attention_mask"),
    ("input_ids", "bbox"),
    ("pixel_values", "pixel_mask"),
    ("pixel_values", "input_points"),
    ("pixel_values", "target_sizes"),
    ("pixel_values", "image_embeds_position_mask"),
)
_ENCODERS = ("pixel_values", "input_features")
_PLACES = ("image_token_id", "image_token_index", "audio_token_id", "audio_token_index", "video_token_id")
_MAIN = {
    "dia_decoder": ("input_ids", "encoder_hidden_states"),
    "got_ocr2_vision": ("pixel_values",),
    "idefics": ("input_ids", "pixel_values", "image_attention_mask"),
    "kosmos-2": ("pixel_values", "input_ids"),
    "kosmos_2_5_vision_model": ("flattened_patches",),
    "moshi_depth": ("input_ids", "last_hidden_state"),
    "qwen3_omni_moe_talker_code_predictor": ("inputs_embeds",),
    "qwen3_omni_moe_talker_text": ("inputs_embeds",),
    "sam3_lite_text_text_model": ("input_ids",),
    "speech-encoder-decoder": ("input_values",),
}
_NEED_AN_IMAGE = {"vilt", "tvp"}  # though every parameter of their forward has a default


def inputs_for_architecture(model: nn.Module, blueprint: Blueprint, options: InputOptions) -> Inputs:
    """Generate the arguments of one forward call."""
    context = InputContext(model=model, config=blueprint.config, options=options, builder=InputBuilder(options.seed))
    wanted = _wanted(context)
    if "input_ids" in wanted and "pixel_values" in context.parameters:
        add_images_and_text(context)
    for name in wanted:
        if name not in context.builder.kwargs:
            _BUILDERS[name](context)
    missing = [name for name in context.required if name not in context.builder.kwargs]
    if missing:
        msg = (
            f"inputs for {type(model).__name__} cannot be generated: its forward needs {', '.join(missing)}; "
            "pass them with --inputs file.py::get_inputs"
        )
        raise ModelInputsError(msg)
    prefill = Inputs(
        kwargs=dict(context.builder.kwargs),
        origin=ORIGIN,
        notes=(*blueprint.notes, *context.builder.notes),
        phase=PREFILL if "past_key_values" in context.parameters or "cache_params" in context.parameters else "",
    )
    step = prefill
    if options.phase == "decode":
        from torchstone.models.example_inputs.decode import decode_inputs

        step = decode_inputs(prefill, context, blueprint)
    return replace(step, notes=(*step.notes, *_without_effect(step, context)))


def _without_effect(step: Inputs, context: InputContext) -> list[str]:
    """A note for each size that was asked for and that no input has."""
    used, reason = context.builder.used, "no input has such a size"
    if context.options.phase == "decode" and not {"decoder_input_ids", "image_attention_mask"} & step.kwargs.keys():
        used, reason = set(), "a step with a cache reads one token; --cache-len gives those before it"
    asked = [name for name in ("seq_len", "image_size") if getattr(context.options, name) is not None]
    return [f"{name}{NOT_APPLIED}{reason}" for name in asked if name not in used]


def _wanted(context: InputContext) -> list[str]:
    """The parameters to fill, in an order in which later builders can read earlier tensors."""
    chosen = {*context.required, *_MAIN.get(context.config.model_type, _main_names(context.model))}
    if context.config.is_encoder_decoder and "decoder_input_ids" in context.parameters:
        chosen.add("decoder_input_ids")
    if context.config.model_type in _NEED_AN_IMAGE:
        chosen.add("pixel_values")
    if (
        "pixel_values" in chosen
        and nested_config(context.config, "text_config") is not None
        and "input_ids" in context.parameters
    ):
        chosen.add("input_ids")
    if "input_ids" in chosen and _is_dual(context):
        chosen.update(name for name in _ENCODERS if name in context.parameters)
    chosen.update(name for first, name in _COMPANIONS if first in chosen and name in context.parameters)
    return [name for name in _BUILDERS if name in chosen and name in context.parameters]


def _is_dual(context: InputContext) -> bool:
    """Whether a model has an encoder for each kind of input, as CLIP has, and no image placeholders in its text."""
    has_places = any(isinstance(getattr(context.config, name, None), int) for name in _PLACES)
    return not has_places and nested_config(context.config, "text_config", "text_encoder_config") is not None


def _main_names(model: nn.Module) -> tuple[str, ...]:
    name = getattr(model, "main_input_name", "input_ids")
    return tuple(name) if isinstance(name, list | tuple) else (name,)
