from collections.abc import Callable

import torch

from torchstone.models.example_inputs import text
from torchstone.models.example_inputs.context import InputContext
from torchstone.models.inputs import InputOptions

ContextOf = Callable[..., InputContext]


def test_ids_come_with_a_mask_and_fit_the_vocabulary(context_of: ContextOf) -> None:
    context = context_of("llama", InputOptions(batch_size=2, seq_len=9))
    text.add_input_ids(context)
    assert context.builder.kwargs["input_ids"].shape == (2, 9)
    assert int(context.builder.kwargs["input_ids"].max()) < context.config.vocab_size
    assert torch.equal(context.builder.kwargs["attention_mask"], torch.ones(2, 9, dtype=torch.int64))


def test_a_length_at_the_limit_leaves_room_for_positions_after_the_padding_id(context_of: ContextOf) -> None:
    context = context_of("roberta")
    context.config.max_position_embeddings = 66
    assert text.text_length(context) == 66 - context.config.pad_token_id - 1


def test_other_models_use_all_their_positions(context_of: ContextOf) -> None:
    assert text.text_length(context_of("clip")) == 77


def test_a_decoder_is_no_longer_than_its_positions(context_of: ContextOf) -> None:
    context = context_of("whisper")
    context.config.max_target_positions = 20
    text.add_decoder_input_ids(context)
    assert context.builder.kwargs["decoder_input_ids"].shape == (1, 20)


def test_a_speaking_decoder_has_a_row_for_each_codebook(context_of: ContextOf) -> None:
    context = context_of("musicgen", InputOptions(seq_len=5))
    text.add_decoder_input_ids(context)
    assert context.builder.kwargs["decoder_input_ids"].shape == (context.config.decoder.num_codebooks, 5)


def test_boxes_on_the_page_are_one_for_each_token(context_of: ContextOf) -> None:
    context = context_of("layoutlm", InputOptions(seq_len=6))
    text.add_bbox(context)
    assert context.builder.kwargs["bbox"].shape == (1, 6, 4)
