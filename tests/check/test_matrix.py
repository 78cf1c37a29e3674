"""Several models on several backends: the table, and which op unlocks most models."""

from pathlib import Path

import pytest

from tests.check.results import check_result, finding
from torchstone.check.matrix import Cell, results_page, unlocking_ops, unlocking_page
from torchstone.check.settings import Settings
from torchstone.errors import InputError
from torchstone.workflows.check_matrix import MatrixRequest, run_matrix

CAT, SORT = finding("aten.cat.default"), finding("aten.sort.default")
CELLS = [
    Cell(model="a", backend="x", result=check_result(CAT)),
    Cell(model="b", backend="x", result=check_result(CAT, SORT)),
    Cell(model="c", backend="x", result=check_result(CAT)),
    Cell(model="d", backend="x", result=check_result()),
    Cell(model="a", backend="y", refused="there is no module y"),
]


def test_an_op_unlocks_the_models_in_which_nothing_else_fails() -> None:
    first, second = unlocking_ops(CELLS)

    assert (first.op, first.alone, first.models) == ("aten.cat.default", ("a", "c"), ("a", "b", "c"))
    assert (second.op, second.alone, second.models) == ("aten.sort.default", (), ("b",))
    assert "| x | `aten.cat.default` | 2: a, c | 3: a, b, c |" in unlocking_page(CELLS, "# head\n")
    assert "Nothing fails" in unlocking_page(CELLS[3:4], "# head\n")


def test_every_pair_has_its_cell() -> None:
    page = results_page(CELLS, "# head\n")

    assert "| d | works | not run |" in page
    assert "| a | **wrong**, 0 of 2 modules work: `aten.cat.default` | refused |" in page
    assert "- refused: there is no module y" in page
    assert "| | 1 of 4 | 0 of 0 |" in page


def test_a_matrix_without_models_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="give one or more models"):
        run_matrix(MatrixRequest(models=(), backends=("eager",), folder=tmp_path, settings=Settings(backend="")))


def test_models_are_checked_and_one_that_cannot_be_loaded_is_a_cell(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("from torch import nn\n\ndef load_model():\n    return nn.Linear(4, 4)\n")
    request = MatrixRequest(
        models=(f"{tmp_path}/net.py::load_model", "no-such-model"), backends=("eager",), folder=tmp_path / "out",
        settings=Settings(backend="", exports_ir=False),
    )  # fmt: skip

    cells = run_matrix(request)

    assert [cell.text for cell in cells] == ["works", "refused"]
    assert "no-such-model" in (tmp_path / "out" / "results.md").read_text()


def test_a_cell_of_an_earlier_page_counts_as_it_says() -> None:
    reasons = (
        "- `aten.cat.default` in `h.0`: compile error: x (a script shows it)",
        "- the code of h.1 in `h.1`: wrong: y",
    )
    cells = [
        Cell(model="a", backend="x", earlier="works"),
        Cell(model="b", backend="x", earlier="**wrong**, 1 of 2 modules work", earlier_reasons=reasons),
        Cell(model="c", backend="x"),
    ]

    page = results_page(cells, "# head\n", {"x": "x 1.0"})

    assert "- `x`: x 1.0" in page
    assert "| | 1 of 2 |" in page
    assert "### b on x\n\n- `aten.cat.default` in" in page
    assert [one.op for one in unlocking_ops(cells)] == ["aten.cat.default", "the code of h.1"]
