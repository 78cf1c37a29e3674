"""Reduced sizes that must fit each other: layers and lists about layers, heads and rotary parts, images and patches."""

from collections.abc import Iterable
from typing import Any

from transformers import PreTrainedConfig

from torchstone.models.layers import COUNTS

WIDTH = 64
VOCABULARY = 512
_SMALL_IMAGE = 64
_LARGE_PATCH = 14
_LAYER_KINDS = ("layer_types", "layers_block_type", "block_types", "attention_types")
_MOST_LAYERS = 8

Values = dict[str, Any]


def fit(values: Values, config: PreTrainedConfig) -> None:
    """Change reduced values in place until they fit; config is the configuration they were reduced from."""
    _fit_index_lists(values)
    _fit_layer_kinds(values, config)
    _cut_per_layer_lists(values, config)
    _fit_heads(values, config)
    _fit_rotary_sections(values, config)
    _fit_stages(values)
    _fit_image(values)
    _fit_outputs(values, config)


def is_index_list(name: str) -> bool:
    """Whether a list names layers by their number."""
    return name.endswith(("_indexes", "_indices", "hook_ids")) and not name.startswith("_")


def _fit_index_lists(values: Values) -> None:
    longest = max(
        (len(value) for name, value in values.items() if isinstance(value, list) and is_index_list(name)), default=0
    )
    for name in COUNTS:
        if isinstance(values.get(name), int) and longest:
            values[name] = max(values[name], longest)


def _fit_layer_kinds(values: Values, config: PreTrainedConfig) -> None:
    """Keep enough layers that each kind of layer occurs: some models cannot do without an attention layer."""
    count = next((name for name in COUNTS if isinstance(values.get(name), int)), None)
    for name in _LAYER_KINDS:
        kinds = getattr(config, name, None)
        if count is None or not isinstance(kinds, list | tuple) or not all(isinstance(kind, str) for kind in kinds):
            continue
        distinct = list(dict.fromkeys(kinds))
        if len(distinct) == 1 or len(kinds) <= values[count]:
            continue
        if name in values and len(kinds) == vars(config).get(count):
            values[name] = distinct if len(distinct) >= values[count] else (distinct * values[count])[: values[count]]
            values[count] = len(values[name])
        else:  # the kinds follow from other fields: take layers until all have occurred
            needed = max(kinds.index(kind) for kind in distinct) + 1
            values[count] = max(values[count], min(needed, _MOST_LAYERS))


def _cut_per_layer_lists(values: Values, config: PreTrainedConfig) -> None:
    """Cut lists that say one thing for each layer to the layers that are left."""
    for count in COUNTS:
        before, after = vars(config).get(count), values.get(count)
        if not isinstance(before, int) or not isinstance(after, int) or after >= before:
            continue
        for name, value in values.items():
            if isinstance(value, list | tuple) and len(value) == before:
                values[name] = value[:after]


def _fit_heads(values: Values, config: PreTrainedConfig) -> None:
    heads = values.get("num_attention_heads")
    if not isinstance(heads, int):
        return
    if "head_dim" in values and values["head_dim"] is None:
        values["head_dim"] = (values.get("hidden_size") or WIDTH) // heads
    if "num_key_value_heads" in values:
        before = vars(config)
        same = before.get("num_attention_heads") == before.get("num_key_value_heads")
        if values["num_key_value_heads"] is None or same:
            values["num_key_value_heads"] = heads
    if "vocab_size" in values and values["vocab_size"] is None:
        values["vocab_size"] = VOCABULARY


def _fit_rotary_sections(values: Values, config: PreTrainedConfig) -> None:
    """Rotary sections for time, height and width together cover half a head."""
    rope = vars(config).get("rope_parameters")
    heads = values.get("num_attention_heads")
    if not isinstance(rope, dict) or not isinstance(heads, int) or "mrope_section" not in rope:
        return
    width = values.get("head_dim") or (values.get("hidden_size") or WIDTH) // heads
    half = int(width * rope.get("partial_rotary_factor", 1.0)) // 2
    sections = rope["mrope_section"]
    small = [max(1, section * half // sum(sections)) for section in sections]
    small[0] += half - sum(small)
    values["rope_parameters"] = {**rope, "mrope_section": small}


def _fit_stages(values: Values) -> None:
    """A hierarchical model starts with a width its first heads divide, and ends a few patches wide."""
    heads = values.get("num_heads")
    if isinstance(heads, list | tuple) and isinstance(values.get("embed_dim"), int):
        values["embed_dim"] = 8 * heads[0]
        if isinstance(values.get("window_size"), int):
            values["window_size"] = 2


def _fit_image(values: Values) -> None:
    patch = _first_int(values.get("patch_size"))
    most = 4 * patch if patch and patch >= _LARGE_PATCH else _SMALL_IMAGE
    image = values.get("image_size")
    if isinstance(image, int):
        values["image_size"] = min(image, most)
    elif isinstance(image, list | tuple):
        values["image_size"] = type(image)(min(side, most) for side in image)


def _fit_outputs(values: Values, config: PreTrainedConfig) -> None:
    """A backbone gives as many feature maps as before, from the layers it still has."""
    values.pop("_out_features", None)
    values.pop("_out_indices", None)
    wanted = vars(config).get("_out_indices")
    if not wanted:
        return
    layers = values.get("num_hidden_layers")
    if isinstance(layers, int) and "depths" not in values:
        values["num_hidden_layers"] = layers = max(layers, len(wanted))
        values["out_indices"] = list(range(layers - len(wanted) + 1, layers + 1))
    else:
        values["out_indices"] = list(wanted)


def _first_int(value: Any) -> int | None:
    if isinstance(value, Iterable):
        value = next(iter(value), None)
    return value if isinstance(value, int) else None
