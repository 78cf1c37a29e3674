"""Bytes of weights against published checkpoints.

`python benchmarks/checkpoint_bytes.py [TEXT...]`: `data/checkpoints.json` has for each checkpoint its configuration and
the size that a public file states, with the repository, path and commit of that file. Each model is built from its
configuration without weights, and `cost` prices its parameters in the checkpoint's dtype. Three kinds of evidence:

- `total_size` of an index file is the sum over all tensors: it must be equal;
- the size of one .safetensors file is 8 bytes, a header and the data: the header is written out here, and the sum must
  be equal;
- the sizes of several files: what their sum exceeds the data by must be a possible length of headers, which are bounded
  by the names and shapes of the tensors. An error of a few kilobytes can hide in it.

Buffers that a checkpoint holds, such as the limits of Gemma 4's clipped layers, count with the parameters. Where a
checkpoint has more than the model (frequencies of old rotary embeddings, a tied matrix twice, projections that Gemma's
layers with shared keys and values do not use), the row says so.
"""

import argparse
import json
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

DATA = Path(__file__).parent / "data" / "checkpoints.json"
_CODES = {"float32": ("F32", 4), "bfloat16": ("BF16", 2), "float16": ("F16", 2)}
_ALIGNED = 8
_LONG_ENTRY = 160  # bytes of a header for one tensor
_Tensors = Mapping[str, tuple[int, ...]]


def stored(config: Mapping[str, Any] | str) -> tuple[int, _Tensors, str]:
    """Bytes of the parameters by `cost` and of stored buffers, the tensors that a checkpoint lists, and their dtype."""
    from torchstone.models.inputs import InputOptions
    from torchstone.models.load_model import load
    from torchstone.workflows.cost import CostRequest, cost_model
    from torchstone.workflows.model_source import ModelRequest

    with TemporaryDirectory() as folder:
        name, dtype = config, "bfloat16"
        if not isinstance(config, str):
            dtype = config["dtype"]
            name = f"{folder}/config.json"
            Path(name).write_text(json.dumps(config), encoding="utf-8")
        options = InputOptions(seq_len=16) if isinstance(config, str) else InputOptions(seq_len=16, dtype=dtype)
        request = CostRequest(model=ModelRequest(model=str(name), options=options, cached=False))
        table = cost_model(request).table
        model, _ = load(str(name), options=options)
        once: dict[int, tuple[str, tuple[int, ...]]] = {}
        buffers = {id(one): one.numel() * one.element_size() for one in model.buffers()}
        stored_buffers = 0
        for key, tensor in model.state_dict(keep_vars=True).items():
            if id(tensor) not in once:
                stored_buffers += buffers.get(id(tensor), 0)
            once.setdefault(id(tensor), (key, tuple(tensor.shape)))
    return table.totals.parameter_bytes + stored_buffers, dict(once.values()), dtype


def unused_projections(config: Mapping[str, Any]) -> _Tensors:
    """Keys and values of Gemma's last layers, which read those of earlier ones: in the file, not in the model."""
    text = config["text_config"]
    kinds, shared = text["layer_types"], text["num_kv_shared_layers"]
    found: dict[str, tuple[int, ...]] = {}
    for layer in range(len(kinds) - shared, len(kinds)):
        width = text["global_head_dim"] if kinds[layer] == "full_attention" else text["head_dim"]
        name = f"model.language_model.layers.{layer}.self_attn"
        found[f"{name}.k_norm.weight"] = (width,)
        for projection in ("k_proj", "v_proj"):
            found[f"{name}.{projection}.weight"] = (text["num_key_value_heads"] * width, text["hidden_size"])
    return found


def header_bytes(tensors: _Tensors, dtype: str) -> int:
    """The length of the header of a .safetensors file with these tensors, its own length of 8 bytes included."""
    code, size = _CODES[dtype]
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in sorted(tensors.items()):
        start, end = end, end + prod(shape) * size
        entries[name] = {"dtype": code, "shape": list(shape), "data_offsets": [start, end]}
    length = len(json.dumps(entries, separators=(",", ":")).encode())
    return 8 + -(-length // _ALIGNED) * _ALIGNED


def header_bounds(tensors: _Tensors, files: int) -> tuple[int, int]:
    """The minimum and maximum that the headers of several files with these tensors take."""
    each = sum(
        len(f'"{name}":{{"dtype":"F16","shape":{list(shape)},"data_offsets":[,]}},') for name, shape in tensors.items()
    )
    fixed = files * (8 + len('{"__metadata__":{"format":"pt"}}'))
    return fixed // 2 + each - len(tensors) * 8, fixed + each + len(tensors) * 24 + files * _ALIGNED


def verdict(row: Mapping[str, Any]) -> str:
    """`=` where the published size is ours, else how it differs."""
    ours, tensors, dtype = stored(row["config"])
    published = row["bytes"]
    if row.get("unused_projections"):
        unused = unused_projections(row["config"])
        tensors = {**tensors, **unused}
        ours += sum(prod(shape) for shape in unused.values()) * _CODES[dtype][1]
    ours += row.get("stored_twice_bytes", 0) + row.get("buffer_bytes", 0)
    if isinstance(published, list):
        low, high = header_bounds(tensors, len(published))
        high += row.get("more_tensors", 0) * _LONG_ENTRY + row.get("longer_names", 0) * len(tensors)
        rest = sum(published) - ours
        return (
            f"~ (headers take {rest:,} bytes)"
            if low <= rest <= high
            else f"{rest:,} bytes are not headers ({low:,} to {high:,})"
        )
    if row.get("whole_file") or row["source"]["path"].endswith(".safetensors"):
        ours += header_bytes(tensors, dtype)
    return "=" if ours == published else f"{ours:,} != {published:,} ({published - ours:+,})"


def chosen_rows(words: list[str]) -> Iterator[Mapping[str, Any]]:
    """The checkpoints whose name contains one of the words; all of them without any."""
    for row in json.loads(DATA.read_text(encoding="utf-8")):
        if not words or any(word.lower() in row["model"].lower() for word in words):
            yield row


def main() -> None:
    """Compare each checkpoint and print one line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*")
    from torchstone.errors import TorchstoneError

    results = []
    for row in chosen_rows(parser.parse_args().words):
        try:
            results.append(verdict(row))
        except TorchstoneError as error:  # a model that fails is one line of the table, not the end of it
            results.append(" ".join(str(error).split())[:200])
        print(f"{row['model']:55} {results[-1]}", flush=True)
    exact, close = sum(one == "=" for one in results), sum(one.startswith("~") for one in results)
    print(
        f"{len(results)} checkpoints: {exact} equal, {close} equal but for headers, {len(results) - exact - close} not"
    )


if __name__ == "__main__":
    main()
