"""Number formats as an axis: bytes by hand, and what published checkpoints take."""

import json
from collections.abc import Callable
from fractions import Fraction
from math import ceil
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from torchstone.capture import capture
from torchstone.cost import price
from torchstone.cost.formats import FORMATS, parse_format, with_formats
from torchstone.errors import InputError
from torchstone.models.inputs import InputOptions
from torchstone.record.cost import Category, Conventions, Formats
from torchstone.record.tensor import TensorSpec
from torchstone.record.trace import Trace
from torchstone.workflows.cost import CostRequest, PricingOptions, cost_model, price_trace, write_costs
from torchstone.workflows.model_source import ModelRequest


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 64)
        self.layers = nn.ModuleList([nn.Linear(64, 64) for _ in range(3)])
        self.norm = nn.LayerNorm(64)
        self.head = nn.Linear(64, 50, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.head(self.norm(x))


@pytest.fixture(scope="module")
def trace() -> Trace:
    return capture(Net().bfloat16(), torch.zeros(2, 8, dtype=torch.int64))


@pytest.mark.parametrize(
    ("name", "shape", "size"),
    [
        ("mxfp4", (2880, 2880), 2880 * 90 * 17),
        ("mxfp8", (3, 40), 3 * (40 + 2)),  # two blocks in each row
        ("nvfp4", (16, 16), 16 * 9),
        ("bfloat8_b", (32, 32), 1088),
        ("bfloat8_b", (33, 1), 2 * 1088),
        ("bfloat4_b", (2, 64, 64), 8 * 576),
        ("bfloat8_b", (5,), 1088),
        ("float8_block", (576, 7168), 576 * 7168 + 5 * 56 * 4),
        ("int4_g128", (256, 256), 256 * (128 + 4)),
        ("int4_g128_z4_order", (256, 256), 256 * (128 + 5) + 256 * 4),  # GPTQ
        ("int3_row_s32_z8", (5, 64), 5 * (24 + 5)),
        ("float8_row", (576, 7168), 576 * 7168 + 576 * 2),
        ("float8_block_s16", (576, 7168), 576 * 7168 + 5 * 56 * 2),
        ("nf4", (33, 3), 50 + 2 * 4 + 64),  # groups go on in the next row
        ("nf4", (2, 1, 1), 2 * (4 + 64) + 1),
        ("nf4_double", (256, 512), 256 * 256 + 2048 + 8 * 4 + 64 + 1024 + 4),
        ("nf4_double", (0, 7), 0),
    ],
)
def test_block_formats_have_the_size_of_their_blocks(name: str, shape: tuple[int, ...], size: int) -> None:
    assert TensorSpec(shape=shape, dtype=name).size_bytes == size


def test_matrices_are_priced_in_the_format_and_the_rest_as_captured(trace: Trace) -> None:
    table = price(with_formats(trace, Formats(weights="mxfp4")))

    matrices = 3 * 64 * 64 + 50 * 64
    rest = 50 * 64 + 3 * 64 + 2 * 64
    assert table.totals.parameter_bytes == matrices // 32 * 17 + rest * 2
    assert table.totals.flops == price(trace).totals.flops
    assert table.conventions.dtypes == ("bfloat16", "mxfp4")


def test_reads_of_weights_shrink_with_their_format_and_activations_stay(trace: Trace) -> None:
    usual, small = (
        price(trace).traffic.unfused,
        price(with_formats(trace, Formats(weights="float8_e4m3fn"))).traffic.unfused,
    )

    matrices = 3 * 64 * 64 + 50 * 64
    assert usual.read_bytes[Category.WEIGHTS] - small.read_bytes[Category.WEIGHTS] == matrices
    assert usual.read_bytes[Category.ACTIVATIONS] == small.read_bytes[Category.ACTIVATIONS]


def test_activations_have_their_own_format(trace: Trace) -> None:
    usual, half = (price(with_formats(trace, Formats(activations=one))) for one in (None, "float8_e4m3fn"))

    assert half.totals.parameter_bytes == usual.totals.parameter_bytes
    floats = usual.traffic.unfused.written_bytes[Category.ACTIVATIONS]
    assert half.traffic.unfused.written_bytes[Category.ACTIVATIONS] * 2 == floats


def test_nothing_asked_for_changes_nothing(trace: Trace) -> None:
    assert with_formats(trace, Formats()) is trace
    assert price(with_formats(trace, Formats(weights="bfloat16"))).totals == price(trace).totals


def test_repeated_layers_are_priced_as_if_they_were_written_out() -> None:
    shown = ModelRequest(model="Qwen/Qwen3-0.6B", options=InputOptions(layers=6, phase="decode"))
    trace = cost_model(CostRequest(model=shown)).trace
    assert trace.repeats
    formats = Formats(weights="mxfp4", kv_cache="float8_e4m3fn", activations="float16")

    short, whole = (price(with_formats(one, formats)) for one in (trace, trace.written_out()))
    assert short.totals == whole.totals
    assert short.traffic == whole.traffic
    assert short.peak.kv_cache_bytes == whole.peak.kv_cache_bytes


def test_a_cache_in_8_bits_takes_half(trace: Trace) -> None:  # noqa: ARG001 - shares torch's import
    options = InputOptions(dtype="bfloat16", phase="decode", cache_len=64)
    outcome = cost_model(CostRequest(model=ModelRequest(model="tiny:llama", options=options)))
    usual, half = (price(with_formats(outcome.trace, Formats(kv_cache=one))) for one in (None, "float8_e5m2"))

    assert usual.peak.kv_cache_bytes == 2 * half.peak.kv_cache_bytes > 0


@pytest.mark.parametrize(
    ("model", "gib"),
    [("openai/gpt-oss-20b", 12.8), ("openai/gpt-oss-120b", 60.8)],  # checkpoint sizes of the model card, table 1
)
def test_quantized_checkpoints_have_their_published_size(model: str, gib: float) -> None:
    table = cost_model(CostRequest(model=ModelRequest(model=model))).table

    assert round(table.totals.parameter_bytes / 2**30, 1) == gib
    assert table.conventions.formats.source == "as published"


def test_a_model_of_the_zoo_is_priced_in_the_dtype_of_its_checkpoint() -> None:
    shipped = cost_model(CostRequest(model=ModelRequest(model="Qwen/Qwen3-0.6B"))).table
    wide = cost_model(
        CostRequest(model=ModelRequest(model="Qwen/Qwen3-0.6B", options=InputOptions(dtype="float32")))
    ).table

    assert shipped.conventions.dtypes == ("bfloat16",)
    assert wide.totals.parameter_bytes == 2 * shipped.totals.parameter_bytes
    assert wide.conventions.formats.source == ""


def test_an_unknown_format_is_refused_with_those_that_exist() -> None:
    with pytest.raises(InputError, match=r"unknown number format 'fp9'; choose from float32, .*mxfp4"):
        parse_format("fp9")
    for wrong in ("int4_block", "int9_g32", "int1_row", "int4_g0", "float8_g32_z1", "nf4_g64", "int4_g32_order_z4"):
        with pytest.raises(InputError, match=f"unknown number format '{wrong}'"):
            parse_format(wrong)
    assert parse_format("BF16") == "bfloat16"
    assert (parse_format("int8"), parse_format("int4")) == ("int8_g128", "int4_g128")  # which advice names
    assert all(TensorSpec(shape=(64, 64), dtype=name).size_bytes for name in FORMATS)


@pytest.mark.parametrize(
    ("model", "batch", "cached", "tokens"),
    [
        ("google/gemma-3-1b-pt", 16, 32768, 4 * 32769 + 22 * 512),  # every sixth layer sees all, the others 512 tokens
        ("google/gemma-3-1b-pt", 2, 300, 26 * 301),  # the window is not full yet
        ("openai/gpt-oss-20b", 4, 8192, 12 * 8193 + 12 * 128),
    ],
)
def test_a_sliding_window_keeps_its_window(model: str, batch: int, cached: int, tokens: int) -> None:
    options = InputOptions(batch_size=batch, cache_len=cached, phase="decode")
    table = cost_model(CostRequest(model=ModelRequest(model=model, options=options))).table

    width = {"google/gemma-3-1b-pt": 1 * 256, "openai/gpt-oss-20b": 8 * 64}[model]  # of keys; values too, 2 bytes each
    assert (
        table.traffic.unfused.written_bytes[Category.KV_CACHE] == batch * tokens * 2 * width * 2
    )  # keys and values, 2 bytes


def test_a_page_shows_the_signatures_that_were_priced(tmp_path: Path) -> None:
    options = InputOptions(layers=2, seq_len=16)
    outcome = cost_model(CostRequest(model=ModelRequest(model="openai/gpt-oss-20b", options=options)))
    write_costs(tmp_path, outcome)

    shown = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["sections"]["cost"]
    assert shown["totals"]["parameter_bytes"] == outcome.table.totals.parameter_bytes


@pytest.mark.parametrize(("name", "size"), [("mxfp4", 166_520), ("bfloat8_b", 221_828), ("float32", 256_740)])
def test_odd_sizes_agree_with_a_count_by_hand(tmp_path: Path, name: str, size: int) -> None:
    """Widths of 33, 99 and 132: rows end in a part of a block, and tiles are padded."""
    config = {"model_type": "gpt2", "n_layer": 2, "n_embd": 33, "n_head": 3, "vocab_size": 101}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    trace = cost_model(CostRequest(model=ModelRequest(model=str(tmp_path / "config.json")))).trace

    assert price(with_formats(trace, Formats(weights=name))).totals.parameter_bytes == size


class LookUp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 64)

    def forward(self, ids: Tensor) -> Tensor:
        return self.table(ids).sum()


def test_formats_that_change_nothing_are_said_so(trace: Trace) -> None:
    def notes(captured: Trace, formats: Formats) -> tuple[str, ...]:
        return price_trace(captured, PricingOptions(conventions=Conventions(formats=formats))).notes

    nothing = capture(LookUp(), torch.zeros(2, 8, dtype=torch.int64))
    assert notes(nothing, Formats(weights="mxfp4")) == (
        "weights mxfp4 change nothing: no matrix of floats is multiplied with",
    )
    assert notes(trace, Formats(weights="mxfp4", activations="bfloat16")) == ()
    assert notes(trace, Formats(kv_cache="mxfp8")) == (
        "KV cache mxfp8 changes nothing: the model neither gets nor gives a cache",
    )


class HalfRun(nn.Module):
    """An encoder that a step does not run."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.ModuleDict(
            {
                "conv": nn.Conv1d(20, 48, 3, bias=False),
                "linear": nn.Linear(33, 65, bias=False),
                "attention": nn.MultiheadAttention(36, 4, bias=False),
                "table": nn.Embedding(7, 40),
            }
        )
        self.latents = nn.Parameter(torch.zeros(5, 11))
        self.decoder = nn.Linear(33, 9, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(x)


@pytest.mark.parametrize(
    ("name", "row_bytes"),
    [("int4_g32", lambda width: Fraction(width, 2) + 2 * -(-width // 32)), ("int8_row", lambda width: width + 2)],
)
def test_matrices_that_a_step_does_not_read_have_the_format(name: str, row_bytes: Callable[[int], Fraction]) -> None:
    captured = capture(HalfRun(), torch.zeros(3, 33))
    rows = [(48, 60), (65, 33), (3 * 36, 36), (36, 36), (9, 33)]
    sizes = [ceil(count * row_bytes(width)) for count, width in rows]
    table = price_trace(captured, PricingOptions(conventions=Conventions(formats=Formats(weights=name))))
    assert table.totals.parameter_bytes == sum(sizes) + 4 * (7 * 40 + 5 * 11)
    assert table.notes == (
        f"weights {name}: 1 weight that no op reads stays as captured; no layer says whether that is a matrix",
    )


def test_kernels_that_a_step_does_not_read_are_matrices_in_tiles() -> None:
    captured = capture(HalfRun(), torch.zeros(3, 33))
    shapes = [(48, 60), (65, 33), (108, 36), (36, 36), (9, 33)]
    tiles = sum(-(-rows // 32) * -(-columns // 32) for rows, columns in shapes)
    weights = price(with_formats(captured, Formats(weights="bfloat8_b")), Conventions(tile=32)).peak.weights_bytes
    assert weights == tiles * 1088 + 3 * 32 * 32 * 4  # two tables: 7 x 40 and 5 x 11
