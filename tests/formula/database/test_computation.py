import time
from fractions import Fraction
from typing import Any

import pytest

from tests.formula.entries import entry, formulas
from torchstone.errors import FormulaError
from torchstone.formula import compute_flops
from torchstone.formula.database.compute import Computation, given_values
from torchstone.formula.database.files import Formulas, load_shipped
from torchstone.formula.language.parse import parse
from torchstone.record.formula import Quantity

SHIPPED = Formulas(entries=load_shipped().modules)
BLOCK: dict[str, Any] = {"B": 1, "S": 2048, "hidden_size": 4096, "num_heads": 32, "intermediate_size": 11008}


def test_a_piece_of_a_template_is_computed_alone() -> None:
    net = entry("Net", "1", "n")
    computation = Computation(formulas(entry("Leaf", "${x} + 1", "x"), net), Quantity.FLOPS)

    assert computation.of_tree(net, parse("3 * {Leaf}(n)"), {"n": 4}) == 15
    assert computation.settled(net, {"n": 4}) == {"n": 4}
    assert given_values(net, Quantity.FLOPS, {"n": True}) == {"n": 1}


def test_a_point_outside_the_domain_is_refused() -> None:
    with pytest.raises(FormulaError, match=r"holds only where hidden_size % num_heads == 0, not at hidden_size=4096, "):
        compute_flops("TransformerBlock", formulas=SHIPPED, **{**BLOCK, "num_heads": 3})


def test_the_domain_of_a_nested_module_counts_too() -> None:
    known = formulas(entry("Leaf", "1", "n", domain=("n > 0",)), entry("Net", "{Leaf}(${n} - 5)", "n"))

    assert compute_flops("Net", n=6, formulas=known) == 1
    with pytest.raises(FormulaError, match="Leaf holds only where n > 0, not at n=0"):
        compute_flops("Net", n=5, formulas=known)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"n": 1, "x": 2}, "Net has no parameter x; it has n"),
        ({}, r"Net\(n\): missing required parameters n"),
        ({"n": 1.5}, r"the value of n is 1\.5, which is not an exact number"),
        ({"n": "3"}, "the value of n is '3', which is not an exact number"),
        ({"n": -3}, "the value of n is -3; sizes and counts are not negative"),
    ],
)
def test_wrong_parameters_are_refused(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(FormulaError, match=reason):
        compute_flops("Net", formulas=formulas(entry("Net", "${n}", "n")), **given)


def test_fractions_are_exact_to_the_end() -> None:
    assert compute_flops("Net", n=Fraction(1, 3), formulas=formulas(entry("Net", "${n} / 2", "n"))) == Fraction(1, 6)


def test_equal_calls_are_computed_once() -> None:
    chain = [entry(f"N{number}", f"{{N{number + 1}}}() + {{N{number + 1}}}()") for number in range(30)]

    assert compute_flops("N0", formulas=formulas(*chain, entry("N30", "1"))) == 2**30


def test_calls_that_multiply_without_end_are_stopped() -> None:
    chain = [
        entry(f"N{number}", f"{{N{number + 1}}}(2 * ${{x}}) + {{N{number + 1}}}(2 * ${{x}} + 1)", "x")
        for number in range(30)
    ]
    start = time.process_time()
    with pytest.raises(FormulaError, match="takes more than 200000 steps"):
        compute_flops("N0", x=1, formulas=formulas(*chain, entry("N30", "${x}", "x")))

    assert time.process_time() - start < 10


def test_the_deepest_allowed_nesting_is_computed() -> None:
    chain = [entry(f"N{number}", f"-(-(1 + {{N{number + 1}}}(max(1, ${{x}}))))", "x") for number in range(39)]

    assert compute_flops("N0", x=5, formulas=formulas(*chain, entry("N39", "${x}", "x"))) == 39 + 5
