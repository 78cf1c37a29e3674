from collections.abc import Callable

import pytest

from torchstone.models.example_inputs.context import (
    InputContext,
    height_width,
    nested_config,
    nested_configs,
    positive_int,
)
from torchstone.models.inputs import InputOptions

ContextOf = Callable[..., InputContext]


def test_sizes_that_were_asked_for_win(context_of: ContextOf) -> None:
    context = context_of("clip", InputOptions(batch_size=3, seq_len=7, image_size=96))
    assert (context.batch, context.seq_len(), context.image_sides()) == (3, 7, (96, 96))


def test_sizes_follow_the_configuration_when_nothing_was_asked(context_of: ContextOf) -> None:
    context = context_of("clip")
    side = context.config.vision_config.image_size
    assert (context.batch, context.seq_len(), context.image_sides()) == (1, 77, (side, side))


def test_special_tokens_come_from_all_parts(context_of: ContextOf) -> None:
    context = context_of("llava")
    assert {context.config.image_token_index, context.config.text_config.eos_token_id} <= context.special_tokens()


def test_parameters_without_default_are_required(context_of: ContextOf) -> None:
    assert context_of("blip-2").required == ["pixel_values", "input_ids"]


def test_parts_are_found_at_any_depth(context_of: ContextOf) -> None:
    config = context_of("clip").config
    assert [each.model_type for each in nested_configs(config)] == ["clip_text_model", "clip_vision_model"]
    assert nested_config(config, "nothing", "vision_config") is config.vision_config
    assert nested_config(config, "nothing") is None


@pytest.mark.parametrize(
    ("value", "sides"),
    [
        (224, (224, 224)), ((3, 4), (3, 4)), ([3, 5, 6], (5, 6)), ({"height": 2, "width": 3}, (2, 3)), ([8], (8, 8)),
        (None, None), (0, None), (True, None), ([], None), ((None, 3), None),
    ],
)  # fmt: skip
def test_an_image_size_is_read_in_every_form(value: object, sides: tuple[int, int] | None) -> None:
    assert height_width(value) == sides


def test_a_number_is_the_first_positive_one(context_of: ContextOf) -> None:
    config = context_of("bert").config
    assert positive_int(config, "missing", "is_encoder_decoder", "num_hidden_layers") == 2
    assert positive_int(config, "missing") is None
