import csv
import io
import json

import msgspec

from tests.report.reference.real_traces import BATCH, LAYERS, WIDTH, net_trace
from tests.report.reference.test_kv_cache import cache, giving, layer, output
from tests.report.traces import transformer
from torchstone.cost import price
from torchstone.record.cost import Conventions
from torchstone.record.trace import Trace
from torchstone.record.value import Items
from torchstone.report.reference.documents import (
    Summary,
    memory_csv,
    summarise,
    summary_csv,
    summary_json,
    summary_text,
)


def summary_of(trace: Trace) -> Summary:
    return summarise(trace, price(trace, Conventions(multiply_add=1)), (128,))


def test_own_multiply_adds_and_own_parameters_add_up_to_the_totals() -> None:
    summary = summary_of(net_trace())

    assert sum(row.own_multiply_adds for row in summary.modules) == summary.multiply_adds > 0
    assert sum(row.own_parameters for row in summary.modules) == summary.totals.parameters
    assert summary.modules[0].multiply_adds == summary.multiply_adds


def test_a_matmul_has_its_multiply_adds_once() -> None:
    summary = summary_of(net_trace())

    (row,) = (row for row in summary.modules if row.path == "layers.0.linear")
    assert row.multiply_adds == BATCH * WIDTH * WIDTH
    assert summary.multiply_adds == BATCH * WIDTH * (LAYERS * WIDTH + 3)


def test_the_three_formats_hold_every_module() -> None:
    trace = transformer(2)
    summary = summary_of(trace)
    paths = [module.path for module in trace.modules]

    document = json.loads(summary_json(summary))
    rows = list(csv.DictReader(io.StringIO(summary_csv(summary).decode())))

    assert document["schema"] == "torchstone/summary/1"
    assert [row["path"] for row in document["modules"]] == [row["path"] for row in rows] == paths
    assert [int(row["parameters"]) for row in rows] == [row["parameters"] for row in document["modules"]]


def test_the_text_folds_layers_and_tells_the_memory_per_type() -> None:
    trace = transformer(3)

    text = summary_text(summary_of(trace), trace)

    assert "0..2" in text
    assert "3 x DecoderLayer" in text
    assert "float32 (as run)" in text
    assert "this run gave none back" in text


def test_the_text_has_a_column_for_each_length_of_the_cache() -> None:
    trace = giving(output(cache(layer(1, 4, 16, 8))))

    assert "KV cache, 128 tokens" in summary_text(summary_of(trace), trace)


def test_the_memory_has_a_line_for_each_type_and_part() -> None:
    summary = summary_of(giving(output(cache(layer(1, 4, 16, 8)))))

    rows = list(csv.DictReader(io.StringIO(memory_csv(summary).decode())))

    parts = ["weights", "buffers", "activation peak", "KV cache"]
    assert [row["part"] for row in rows] == parts * len(summary.memory)
    assert (rows[3]["dtype"], rows[3]["captured"], rows[3]["tokens"]) == ("float32", "True", "128")
    assert int(rows[3]["bytes"]) == 2 * 4 * 128 * 8 * 4


def test_a_kernel_size_is_written_as_people_do() -> None:
    trace = transformer(1)
    kernel = Items(kind="tuple", items=(3, 5))
    first = msgspec.structs.replace(trace.modules[0], attributes=(("kernel_size", kernel),))
    trace = msgspec.structs.replace(trace, modules=(first, *trace.modules[1:]))

    assert summary_of(trace).modules[0].kernel_size == "3x5"


def test_ops_without_a_price_are_named_beside_the_total() -> None:
    trace = transformer(1)
    signatures = tuple(
        msgspec.structs.replace(one, op="mine.strange.default") if one.op == "aten.silu.default" else one
        for one in trace.ops.signatures
    )
    trace = msgspec.structs.replace(trace, ops=msgspec.structs.replace(trace.ops, signatures=signatures))

    assert "mine.strange.default (1 x)" in summary_text(summary_of(trace), trace)
