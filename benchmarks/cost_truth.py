"""FLOPs, weights and caches of language models against closed forms that were written by hand.

`python benchmarks/cost_truth.py [MODELS...]`: each model of the zoo is captured at its full size without weights, as a
prompt of 100 tokens and as one token with 5,000 in the cache, for two sequences. The closed forms below read nothing
but sizes: no code of torchstone or transformers takes part in them. Attention counts every score of the square, as the
convention `causal full` says; a router is a matmul. A layer with a sliding window keeps one token less than the window:
the new one completes it. `cache_truth.py` compares caches of every kind.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from torchstone.capture import capture
from torchstone.cost import price
from torchstone.cost.formats import parse_format, with_formats
from torchstone.cost.storages import find_storages
from torchstone.models import load
from torchstone.models.inputs import InputOptions
from torchstone.record.cost import Formats
from torchstone.record.trace import Trace

BATCH, PROMPT, CACHE = 2, 100, 5000
_FORMATS = "formats of the cache"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The sizes that a closed form needs."""

    layers: int
    hidden: int
    heads: int
    head: int
    kv_heads: int
    inner: int  # of the MLP, or of one expert
    vocabulary: int
    bytes: int = 2
    matrices: int = 3  # of the MLP: gate, up, down; or up, down
    tied: bool = False
    windows: tuple[int | None, ...] = (None,)  # of the layers in turn; None: the whole sequence
    experts: int = 0
    chosen: int = 0
    shared: int = 0  # inner width of an expert that is always used
    extra: int = 0  # parameters outside matrices and embeddings: norms, biases, positions


def window(sizes: Sizes, layer: int, tokens: int) -> int:
    """The tokens that a layer attends to."""
    limit = sizes.windows[layer % len(sizes.windows)]
    return tokens if limit is None else min(tokens, limit)


def projections(sizes: Sizes) -> int:
    """Parameters of the matrices that every token of a layer passes."""
    attention = 2 * sizes.hidden * sizes.heads * sizes.head + 2 * sizes.hidden * sizes.kv_heads * sizes.head
    used = sizes.chosen if sizes.experts else 1
    mlp = sizes.matrices * sizes.hidden * sizes.inner * used
    shared = 3 * sizes.hidden * sizes.shared + sizes.hidden if sizes.shared else 0
    return attention + mlp + sizes.hidden * sizes.experts + shared


def flops(sizes: Sizes, tokens: int, cached: int) -> int:
    """Matmul FLOPs of one pass: two for a multiply-add."""
    rows = BATCH * tokens
    linear = 2 * rows * (sizes.layers * projections(sizes) + sizes.hidden * sizes.vocabulary)
    seen = sum(window(sizes, layer, cached + tokens) for layer in range(sizes.layers))
    return linear + 4 * rows * sizes.heads * sizes.head * seen


def weight_bytes(sizes: Sizes) -> int:
    """Bytes of all parameters."""
    attention = 2 * sizes.hidden * sizes.heads * sizes.head + 2 * sizes.hidden * sizes.kv_heads * sizes.head
    mlp = sizes.matrices * sizes.hidden * sizes.inner * max(sizes.experts, 1) + sizes.hidden * sizes.experts
    shared = 3 * sizes.hidden * sizes.shared + sizes.hidden if sizes.shared else 0
    tables = sizes.vocabulary * sizes.hidden * (1 if sizes.tied else 2)
    return sizes.bytes * (sizes.layers * (attention + mlp + shared) + tables + sizes.extra)


def cache_bytes(sizes: Sizes, tokens: int) -> int:
    """Bytes of keys and values after this many tokens, as a server keeps them."""
    seen = sum(window(sizes, layer, tokens + 1) - 1 for layer in range(sizes.layers))
    return 2 * BATCH * sizes.kv_heads * sizes.head * sizes.bytes * seen


def llama(layers: int, hidden: int, heads: int, kv_heads: int, inner: int, vocabulary: int, **more: object) -> Sizes:
    """A decoder with RMS norms (two in a layer and one at the end), rotary positions and a gated MLP."""
    head = int(more.pop("head", hidden // heads))  # type: ignore[call-overload]
    norms = int(more.pop("norms", 2))  # type: ignore[call-overload]
    extra = int(more.pop("biases", 0)) + hidden * (norms * layers + 1)  # type: ignore[call-overload]
    return Sizes(layers=layers, hidden=hidden, heads=heads, head=head, kv_heads=kv_heads, inner=inner,
                 vocabulary=vocabulary, extra=extra, **more)  # type: ignore[arg-type]  # fmt: skip


def gpt2(layers: int, hidden: int, heads: int, vocabulary: int, positions: int) -> Sizes:
    """A decoder with layer norms, learned positions, biases everywhere and a tied head."""
    biases = layers * (3 * hidden + hidden + 4 * hidden + hidden)
    norms = (2 * layers + 1) * 2 * hidden
    return Sizes(layers=layers, hidden=hidden, heads=heads, head=hidden // heads, kv_heads=heads, inner=4 * hidden,
                 vocabulary=vocabulary, matrices=2, tied=True, bytes=4,
                 extra=biases + norms + positions * hidden)  # fmt: skip


GEMMA_3 = (512, 512, 512, 512, 512, None)
MODELS: dict[str, Callable[[], Sizes]] = {
    "openai-community/gpt2": lambda: gpt2(12, 768, 12, 50257, 1024),
    "openai-community/gpt2-xl": lambda: gpt2(48, 1600, 25, 50257, 1024),
    "meta-llama/Llama-2-7b-hf": lambda: llama(32, 4096, 32, 32, 11008, 32000),
    "meta-llama/Llama-2-70b-hf": lambda: llama(80, 8192, 64, 8, 28672, 32000),
    "meta-llama/Llama-3.1-8B": lambda: llama(32, 4096, 32, 8, 14336, 128256),
    "meta-llama/Llama-3.1-405B": lambda: llama(126, 16384, 128, 8, 53248, 128256),
    "meta-llama/Llama-3.2-1B": lambda: llama(16, 2048, 32, 8, 8192, 128256, tied=True),
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0": lambda: llama(22, 2048, 32, 4, 5632, 32000),
    "HuggingFaceTB/SmolLM2-135M": lambda: llama(30, 576, 9, 3, 1536, 49152, tied=True),
    "mistralai/Mistral-7B-v0.1": lambda: llama(32, 4096, 32, 8, 14336, 32000, windows=(4096,)),
    "mistralai/Mistral-Nemo-Base-2407": lambda: llama(40, 5120, 32, 8, 14336, 131072, head=128),
    "Qwen/Qwen2.5-7B": lambda: llama(28, 3584, 28, 4, 18944, 152064, biases=28 * (3584 + 2 * 512)),
    "Qwen/Qwen2.5-0.5B": lambda: llama(24, 896, 14, 2, 4864, 151936, tied=True, biases=24 * (896 + 2 * 128)),
    "Qwen/Qwen3-8B": lambda: llama(36, 4096, 32, 8, 12288, 151936, head=128, biases=36 * 2 * 128),
    "ibm-granite/granite-3.0-8b-base": lambda: llama(40, 4096, 32, 8, 12800, 49155, tied=True),
    "allenai/OLMo-2-1124-7B": lambda: llama(32, 4096, 32, 32, 11008, 100352, bytes=4, biases=32 * 2 * 4096),
    "microsoft/Phi-3-mini-4k-instruct": lambda: llama(32, 3072, 32, 32, 8192, 32064, windows=(2047,)),
    "google/gemma-2-2b": lambda: llama(26, 2304, 8, 4, 9216, 256000, head=256, tied=True, bytes=4, norms=4,
                                       windows=(4096, None)),
    "google/gemma-3-1b-pt": lambda: llama(26, 1152, 4, 1, 6912, 262144, head=256, tied=True, norms=4,
                                          biases=26 * 2 * 256, windows=GEMMA_3),
    "mistralai/Mixtral-8x7B-v0.1": lambda: llama(32, 4096, 32, 8, 14336, 32000, experts=8, chosen=2),
    "Qwen/Qwen3-30B-A3B": lambda: llama(48, 2048, 32, 4, 768, 151936, head=128, experts=128, chosen=8,
                                        biases=48 * 2 * 128),
    "Qwen/Qwen1.5-MoE-A2.7B": lambda: llama(24, 2048, 16, 16, 1408, 151936, experts=60, chosen=4, shared=5632,
                                            biases=24 * 3 * 2048),
    "allenai/OLMoE-1B-7B-0924": lambda: llama(16, 2048, 16, 16, 1024, 50304, experts=64, chosen=8,
                                              biases=16 * 2 * 2048),
}  # fmt: skip


# Formats of keys and values: bytes of 128 numbers with their scales. A head of 128 is one group of int8 and int4, and
# four blocks of MX; a tile of 32 x 32 shares an exponent in each 16 numbers.
KV_FORMATS = {"fp8": 128, "int8_g128": 128 + 2, "int4_g128": 64 + 2, "mxfp8": 128 + 4, "mxfp4": 64 + 4}


def compare_formats(name: str = "meta-llama/Llama-3.1-8B") -> list[tuple[str, int, int]]:
    """The cache of one model, 32 layers of 8 heads of 128, in each format; and in tiles, which are filled up to 32."""
    model, inputs = load(name, options=InputOptions(batch_size=BATCH, phase="decode", cache_len=CACHE))
    trace = capture(model, inputs)
    found = []
    for kind, each in (*KV_FORMATS.items(), ("bfloat8_b", None)):
        priced = with_formats(trace, Formats(kv_cache=parse_format(kind)))
        rows = BATCH * 32 * 2 * 8
        tiles = -(-CACHE // 32) * (128 // 32)
        truth = rows * CACHE * each if each is not None else rows * tiles * (32 * 32 + 64)
        found.append((kind, _cache(priced), truth))
    return found


def main() -> None:
    """Compare every model and print one line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*")
    chosen = parser.parse_args().models or [*MODELS, _FORMATS]
    wrong = 0
    for name in chosen:
        found = _compared(name)
        wrong += sum(ours != truth for _, ours, truth in found)
        parts = [f"{what} {'=' if ours == truth else f'{ours:,} != {truth:,}'}" for what, ours, truth in found]
        print(f"{name:40} {', '.join(parts)}", flush=True)
    models = sum(name != _FORMATS for name in chosen)
    print(f"{models} models, {wrong} quantities differ from their closed form")


def _compared(name: str) -> list[tuple[str, int, int]]:
    if name == _FORMATS:
        return compare_formats()
    return compare(name, MODELS[name]())


def compare(name: str, sizes: Sizes) -> list[tuple[str, int, int]]:
    """Each quantity with ours and the closed form's."""
    prompt, step = (run(name, phase) for phase in ("prefill", "decode"))
    return [
        ("prefill FLOPs", prompt[0], flops(sizes, PROMPT, 0)),
        ("decode FLOPs", step[0], flops(sizes, 1, CACHE)),
        ("weights", prompt[1], weight_bytes(sizes)),
        ("cache", step[2], cache_bytes(sizes, CACHE)),
    ]


def run(name: str, phase: str, cached: int = CACHE) -> tuple[int, int, int]:
    """Matmul FLOPs, bytes of parameters, bytes of the caches that come in."""
    tokens = cached if phase == "decode" else None
    model, inputs = load(name, options=InputOptions(batch_size=BATCH, phase=phase, seq_len=PROMPT, cache_len=tokens))
    trace = capture(model, inputs)
    table = price(trace)
    return table.totals.matmul_flops, table.totals.parameter_bytes, _cache(trace)


def _cache(trace: Trace) -> int:
    storages = find_storages(trace)
    counters = {
        trace.tensors.storage_of[number]
        for number, spec in enumerate(trace.tensors.spec_of)
        if trace.tensors.specs[spec].dtype == "int64"
    }  # of tokens
    return sum(storages.sizes[storage] for storage in storages.cache_inputs - counters)


if __name__ == "__main__":
    main()
