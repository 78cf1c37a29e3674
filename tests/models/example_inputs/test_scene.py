from collections.abc import Callable

import pytest

from torchstone.models.example_inputs.context import Scene, number, pair, part, parts
from torchstone.models.inputs import InputOptions

SceneOf = Callable[..., Scene]


def test_sizes_that_were_asked_for_win(scene_of: SceneOf) -> None:
    scene = scene_of("clip", InputOptions(batch_size=3, seq_len=7, image_size=96))
    assert (scene.batch, scene.seq_len(), scene.image_sides()) == (3, 7, (96, 96))


def test_sizes_follow_the_configuration_when_nothing_was_asked(scene_of: SceneOf) -> None:
    scene = scene_of("clip")
    side = scene.config.vision_config.image_size
    assert (scene.batch, scene.seq_len(), scene.image_sides()) == (1, 77, (side, side))


def test_special_tokens_come_from_all_parts(scene_of: SceneOf) -> None:
    scene = scene_of("llava")
    assert {scene.config.image_token_index, scene.config.text_config.eos_token_id} <= scene.special_tokens()


def test_parameters_without_default_are_required(scene_of: SceneOf) -> None:
    assert scene_of("blip-2").required == ["pixel_values", "input_ids"]


def test_parts_are_found_at_any_depth(scene_of: SceneOf) -> None:
    config = scene_of("clip").config
    assert [each.model_type for each in parts(config)] == ["clip_text_model", "clip_vision_model"]
    assert part(config, "nothing", "vision_config") is config.vision_config
    assert part(config, "nothing") is None


@pytest.mark.parametrize(
    ("value", "sides"),
    [
        (224, (224, 224)), ((3, 4), (3, 4)), ([3, 5, 6], (5, 6)), ({"height": 2, "width": 3}, (2, 3)), ([8], (8, 8)),
        (None, None), (0, None), (True, None), ([], None), ((None, 3), None),
    ],
)  # fmt: skip
def test_an_image_size_is_read_in_every_form(value: object, sides: tuple[int, int] | None) -> None:
    assert pair(value) == sides


def test_a_number_is_the_first_positive_one(scene_of: SceneOf) -> None:
    config = scene_of("bert").config
    assert number(config, "missing", "is_encoder_decoder", "num_hidden_layers") == 2
    assert number(config, "missing") is None
