"""Token ids, masks and what goes with them."""

import torch
from torch import nn

from torchstone.models.example_inputs.context import Scene, number, part, parts

_DECODER_VOCABULARY = ("vocab_size", "decoder_vocab_size", "tgt_vocab_size")
_FALLBACK_VOCABULARY = 256
_COLUMNS_OF_CODEBOOKS = {"csm", "moshi_depth"}
_ROWS_OF_CODEBOOKS = {"musicgen", "musicgen_melody"}
_DECODERS_OF_CODEBOOKS = {"musicgen_decoder", "musicgen_melody_decoder"}
_INSTRUCTION = 16  # tokens
_WORD_BOX_SIDE = 10


def add_input_ids(scene: Scene) -> None:
    """Token ids, and a mask that says all of them count."""
    shape = (scene.batch, text_length(scene))
    codebooks = number(scene.config, "num_codebooks", "n_codebooks") or 1
    full: tuple[int, ...] = shape
    if scene.config.model_type in _COLUMNS_OF_CODEBOOKS:
        full = (*shape, codebooks)
    elif scene.config.model_type in _DECODERS_OF_CODEBOOKS:
        full = (shape[0] * codebooks, shape[1])
    scene.draft.tokens("input_ids", full, below=vocabulary(scene), avoid=scene.special_tokens())
    add_attention_mask(scene, shape)


def add_attention_mask(scene: Scene, shape: tuple[int, int]) -> None:
    """A mask over tokens: given explicitly, it keeps models from deriving one out of values."""
    if "attention_mask" in scene.parameters:
        scene.draft.ones("attention_mask", shape)


def add_decoder_input_ids(scene: Scene) -> None:
    """Token ids for the decoder of an encoder-decoder model, one row for each codebook where it speaks in several."""
    rows = number(scene.text, "num_codebooks") if scene.config.model_type in _ROWS_OF_CODEBOOKS else None
    shape = (scene.batch * (rows or 1), decoder_length(scene))
    scene.draft.tokens("decoder_input_ids", shape, below=vocabulary(scene), avoid=scene.special_tokens())


def add_inputs_embeds(scene: Scene) -> None:
    """Embedded tokens for a model that has no embedding of its own."""
    width = number(scene.text, "hidden_size", "d_model", "n_embd") or _FALLBACK_VOCABULARY
    scene.draft.floats("inputs_embeds", (scene.batch, scene.seq_len(), width), "random embeddings")


def add_qformer_input_ids(scene: Scene) -> None:
    """The same instruction, as the query transformer reads it."""
    words = number(part(scene.config, "qformer_config"), "vocab_size") or _FALLBACK_VOCABULARY
    shape = (scene.batch, min(scene.seq_len(), _INSTRUCTION))
    scene.draft.tokens("qformer_input_ids", shape, below=words)
    scene.draft.ones("qformer_attention_mask", shape)


def add_task_inputs(scene: Scene) -> None:
    """The task in words, as OneFormer reads it."""
    shape = (scene.batch, number(scene.config, "task_seq_len") or _INSTRUCTION)
    words = number(scene.config, "text_encoder_vocab_size") or _FALLBACK_VOCABULARY
    scene.draft.tokens("task_inputs", shape, below=words)


def add_query_embeds(scene: Scene) -> None:
    """Learned queries for a query transformer that stands alone."""
    width = number(scene.config, "hidden_size") or _FALLBACK_VOCABULARY
    encoded = number(scene.config, "encoder_hidden_size") or width
    scene.draft.floats("query_embeds", (scene.batch, _INSTRUCTION, width), "random queries")
    scene.draft.floats("encoder_hidden_states", (scene.batch, _INSTRUCTION, encoded), "random image features")


def add_bbox(scene: Scene) -> None:
    """One box on the page for each token."""
    box = torch.tensor([0, 0, _WORD_BOX_SIDE, _WORD_BOX_SIDE])
    if scene.config.model_type == "udop":  # it reads parts of the page's sides
        box = torch.tensor([0.0, 0.0, 0.5, 0.5])
    scene.draft.put("bbox", box.expand(scene.batch, text_length(scene), 4).clone(), "the same box for each token")


def text_length(scene: Scene) -> int:
    """Tokens in the encoder or the only model."""
    length = scene.seq_len()
    limit = scene.position_limit()
    if scene.options.seq_len is not None or limit is None:
        return length
    return max(1, min(length, limit - _reserved_positions(scene)))


def _reserved_positions(scene: Scene) -> int:
    """Models in RoBERTa's manner count positions from behind the padding id."""
    for name, module in scene.model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding) and module.padding_idx is not None:
            return module.padding_idx + 1
    return 0


def decoder_length(scene: Scene) -> int:
    """Tokens in the decoder."""
    limit = number(scene.config, "max_target_positions", "max_position_embeddings", "n_positions")
    length = scene.seq_len()
    return length if scene.options.seq_len is not None or limit is None else min(length, limit)


def vocabulary(scene: Scene) -> int:
    """How many tokens there are."""
    for config in (scene.text, scene.config, *parts(scene.config)):
        found = number(config, *_DECODER_VOCABULARY)
        if found is not None:
            return found
    return _FALLBACK_VOCABULARY
