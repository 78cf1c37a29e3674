import json
from pathlib import Path

import msgspec
import pytest

from tests.report.reference.real_traces import net, net_trace
from torchstone.cost import price
from torchstone.record.cost import Conventions
from torchstone.record.reference import Box, FunctionUse
from torchstone.reference.run_model import module_paths, parameter_bytes, parameter_count, state_shapes
from torchstone.report.reference.checks import ModelFacts, document_boxes
from torchstone.report.reference.documents import write_documents

TRACE = net_trace()
FUNCTIONS = (FunctionUse(function="torch.relu", arguments="float32[2]", output="float32[2]", calls=3, modules=("",)),)


def facts() -> ModelFacts:
    model = net()
    return ModelFacts(
        parameters=parameter_count(model),
        parameter_bytes=parameter_bytes(model),
        held=state_shapes(model),
        modules=module_paths(model),
        function_calls=3,
    )


def boxes(folder: Path, said: ModelFacts | None = None, *, spoil: str = "") -> dict[str, Box]:
    graphs = write_documents(folder, TRACE, price(TRACE, Conventions(multiply_add=1)), functions=FUNCTIONS)
    if spoil:
        (folder / spoil).write_bytes(b"")
    return {box.name: box for box in document_boxes(folder, TRACE, said or facts(), graphs)}


def test_good_documents_tick_all_boxes(tmp_path: Path) -> None:
    assert {name: box.ticked for name, box in boxes(tmp_path).items()} == dict.fromkeys(
        ("graph", "summary", "operators", "shapes", "parameters"), True
    )


@pytest.mark.parametrize(
    ("name", "box"),
    [
        ("graph.dot", "graph"),
        ("graph.svg", "graph"),
        ("graph_ops.pdf", "graph"),
        ("summary.json", "summary"),
        ("summary.csv", "summary"),
        ("memory.csv", "summary"),
        ("operators.json", "operators"),
        ("operators.csv", "operators"),
        ("functions.csv", "operators"),
        ("tensors.csv", "shapes"),
        ("hierarchy.txt", "shapes"),
        ("parameters.csv", "parameters"),
    ],
)
def test_a_spoilt_file_opens_its_box_and_no_other(name: str, box: str, tmp_path: Path) -> None:
    assert [found.name for found in boxes(tmp_path, spoil=name).values() if not found.ticked] == [box]


def test_a_model_that_says_otherwise_opens_the_boxes(tmp_path: Path) -> None:
    said = facts()
    other = ModelFacts(
        parameters=said.parameters + 1,
        parameter_bytes=said.parameter_bytes + 1,
        held=said.held | {"norm.weight": ("65", "float32")},
        modules=(*said.modules, "hidden"),
        function_calls=None,
    )

    found = boxes(tmp_path, other)

    assert [name for name, box in found.items() if not box.ticked] == [
        "summary", "operators", "shapes", "parameters",
    ]  # fmt: skip
    assert any("1 missing: hidden" in check.detail for check in found["summary"].checks)


def test_numbers_that_do_not_add_up_open_the_summary(tmp_path: Path) -> None:
    graphs = write_documents(tmp_path, TRACE, price(TRACE, Conventions(multiply_add=1)))
    document = json.loads((tmp_path / "summary.json").read_bytes())
    document["multiply_adds"] += 1
    (tmp_path / "summary.json").write_text(json.dumps(document))

    (summary,) = (box for box in document_boxes(tmp_path, TRACE, facts(), graphs) if box.name == "summary")

    assert [check.title for check in summary.checks if not check.passed] == [
        "the multiply-adds of the modules add up to the total"
    ]


def test_a_page_that_does_not_account_for_a_box_opens_the_graph(tmp_path: Path) -> None:
    modules, ops = write_documents(tmp_path, TRACE, price(TRACE, Conventions(multiply_add=1)), functions=FUNCTIONS)
    first, *others = modules.pages.pages
    short = msgspec.structs.replace(first, shown=first.shown - {0})
    spoilt = msgspec.structs.replace(modules, pages=msgspec.structs.replace(modules.pages, pages=(short, *others)))

    (graph,) = (box for box in document_boxes(tmp_path, TRACE, facts(), (spoilt, ops)) if box.name == "graph")

    assert [check.title for check in graph.checks if not check.passed] == ["the pages of graph account for every box"]
