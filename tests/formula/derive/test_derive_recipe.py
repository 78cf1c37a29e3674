"""Formulas of modules with shape branches: right at ordinary sizes, or refused."""

from collections.abc import Callable, Mapping
from functools import cache

import pytest
import torch
from torch import nn

from tests.formula.derive.benches import bench
from tests.formula.derive.branching import (
    Above16,
    EvenOdd,
    Made,
    MultipleOf64,
    PerElement,
    PlainNumber,
    Recurrent,
    lstm,
    of_tokens,
    strided,
    transposed,
)
from torchstone.errors import OutsideDomainError
from torchstone.formula.database.compute import compute
from torchstone.formula.derive.derive_recipe import derive_recipe, remeasure
from torchstone.formula.derive.gate import formulas_of
from torchstone.formula.derive.library import Library
from torchstone.formula.derive.recipes import Subject, prepare
from torchstone.record.formula import FormulaEntry, Quantity

Make = Callable[[Mapping[str, int]], Made]
TOKENS = ("B", "S", "hidden_size")
PICTURE = ("B", "H", "W", "channels")
CASES: dict[str, tuple[Make, tuple[str, ...]]] = {
    "EvenOdd": (of_tokens(EvenOdd), TOKENS),
    "MultipleOf64": (of_tokens(MultipleOf64), TOKENS),
    "Above16": (of_tokens(Above16), TOKENS),
    "PlainNumber": (of_tokens(PlainNumber), TOKENS),
    "Recurrent": (of_tokens(Recurrent), TOKENS),
    "Strided": (strided, PICTURE),
    "LSTM": (lstm, ("B", "S", "input_size", "hidden_size")),
    "ConvTranspose2d": (transposed, ("B", "H", "W", "c_in", "c_out")),
}


@cache
def library_of(name: str) -> Library:
    make, sizes = CASES[name]
    return derive_recipe(make, sizes, bench())


def entry_of(library: Library, name: str) -> FormulaEntry:
    return next(entry for path, entry in library.entries.items() if path.endswith(f".{name}"))


def measured(make: Make, sizes: Mapping[str, int]) -> tuple[int, int, int]:
    _, table = bench().measure(*make(sizes))
    return table.totals.flops, table.totals.bytes_read, table.totals.bytes_written


ORDINARY = (
    {"B": 1, "S": 64, "hidden_size": 32, "input_size": 16, "H": 32, "W": 48, "channels": 8, "c_in": 4, "c_out": 6},
    {"B": 2, "S": 16, "hidden_size": 30, "input_size": 7, "H": 33, "W": 20, "channels": 5, "c_in": 3, "c_out": 8},
    {"B": 3, "S": 17, "hidden_size": 64, "input_size": 8, "H": 14, "W": 14, "channels": 16, "c_in": 8, "c_out": 4},
    {"B": 4, "S": 48, "hidden_size": 20, "input_size": 9, "H": 7, "W": 9, "channels": 3, "c_in": 2, "c_out": 2},
    {"B": 2, "S": 9, "hidden_size": 12, "input_size": 4, "H": 10, "W": 11, "channels": 2, "c_in": 5, "c_out": 7},
)


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=pytest.mark.heavy) if one == "Recurrent" else one for one in CASES]
)
def test_a_module_is_right_at_ordinary_sizes(name: str) -> None:
    make, names = CASES[name]
    library = library_of(name)
    entry = entry_of(library, name)
    formulas = formulas_of(library.entries.values())
    compared = 0
    for sizes in ({one: point[one] for one in names} for point in ORDINARY):
        try:
            found = tuple(
                compute(
                    formulas, entry.module_path, one, {**sizes, "dtype_bytes": 4} if one != Quantity.FLOPS else sizes
                )
                for one in (Quantity.FLOPS, Quantity.READS, Quantity.WRITES)
            )
        except OutsideDomainError:
            continue
        assert found == measured(make, sizes), sizes
        compared += 1
    assert compared >= 3


def test_each_side_of_a_comparison_has_its_own_formula() -> None:
    entry = entry_of(library_of("EvenOdd"), "EvenOdd")
    assert "if ${S} % 2 == 0 else" in entry.flop_analysis.formula_template
    assert "16 < ${S}" in entry_of(library_of("Above16"), "Above16").flop_analysis.formula_template


def test_tested_ranges_are_in_the_domain_where_comparisons_are_not_known() -> None:
    assert any(one.startswith("S <= ") for one in entry_of(library_of("PlainNumber"), "PlainNumber").domain)
    complete = entry_of(library_of("EvenOdd"), "EvenOdd")
    assert not any(one.startswith("S <= ") for one in complete.domain)
    assert complete.evidence is not None
    assert {"hidden", "symbolic"} <= set(complete.evidence.routes)


def test_a_module_that_no_formula_describes_is_refused_with_the_sizes() -> None:
    library = derive_recipe(of_tokens(PerElement), TOKENS, bench())
    assert not any(name.endswith("PerElement") for name in library.entries)
    reason = next(one.reason for name, one in library.refused.items() if name.endswith("PerElement"))
    assert reason


def test_an_entry_is_measured_again_by_its_recipe() -> None:
    make, sizes = CASES["EvenOdd"]
    library = library_of("EvenOdd")
    entry = entry_of(library, "EvenOdd")
    formulas = formulas_of(library.entries.values())
    assert remeasure(formulas, entry, make, sizes, bench()).problem(entry) == ""


def test_a_recipe_that_cannot_run_is_refused_with_its_error() -> None:
    def make(sizes: Mapping[str, int]) -> Made:
        return nn.Linear(sizes["B"], 4), (torch.zeros(1, sizes["B"] + 1),)

    (refused,) = derive_recipe(make, ("B",), bench()).refused.values()
    assert "cannot be run" in refused.reason


def test_sizes_that_must_be_multiples_of_others_are_found() -> None:
    def make(sizes: Mapping[str, int]) -> Made:
        heads, width = sizes["heads"], sizes["width"]
        return nn.Unflatten(-1, (heads, width // heads)), (torch.zeros(sizes["B"], width),)

    subject = prepare(make, ("B", "heads", "width"), bench())
    assert [(one.size, one.of) for one in subject.multiples] == [("width", "heads")]


def test_a_point_whose_weights_would_not_fit_is_not_built() -> None:
    """nn.TransformerEncoder copies its layer: at large sizes a build would take all memory of the machine."""
    built: list[Mapping[str, int]] = []

    def make(sizes: Mapping[str, int]) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
        built.append(dict(sizes))
        layer = nn.TransformerEncoderLayer(sizes["width"], 1, sizes["inner"], batch_first=True)
        return nn.TransformerEncoder(layer, sizes["layers"]), (torch.zeros(1, 2, sizes["width"]),)

    subject = Subject(make=make, sizes=("width", "inner", "layers"), bench=bench())

    assert subject.measure({"width": 4096, "inner": 16384, "layers": 40}, held_out=False) is None
    assert "GiB" in subject.problem
    assert len(built) == 1  # without memory
    assert subject.measure({"width": 4, "inner": 8, "layers": 2}, held_out=False) is not None
