from collections.abc import Callable

import torch

from torchstone.models.example_inputs.context import InputContext
from torchstone.models.example_inputs.vision import add_images_and_text, image_token
from torchstone.models.inputs import InputOptions

ContextOf = Callable[..., InputContext]


def test_the_text_has_as_many_places_as_the_image_has_features(context_of: ContextOf) -> None:
    context = context_of("llava", InputOptions(batch_size=2, seq_len=5))
    add_images_and_text(context)
    vision = context.config.vision_config
    features = (vision.image_size // vision.patch_size) ** 2
    places = (context.builder.kwargs["input_ids"] == image_token(context)).sum(dim=1)
    assert places.tolist() == [features, features]
    assert context.builder.kwargs["input_ids"].shape == (2, features + 5)
    assert any(f"{features} of {features + 5} places" in note for note in context.builder.notes)


def test_a_grid_of_patches_is_merged_before_it_is_counted(context_of: ContextOf) -> None:
    context = context_of("qwen2_vl")
    add_images_and_text(context)
    merged = int(context.builder.kwargs["image_grid_thw"].prod()) // context.config.vision_config.spatial_merge_size**2
    assert int((context.builder.kwargs["input_ids"] == image_token(context)).sum()) == merged
    assert torch.equal(
        context.builder.kwargs["mm_token_type_ids"] == 1, context.builder.kwargs["input_ids"] == image_token(context)
    )


def test_a_model_without_places_for_images_is_left_alone(context_of: ContextOf) -> None:
    context = context_of("clip")
    add_images_and_text(context)
    assert context.builder.kwargs == {}


def test_text_alone_is_said_where_the_features_cannot_be_counted(context_of: ContextOf) -> None:
    context = context_of("llava")
    object.__setattr__(context.model, "get_image_features", lambda **_given: "no tensor")
    add_images_and_text(context)
    assert context.builder.kwargs == {}
    assert context.builder.notes == ["pixel_values: omitted, the model is called with text only"]
