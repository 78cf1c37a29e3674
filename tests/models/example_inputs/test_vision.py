from collections.abc import Callable

import torch

from torchstone.models.example_inputs import vision
from torchstone.models.example_inputs.context import InputContext
from torchstone.models.inputs import InputOptions

ContextOf = Callable[..., InputContext]


def test_images_have_the_asked_size_and_the_models_channels(context_of: ContextOf) -> None:
    context = context_of("resnet", InputOptions(batch_size=2, image_size=40))
    vision.add_pixel_values(context)
    vision.add_pixel_mask(context)
    assert context.builder.kwargs["pixel_values"].shape == (2, 3, 40, 40)
    assert context.builder.kwargs["pixel_mask"].shape == (2, 40, 40)


def test_a_video_model_gets_its_frames(context_of: ContextOf) -> None:
    context = context_of("videomae")
    vision.add_pixel_values(context)
    side = context.config.image_size
    assert context.builder.kwargs["pixel_values"].shape == (1, context.config.num_frames, 3, side, side)


def test_patches_are_as_many_as_the_grid_says(context_of: ContextOf) -> None:
    context = context_of("qwen2_vl", InputOptions(batch_size=2))
    vision.add_patches(context, "pixel_values")
    vision.add_grid(context, "image_grid_thw")
    grid = context.builder.kwargs["image_grid_thw"]
    assert context.builder.kwargs["pixel_values"].shape[0] == int(grid.prod(dim=1).sum())


def test_a_matching_model_gets_two_images(context_of: ContextOf) -> None:
    context = context_of("superglue", InputOptions(image_size=32))
    vision.add_pixel_values(context)
    assert context.builder.kwargs["pixel_values"].shape == (1, 2, 3, 32, 32)


def test_no_patch_is_masked(context_of: ContextOf) -> None:
    context = context_of("vit", InputOptions(image_size=64))
    vision.add_bool_masked_pos(context)
    assert context.builder.kwargs["bool_masked_pos"].dtype is torch.bool
    assert context.builder.kwargs["bool_masked_pos"].shape == (1, (64 // context.config.patch_size) ** 2)
