"""What models keep between two steps, against a calculator that reads nothing but published configurations.

`python benchmarks/cache_truth.py [--edges] [MODELS...]`: every model of the zoo that generates is captured at its full
size, without weights, for two sequences, with caches that grow, are allocated beforehand, lie in blocks of 16 tokens,
and (for latent attention) are expanded. With --edges, three sequences after 1 token, around the length of a window, and
after as many tokens as the model has positions for, 100,000 at most (2,050 where transformers runs a prompt as a loop
over its tokens, which takes half a minute for each thousand). The calculator below was written from papers and
the meaning of fields, before a cache was captured with it; it imports neither torchstone nor transformers. What it
knows of implementations is this:

- a layer with a window of n keeps n - 1 tokens between steps, because the new one completes the window; a static cache
  has room for n of them;
- a convolution of width w keeps w columns, as Mamba's `allocate_inference_cache` does, and w - 1 in Griffin;
- states of recurrences are float32, as the papers of Mamba, RWKV and gated delta rules prescribe; what a convolution
  keeps has the dtype of the model.
"""

import argparse
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ZOO = Path(__file__).parent.parent / "src" / "torchstone" / "models" / "zoo" / "data"
BATCH, TOKENS, ROOM, BLOCK, ENCODER = 2, 1000, 1500, 16, 100
LONG = 10_000  # past a chunk of 8,192
KINDS = ("dynamic", "static", "paged", "expanded")
_LOOPS = ("jamba", "recurrent_gemma")
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """How a cache is stored, and after how many tokens."""

    kind: str = "dynamic"
    tokens: int = TOKENS
    batch: int = BATCH
    room: int = ROOM  # of a static cache
    block: int = BLOCK  # of a paged one
    encoder: int = ENCODER  # tokens of the prompt, for a decoder that attends to an encoder


def rows(question: Question, window: int | None = None) -> int:
    """The tokens for which one layer has memory."""
    if question.kind == "static":
        return question.room if window is None else min(question.room, window)
    kept = question.tokens if window is None else min(question.tokens, window - 1)
    if question.kind != "paged":
        return kept
    first, end = question.tokens - kept, question.tokens  # the positions that are kept
    return len({position // question.block for position in range(first, end)}) * question.block


def whole_blocks(question: Question, tokens: int) -> int:
    """The rows of an encoder: they never grow."""
    return -(-tokens // question.block) * question.block if question.kind == "paged" else tokens


def kept_bytes(config: Mapping[str, Any], question: Question) -> int:
    """Bytes of a batch."""
    text = {**config, **config.get("text_config", {})}
    width = _BYTES[config.get("dtype", "float32")]
    return question.batch * sum(numbers * size for numbers, size in layers(text, width, question))


def layers(c: Mapping[str, Any], width: int, question: Question) -> Iterator[tuple[int, int]]:
    """Of each layer of one sequence: how many numbers, and the bytes of one."""
    kind = c["model_type"]
    if kind in ("whisper", "bart", "t5"):
        yield from encoder_decoder(c, width, question)
    elif kind in ("mamba", "mamba2", "rwkv"):
        yield from recurrent(c, width)
    else:
        yield from decoder(c, width, question)


def encoder_decoder(c: Mapping[str, Any], width: int, question: Question) -> Iterator[tuple[int, int]]:
    """Each layer keeps its own tokens, and keys and values of what the encoder saw."""
    count = c.get("decoder_layers") or c.get("num_decoder_layers")
    heads = c["num_heads"] * c["d_kv"] if "d_kv" in c else c["d_model"]
    seen = c["max_source_positions"] if c["model_type"] == "whisper" else question.encoder
    for _ in range(int(count or 0)):
        yield 2 * heads * (rows(question) + whole_blocks(question, seen)), width


def recurrent(c: Mapping[str, Any], width: int) -> Iterator[tuple[int, int]]:
    """Models that keep no tokens at all."""
    for _ in range(c["num_hidden_layers"]):
        if c["model_type"] == "rwkv":  # two shifted inputs, and numerator, denominator and maximum of the attention
            yield 5 * c["hidden_size"], 4
            continue
        inner = c["expand"] * c["hidden_size"]
        grouped = 2 * c["n_groups"] * c["state_size"] if c["model_type"] == "mamba2" else 0
        yield (inner + grouped) * c["conv_kernel"], width
        yield inner * c["state_size"], 4


def decoder(c: Mapping[str, Any], width: int, question: Question) -> Iterator[tuple[int, int]]:
    """Layers that attend to earlier tokens, with others between them in some models."""
    count = c.get("num_hidden_layers") or c.get("n_layer")
    own = int(count or 0) - c.get("num_kv_shared_layers", 0)  # Gemma 3n: the last layers read what earlier ones keep
    for layer in range(own):
        if c["model_type"] == "jamba" and layer % c["attn_layer_period"] != c["attn_layer_offset"]:
            inner = c["mamba_expand"] * c["hidden_size"]
            yield inner * c["mamba_d_conv"], width
            yield inner * c["mamba_d_state"], 4
        elif c["model_type"] == "recurrent_gemma" and layer % 3 < 2:  # Griffin: two recurrent blocks, one that attends
            yield c["lru_width"] * (c["conv1d_width"] - 1), width
            yield c["lru_width"], 4
        elif c["model_type"] == "qwen3_next" and (layer + 1) % c["full_attention_interval"]:
            keys = c["linear_num_key_heads"] * c["linear_key_head_dim"]
            values = c["linear_num_value_heads"] * c["linear_value_head_dim"]
            yield (2 * keys + values) * c["linear_conv_kernel_dim"], width
            yield values * c["linear_key_head_dim"], 4
        else:
            window = window_of(c, layer)
            yield token_numbers(c, question, sees_all=window is None) * rows(question, window), width


def token_numbers(c: Mapping[str, Any], question: Question, *, sees_all: bool) -> int:
    """Numbers that one layer keeps of one token."""
    heads = c.get("num_attention_heads") or c.get("n_head") or 0
    if "kv_lora_rank" in c:  # DeepSeek-V2: a compressed row for all heads and one rotary key; or what it expands to
        rotary = c["qk_rope_head_dim"]
        if question.kind == "expanded":
            return int(heads * (c["qk_nope_head_dim"] + rotary + c["v_head_dim"]))
        index = c.get("index_head_dim", 0)  # DeepSeek-V3.2: one key of the indexer beside it
        return int(c["kv_lora_rank"] + rotary + index)
    hidden = c.get("hidden_size") or c.get("n_embd") or 0
    head = c.get("head_dim") or hidden // heads
    shared = 1 if c.get("multi_query") else c.get("num_key_value_heads") or heads
    if sees_all and "global_head_dim" in c:  # Gemma 4: global layers have fewer and wider heads
        shared, head = c.get("num_global_key_value_heads") or shared, c["global_head_dim"]
    return int(2 * shared * head)


def window_of(c: Mapping[str, Any], layer: int) -> int | None:
    """The window of a layer, or its chunk; None: it sees all tokens."""
    window = c.get("sliding_window")
    match c["model_type"]:
        case "gemma3_text" | "gemma4_text" if "sliding_window_pattern" in c:  # every sixth layer is global
            return None if (layer + 1) % c["sliding_window_pattern"] == 0 else window
        case "gemma3n_text" | "gemma4_text":  # every fifth or sixth
            return None if c["layer_types"][layer] == "full_attention" else window
        case "gemma2" | "gpt_oss":  # local and global layers in turn, a local one first
            return window if layer % 2 == 0 else None
        case "llama4_text":  # every fourth layer has no rotary positions and sees everything
            return None if (layer + 1) % c["no_rope_layer_interval"] == 0 else c["attention_chunk_size"]
        case "recurrent_gemma":
            return int(c["attention_window_size"])
        case "mistral" | "phi3" | "mixtral":
            return window
        case _:  # Qwen names a window that `use_sliding_window` switches off
            return None


# --- The comparison; only this part knows torchstone ---


def captured_bytes(name: str, question: Question) -> int:
    """What torchstone says is kept before the step."""
    from torchstone.capture import capture
    from torchstone.cost import price
    from torchstone.models import load
    from torchstone.models.inputs import InputOptions
    from torchstone.record.cost import Conventions

    options = InputOptions(
        batch_size=question.batch,
        phase="decode",
        seq_len=question.encoder,
        cache_len=question.tokens,
        cache=question.kind,
        cache_size=question.room if question.kind == "static" else None,
        block_size=question.block if question.kind == "paged" else None,
    )
    model, inputs = load(name, options=options)
    table = price(capture(model, inputs), Conventions(block_size=options.paged_block))
    return table.cache.size_bytes if table.cache else 0


def questions(entry: Mapping[str, Any]) -> Iterator[Question]:
    """The caches that a model can have, within the positions that it has."""
    config = {**entry["config"], **entry["config"].get("text_config", {})}
    recurs = config["model_type"] in ("mamba", "mamba2", "rwkv", "recurrent_gemma")  # no static cache in transformers
    few = 300 if config["model_type"] == "whisper" else TOKENS  # it has 448 positions
    room = 400 if config["model_type"] == "whisper" else ROOM
    latent = "kv_lora_rank" in config
    for kind in KINDS:
        if (kind == "static" and recurs) or (kind == "expanded" and (not latent or "index_head_dim" in config)):
            continue
        yield Question(kind=kind, tokens=few, room=room)
    if config["model_type"].startswith("llama4"):
        yield Question(tokens=LONG)
        yield Question(kind="paged", tokens=LONG)


def edges(entry: Mapping[str, Any]) -> Iterator[Question]:
    """Lengths at which a cache that is nearly right is wrong."""
    config = {**entry["config"], **entry["config"].get("text_config", {})}
    positions = config.get("max_position_embeddings") or config.get("n_positions") or config.get("max_target_positions")
    most = min(positions or 100_000, 2_051 if config["model_type"] in _LOOPS else 100_000) - 1
    window = next((one for one in (window_of(config, layer) for layer in range(6)) if one is not None), None)
    lengths = {1, 2, most} if window is None else {1, window - 2, window - 1, window, window + 1, most}
    for tokens in sorted(one for one in lengths if 0 < one <= most):
        for kind in ("dynamic", "paged"):
            yield Question(kind=kind, tokens=tokens, batch=3, block=1 if tokens == 1 else 48)


def main() -> None:
    """Compare every model and print one line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--edges", action="store_true", help="lengths around windows, and the longest")
    given = parser.parse_args()
    chosen = given.models
    from torchstone.errors import TorchstoneError

    entries = [one for path in sorted(ZOO.glob("*.json")) for one in json.loads(path.read_text(encoding="utf-8"))]
    asked = wrong = 0
    for entry in entries:
        generates = entry["config"]["architectures"][0].endswith(("CausalLM", "LMHeadModel", "ConditionalGeneration"))
        if entry["id"] not in chosen if chosen else not generates:
            continue
        found = []
        for question in edges(entry) if given.edges else questions(entry):
            asked += 1
            truth = kept_bytes(entry["config"], question)
            try:
                ours: int | str = captured_bytes(entry["id"], question)
            except TorchstoneError as error:  # a model that fails is one line of the table, not the end of it
                ours = " ".join(str(error).split())[:160]
            wrong += ours != truth
            label = f"{question.kind} {question.tokens}" if given.edges else question.kind
            found.append(f"{label} {'=' if ours == truth else f'{ours} != {truth:,}'}")
        print(f"{entry['id']:40} {', '.join(found)}", flush=True)
    print(f"{asked} caches, {wrong} differ")


if __name__ == "__main__":
    main()
