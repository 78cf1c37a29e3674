"""Token ids, masks and what goes with them."""

import torch

from torchstone.models.made_up.scene import Scene, number

_DECODER_VOCABULARY = ("vocab_size", "decoder_vocab_size", "tgt_vocab_size")
_FALLBACK_VOCABULARY = 256
_WORD_BOX_SIDE = 10


def add_input_ids(scene: Scene) -> None:
    """Token ids, and a mask that says all of them count."""
    shape = (scene.batch, text_length(scene))
    codebooks = number(scene.config, "num_codebooks", "n_codebooks") if _reads_codebooks(scene) else None
    full = shape if codebooks is None else (*shape, codebooks)
    scene.draft.tokens("input_ids", full, below=vocabulary(scene), avoid=scene.special_tokens())
    add_attention_mask(scene, shape)


def add_attention_mask(scene: Scene, shape: tuple[int, int]) -> None:
    """A mask over tokens: given explicitly, it keeps models from deriving one out of values."""
    if "attention_mask" in scene.parameters:
        scene.draft.ones("attention_mask", shape)


def add_decoder_input_ids(scene: Scene) -> None:
    """Token ids for the decoder of an encoder-decoder model."""
    shape = (scene.batch, decoder_length(scene))
    scene.draft.tokens("decoder_input_ids", shape, below=vocabulary(scene), avoid=scene.special_tokens())


def add_inputs_embeds(scene: Scene) -> None:
    """Embedded tokens for a model that has no embedding of its own."""
    width = number(scene.text, "hidden_size", "d_model", "n_embd") or _FALLBACK_VOCABULARY
    scene.draft.floats("inputs_embeds", (scene.batch, scene.seq_len(), width), "random embeddings")


def add_bbox(scene: Scene) -> None:
    """One box on the page for each token."""
    box = torch.tensor([0, 0, _WORD_BOX_SIDE, _WORD_BOX_SIDE])
    scene.draft.put("bbox", box.expand(scene.batch, text_length(scene), 4).clone(), "the same box for each token")


def text_length(scene: Scene) -> int:
    """Tokens in the encoder or the only model; some models count positions from behind the padding id."""
    length = scene.seq_len()
    limit = scene.position_limit()
    padding = getattr(scene.text, "pad_token_id", None)
    if scene.options.seq_len is None and limit is not None and length == limit and isinstance(padding, int):
        return max(1, length - padding - 1)
    return length


def decoder_length(scene: Scene) -> int:
    """Tokens in the decoder."""
    limit = number(scene.config, "max_target_positions", "max_position_embeddings", "n_positions")
    length = scene.seq_len()
    return length if scene.options.seq_len is not None or limit is None else min(length, limit)


def vocabulary(scene: Scene) -> int:
    """How many tokens there are."""
    for config in (scene.text, scene.config):
        found = number(config, *_DECODER_VOCABULARY)
        if found is not None:
            return found
    return _FALLBACK_VOCABULARY


def _reads_codebooks(scene: Scene) -> bool:
    return scene.config.model_type in {"csm", "higgs_audio_v2", "moshi_depth"}
