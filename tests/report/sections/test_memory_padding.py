from pathlib import Path

from tests.memory.log_generator.demo import healthy_log
from tests.memory.log_generator.graphs import Argument, Graph, Writer
from tests.memory.log_generator.run import generate
from tests.memory.log_generator.tensors import Tensor
from tests.report.memory_folders import memory_folder
from torchstone.report.sections.memory_padding import build


def test_the_worst_op_is_named_with_the_reason(tmp_path: Path) -> None:
    card = build(memory_folder(healthy_log(), tmp_path)).cards[0]

    assert card.value == "43.9 MiB"
    assert "last dim 2 padded to 32: 16x" in card.detail


def test_with_padding_is_never_less_than_without(tmp_path: Path) -> None:
    view = build(memory_folder(healthy_log(), tmp_path))
    curves = view.tables[1]
    columns = {column.name: column.values for column in curves.columns}

    for chart in view.charts:
        padded, logical = (columns[series.column] for series in chart.series)
        assert chart.table == curves.name
        assert set(chart.hover) <= set(columns)
        assert all(a >= b for a, b in zip(padded, logical, strict=True))  # type: ignore[operator]


def test_a_log_without_padding_says_so(tmp_path: Path) -> None:
    graph = Graph(module="G", arguments=[Argument("args_0", "input", Tensor((32, 32)))])
    graph.outputs = (Writer(graph).add("ttnn.gelu", "EltwiseUnaryOp", ("%arg0",), Tensor((32, 32))),)

    view = build(memory_folder(generate([graph])[0], tmp_path))

    assert view.cards[0].value == "none"
    assert view.tables[0].rows == 0
