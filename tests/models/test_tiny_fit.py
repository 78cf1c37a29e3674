from typing import Any

import pytest
from transformers import BambaConfig, Dinov2Config, GptOssConfig, LlamaConfig, Qwen2VLTextConfig, SwinConfig

from torchstone.models.tiny import is_index_list, reconcile


def test_lists_about_layers_are_cut_to_the_layers_left() -> None:
    values: dict[str, Any] = {"num_hidden_layers": 2, "sizes": list(range(36)), "others": [1, 2, 3]}
    reconcile(values, GptOssConfig(num_hidden_layers=36, layer_types=["full_attention"] * 36))
    assert (values["sizes"], values["others"]) == ([0, 1], [1, 2, 3])


def test_layers_are_added_until_each_kind_occurs() -> None:
    config = BambaConfig(num_hidden_layers=12, attn_layer_indices=[4])
    values: dict[str, Any] = {"num_hidden_layers": 2}
    reconcile(values, config)
    assert values["num_hidden_layers"] == 5


def test_layers_are_as_many_as_the_places_a_list_names() -> None:
    values: dict[str, Any] = {"num_hidden_layers": 2, "global_attn_indexes": [0, 1, 2, 3]}
    reconcile(values, LlamaConfig())
    assert values["num_hidden_layers"] == 4


@pytest.mark.parametrize(("before", "after"), [(32, 4), (8, 2)])
def test_key_value_heads_stay_shared_or_not_as_they_were(before: int, after: int) -> None:
    values: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 64, "head_dim": None}
    reconcile(values, LlamaConfig(num_attention_heads=32, num_key_value_heads=before))
    assert (values["num_key_value_heads"], values["head_dim"]) == (after, 16)


def test_rotary_sections_cover_half_a_head() -> None:
    config = Qwen2VLTextConfig(
        rope_parameters={"rope_type": "default", "rope_theta": 1.0, "mrope_section": [16, 24, 24]}
    )
    values: dict[str, Any] = {"num_attention_heads": 4, "hidden_size": 64}
    reconcile(values, config)
    assert values["rope_parameters"]["mrope_section"] == [2, 3, 3]


def test_a_hierarchical_model_gets_a_width_its_heads_divide() -> None:
    values: dict[str, Any] = {"num_heads": [3, 6, 12, 24], "embed_dim": 64, "window_size": 7}
    reconcile(values, SwinConfig())
    assert (values["embed_dim"], values["window_size"]) == (24, 2)


@pytest.mark.parametrize(
    ("patch", "image", "small"), [(14, 224, 56), (4, 224, 64), (16, 32, 32), (16, [64, 512], [64, 64])]
)
def test_an_image_is_a_few_patches_wide(patch: int, image: Any, small: Any) -> None:
    values: dict[str, Any] = {"patch_size": patch, "image_size": image}
    reconcile(values, LlamaConfig())
    assert values["image_size"] == small


def test_a_backbone_gives_as_many_feature_maps_as_before() -> None:
    values: dict[str, Any] = {"num_hidden_layers": 2, "_out_indices": [9, 10, 11, 12], "_out_features": None}
    reconcile(values, Dinov2Config(out_indices=[9, 10, 11, 12]))
    assert values == {"num_hidden_layers": 4, "out_indices": [1, 2, 3, 4]}


def test_index_lists_are_told_by_their_names() -> None:
    assert [is_index_list(name) for name in ("global_attn_indexes", "_out_indices", "depths")] == [True, False, False]
