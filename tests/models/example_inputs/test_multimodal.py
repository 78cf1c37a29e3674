from collections.abc import Callable

import torch

from torchstone.models.example_inputs.context import Scene
from torchstone.models.example_inputs.vision import add_images_and_text, image_token
from torchstone.models.inputs import InputOptions

SceneOf = Callable[..., Scene]


def test_the_text_has_as_many_places_as_the_image_has_features(scene_of: SceneOf) -> None:
    scene = scene_of("llava", InputOptions(batch_size=2, seq_len=5))
    add_images_and_text(scene)
    vision = scene.config.vision_config
    features = (vision.image_size // vision.patch_size) ** 2
    places = (scene.draft.kwargs["input_ids"] == image_token(scene)).sum(dim=1)
    assert places.tolist() == [features, features]
    assert scene.draft.kwargs["input_ids"].shape == (2, features + 5)
    assert any(f"{features} of {features + 5} places" in note for note in scene.draft.notes)


def test_a_grid_of_patches_is_merged_before_it_is_counted(scene_of: SceneOf) -> None:
    scene = scene_of("qwen2_vl")
    add_images_and_text(scene)
    merged = int(scene.draft.kwargs["image_grid_thw"].prod()) // scene.config.vision_config.spatial_merge_size**2
    assert int((scene.draft.kwargs["input_ids"] == image_token(scene)).sum()) == merged
    assert torch.equal(
        scene.draft.kwargs["mm_token_type_ids"] == 1, scene.draft.kwargs["input_ids"] == image_token(scene)
    )


def test_a_model_without_places_for_images_is_left_alone(scene_of: SceneOf) -> None:
    scene = scene_of("clip")
    add_images_and_text(scene)
    assert scene.draft.kwargs == {}


def test_text_alone_is_said_where_the_features_cannot_be_counted(scene_of: SceneOf) -> None:
    scene = scene_of("llava")
    object.__setattr__(scene.model, "get_image_features", lambda **_given: "no tensor")
    add_images_and_text(scene)
    assert scene.draft.kwargs == {}
    assert scene.draft.notes == ["pixel_values: left out, the model is called with text only"]
