from collections.abc import Callable

import torch

from torchstone.models.example_inputs import vision
from torchstone.models.example_inputs.context import Scene
from torchstone.models.inputs import InputOptions

SceneOf = Callable[..., Scene]


def test_images_have_the_asked_size_and_the_models_channels(scene_of: SceneOf) -> None:
    scene = scene_of("resnet", InputOptions(batch_size=2, image_size=40))
    vision.add_pixel_values(scene)
    vision.add_pixel_mask(scene)
    assert scene.draft.kwargs["pixel_values"].shape == (2, 3, 40, 40)
    assert scene.draft.kwargs["pixel_mask"].shape == (2, 40, 40)


def test_a_video_model_gets_its_frames(scene_of: SceneOf) -> None:
    scene = scene_of("videomae")
    vision.add_pixel_values(scene)
    side = scene.config.image_size
    assert scene.draft.kwargs["pixel_values"].shape == (1, scene.config.num_frames, 3, side, side)


def test_patches_are_as_many_as_the_grid_says(scene_of: SceneOf) -> None:
    scene = scene_of("qwen2_vl", InputOptions(batch_size=2))
    vision.add_patches(scene, "pixel_values")
    vision.add_grid(scene, "image_grid_thw")
    grid = scene.draft.kwargs["image_grid_thw"]
    assert scene.draft.kwargs["pixel_values"].shape[0] == int(grid.prod(dim=1).sum())


def test_a_matching_model_gets_two_images(scene_of: SceneOf) -> None:
    scene = scene_of("superglue", InputOptions(image_size=32))
    vision.add_pixel_values(scene)
    assert scene.draft.kwargs["pixel_values"].shape == (1, 2, 3, 32, 32)


def test_no_patch_is_masked(scene_of: SceneOf) -> None:
    scene = scene_of("vit", InputOptions(image_size=64))
    vision.add_bool_masked_pos(scene)
    assert scene.draft.kwargs["bool_masked_pos"].dtype is torch.bool
    assert scene.draft.kwargs["bool_masked_pos"].shape == (1, (64 // scene.config.patch_size) ** 2)
