from collections.abc import Callable

import torch

from torchstone.models.example_inputs import text
from torchstone.models.example_inputs.context import Scene
from torchstone.models.inputs import InputOptions

SceneOf = Callable[..., Scene]


def test_ids_come_with_a_mask_and_fit_the_vocabulary(scene_of: SceneOf) -> None:
    scene = scene_of("llama", InputOptions(batch_size=2, seq_len=9))
    text.add_input_ids(scene)
    assert scene.draft.kwargs["input_ids"].shape == (2, 9)
    assert int(scene.draft.kwargs["input_ids"].max()) < scene.config.vocab_size
    assert torch.equal(scene.draft.kwargs["attention_mask"], torch.ones(2, 9, dtype=torch.int64))


def test_a_length_at_the_limit_leaves_room_for_positions_after_the_padding_id(scene_of: SceneOf) -> None:
    scene = scene_of("roberta")
    scene.config.max_position_embeddings = 66
    assert text.text_length(scene) == 66 - scene.config.pad_token_id - 1


def test_other_models_use_all_their_positions(scene_of: SceneOf) -> None:
    assert text.text_length(scene_of("clip")) == 77


def test_a_decoder_is_no_longer_than_its_positions(scene_of: SceneOf) -> None:
    scene = scene_of("whisper")
    scene.config.max_target_positions = 20
    text.add_decoder_input_ids(scene)
    assert scene.draft.kwargs["decoder_input_ids"].shape == (1, 20)


def test_a_speaking_decoder_has_a_row_for_each_codebook(scene_of: SceneOf) -> None:
    scene = scene_of("musicgen", InputOptions(seq_len=5))
    text.add_decoder_input_ids(scene)
    assert scene.draft.kwargs["decoder_input_ids"].shape == (scene.config.decoder.num_codebooks, 5)


def test_boxes_on_the_page_are_one_for_each_token(scene_of: SceneOf) -> None:
    scene = scene_of("layoutlm", InputOptions(seq_len=6))
    text.add_bbox(scene)
    assert scene.draft.kwargs["bbox"].shape == (1, 6, 4)
