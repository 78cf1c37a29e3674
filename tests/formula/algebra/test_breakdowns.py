import pytest
from msgspec.structs import replace

from tests.formula.entries import entry, formulas
from torchstone.formula.algebra.simplify import adds_up, breakdown_problems
from torchstone.formula.database.files import Formulas, load_shipped
from torchstone.record.formula import FormulaEntry

LEAF = entry("Leaf", "2 * ${n}", "n")


def net(formula: str, *parts: str, domain: tuple[str, ...] = ()) -> FormulaEntry:
    one = entry("Net", formula, "a", "b", domain=domain)
    named = {f"part {number}": text for number, text in enumerate(parts)}
    return replace(one, flop_analysis=replace(one.flop_analysis, breakdown=named))


@pytest.mark.parametrize(
    "one",
    [
        net("a * (b + 1)", "a * b", "a"),
        net("2 * {Leaf}(a) + b", "{Leaf}(a)", "b", "{Leaf}(n=a)"),
        net("{Leaf}(a + b)", "{Leaf}(a)", "2 * b"),
        net("a // b * b", "a", domain=("a % b == 0",)),
    ],
)
def test_parts_that_add_up_are_known_to(one: FormulaEntry) -> None:
    assert adds_up(formulas(LEAF, one), one)


@pytest.mark.parametrize("one", [net("a * b", "a"), net("a // b * b", "a"), net("a", "{Nowhere}(a)"), net("a", "a +")])
def test_parts_that_do_not_add_up_are_named(one: FormulaEntry) -> None:
    assert list(breakdown_problems(formulas(LEAF, one))) == [
        "Net: the parts of the breakdown do not add up to the formula"
    ]


def test_a_formula_without_parts_has_nothing_to_add_up() -> None:
    assert list(breakdown_problems(formulas(LEAF))) == []


def test_the_parts_of_every_shipped_entry_add_up() -> None:
    assert list(breakdown_problems(Formulas(entries=load_shipped().modules))) == []
