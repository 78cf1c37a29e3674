"""Token ids, masks, embeddings and bounding boxes of text models."""

import torch
from torch import nn

from torchstone.errors import ModelInputsError
from torchstone.models.example_inputs.context import InputContext, nested_config, nested_configs, positive_int

_DECODER_VOCABULARY = ("vocab_size", "decoder_vocab_size", "tgt_vocab_size")
_FALLBACK_VOCABULARY = 256
_COLUMNS_OF_CODEBOOKS = {"csm", "dia_decoder", "kyutai_speech_to_text"}
_TEXT_BESIDE_CODEBOOKS = {"kyutai_speech_to_text"}  # one more column
_ROWS_OF_CODEBOOKS = {"musicgen", "musicgen_melody"}
_DECODERS_OF_CODEBOOKS = {"musicgen_decoder", "musicgen_melody_decoder"}
_TOKENS_ARE_CODEBOOKS = {"moshi_depth"}  # the first of them is text
_INSTRUCTION = 16  # tokens
_WORD_BOX_SIDE = 10


def add_input_ids(context: InputContext) -> None:
    """Token ids, and a mask that says all of them count."""
    shape = (context.batch, text_length(context))
    codebooks = positive_int(context.config, "num_codebooks", "n_codebooks", "num_channels") or 1
    codebooks += context.config.model_type in _TEXT_BESIDE_CODEBOOKS
    full: tuple[int, ...] = shape
    if context.config.model_type in _COLUMNS_OF_CODEBOOKS:
        full = (*shape, codebooks)
    elif context.config.model_type in _DECODERS_OF_CODEBOOKS:
        full = (shape[0] * codebooks, shape[1])
    words = vocabulary(context)
    if context.config.model_type == "dia":  # it reads bytes and speaks in codes
        words = positive_int(nested_config(context.config, "encoder_config"), "vocab_size") or words
    context.builder.tokens("input_ids", full, below=words, avoid=context.special_tokens())
    add_attention_mask(context, shape)


def add_attention_mask(context: InputContext, shape: tuple[int, int]) -> None:
    """A mask over tokens: given explicitly, it keeps models from deriving one out of values."""
    if "attention_mask" in context.parameters:
        context.builder.ones("attention_mask", shape)


def add_decoder_input_ids(context: InputContext) -> None:
    """Token ids for the decoder of an encoder-decoder model, one row for each codebook where it speaks in several."""
    rows = positive_int(context.text, "num_codebooks") if context.config.model_type in _ROWS_OF_CODEBOOKS else None
    shape: tuple[int, ...] = (context.batch * (rows or 1), decoder_length(context))
    if context.config.model_type == "dia":
        shape = (*shape, positive_int(nested_config(context.config, "decoder_config"), "num_channels") or 1)
    context.builder.tokens("decoder_input_ids", shape, below=vocabulary(context), avoid=context.special_tokens())


def add_inputs_embeds(context: InputContext) -> None:
    """Embedded tokens for a model that has no embedding of its own."""
    width = positive_int(context.text, "hidden_size", "d_model", "n_embd") or _FALLBACK_VOCABULARY
    context.builder.floats("inputs_embeds", (context.batch, context.seq_len(), width), "random embeddings")


def add_qformer_input_ids(context: InputContext) -> None:
    """The same instruction, as the query transformer reads it."""
    words = positive_int(nested_config(context.config, "qformer_config"), "vocab_size") or _FALLBACK_VOCABULARY
    shape = (context.batch, min(context.seq_len(), _INSTRUCTION))
    context.builder.tokens("qformer_input_ids", shape, below=words)
    context.builder.ones("qformer_attention_mask", shape)


def add_task_inputs(context: InputContext) -> None:
    """The task in words, as OneFormer reads it."""
    shape = (context.batch, positive_int(context.config, "task_seq_len") or _INSTRUCTION)
    words = positive_int(context.config, "text_encoder_vocab_size") or _FALLBACK_VOCABULARY
    context.builder.tokens("task_inputs", shape, below=words)


def add_query_embeds(context: InputContext) -> None:
    """Learned queries for a query transformer that stands alone."""
    width = positive_int(context.config, "hidden_size") or _FALLBACK_VOCABULARY
    encoded = positive_int(context.config, "encoder_hidden_size") or width
    context.builder.floats("query_embeds", (context.batch, _INSTRUCTION, width), "random queries")
    context.builder.floats("encoder_hidden_states", (context.batch, _INSTRUCTION, encoded), "random image features")


def add_bbox(context: InputContext) -> None:
    """One box on the page for each token."""
    box = torch.tensor([0, 0, _WORD_BOX_SIDE, _WORD_BOX_SIDE])
    if context.config.model_type == "udop":  # it reads parts of the page's sides
        box = torch.tensor([0.0, 0.0, 0.5, 0.5])
    context.builder.add(
        "bbox", box.expand(context.batch, text_length(context), 4).clone(), "the same box for each token"
    )


def text_length(context: InputContext) -> int:
    """Tokens in the encoder or the only model."""
    length = context.seq_len()
    most = most_tokens(context)
    if most is not None:
        if context.options.seq_len is not None and length > most:
            msg = f"{context.config.model_type} has {most} codebooks, one for each token; give --seq-len {most} or less"
            raise ModelInputsError(msg)
        return min(length, most)
    limit = context.position_limit()
    if context.options.seq_len is not None or limit is None:
        return length
    return max(1, min(length, limit - _reserved_positions(context)))


def most_tokens(context: InputContext) -> int | None:
    """The tokens that a model has weights for, where each token has its own."""
    return int(context.config.num_codebooks) if context.config.model_type in _TOKENS_ARE_CODEBOOKS else None


def add_last_hidden_state(context: InputContext) -> None:
    """What the main decoder made of one token, from which a depth decoder predicts the token's codebooks."""
    shape = (context.batch, 1, positive_int(context.config, "input_size") or _FALLBACK_VOCABULARY)
    context.builder.floats("last_hidden_state", shape, "random state of the main decoder after one token")


def _reserved_positions(context: InputContext) -> int:
    """RoBERTa-like models count positions from the one after the padding id."""
    for name, module in context.model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding) and module.padding_idx is not None:
            return module.padding_idx + 1
    return 0


def decoder_length(context: InputContext) -> int:
    """Tokens in the decoder."""
    limit = positive_int(context.config, "max_target_positions", "max_position_embeddings", "n_positions")
    length = context.seq_len()
    return length if context.options.seq_len is not None or limit is None else min(length, limit)


def vocabulary(context: InputContext) -> int:
    """The number of tokens in the vocabulary."""
    for config in (context.text, context.config, *nested_configs(context.config)):
        found = positive_int(config, *_DECODER_VOCABULARY)
        if found is not None:
            sounds = context.config.model_type in _TOKENS_ARE_CODEBOOKS
            return min(found, context.config.audio_vocab_size) if sounds else found
    return _FALLBACK_VOCABULARY
