import pytest

from tests.formula.entries import entry, formulas
from torchstone.errors import FormulaError
from torchstone.formula.algebra.simplify import inlined, inlined_term, with_defaults
from torchstone.formula.database.compute import compute
from torchstone.formula.database.files import Formulas, load_shipped
from torchstone.formula.language.evaluate import evaluate
from torchstone.formula.language.expression import called_modules, free_parameters
from torchstone.formula.language.parse import parse
from torchstone.formula.language.print import show
from torchstone.record.formula import Quantity

LINEAR = entry("Linear", "2 * ${n} * ${i} * ${o}", "n", "i", "o", defaults={"o": "${i}"})
NET = entry("Net", "3 * {Linear}(${B} * ${S}, ${H}) + ${B}", "B", "S", "H")
KNOWN = formulas(LINEAR, NET)


def test_calls_are_replaced_by_what_they_stand_for() -> None:
    assert show(inlined(KNOWN, NET, Quantity.FLOPS), plain=True) == "3 * (2 * (B * S) * H * H) + B"


def test_given_parameters_are_put_in() -> None:
    assert inlined(KNOWN, NET, Quantity.FLOPS, {"B": 1, "S": parse("2 * T")}) == parse(
        "3 * (2 * (1 * (2 * T)) * H * H) + 1"
    )
    with pytest.raises(FormulaError, match="Net has no parameter x; it has B, S, H"):
        inlined(KNOWN, NET, Quantity.FLOPS, {"x": 1})


def test_one_term_is_replaced_alone() -> None:
    assert inlined_term(KNOWN, NET, Quantity.FLOPS, parse("{Linear}(B, H, o=S)")) == parse("2 * B * H * S")


def test_defaults_are_filled_in_terms_of_what_is_given() -> None:
    net = entry("Net", "1", "a", "b", "c", defaults={"a": "b + 1", "b": "2 * c"})

    found = with_defaults(net, Quantity.FLOPS, {"c": parse("x")})
    assert {name: show(tree, plain=True) for name, tree in found.items()} == {"a": "2 * x + 1", "b": "2 * x", "c": "x"}
    with pytest.raises(FormulaError, match="Net needs values for a, b, c"):
        with_defaults(net, Quantity.FLOPS, {})


def test_the_written_out_formula_has_the_value_of_the_nested_one() -> None:
    shipped = Formulas(entries=load_shipped().modules)
    point = {"B": 3, "S": 17, "hidden_size": 24, "num_heads": 4, "intermediate_size": 50, "dtype_bytes": 2}
    for quantity in Quantity:
        tree = inlined(shipped, shipped.find("TransformerBlock"), quantity)

        assert called_modules(tree) == ()
        assert set(free_parameters(tree)) <= set(point)
        assert evaluate(tree, point) == compute(shipped, "TransformerBlock", quantity, point)


def test_what_would_grow_beyond_reason_is_refused() -> None:
    chain = [entry(f"N{n}", f"{{N{n + 1}}}() + {{N{n + 1}}}()") for n in range(30)]
    known = formulas(*chain, entry("N30", "1"))

    with pytest.raises(FormulaError, match="has more than 20000 parts"):
        inlined(known, known.find("N0"), Quantity.FLOPS)


def test_what_would_be_nested_too_deep_is_refused() -> None:
    chain = [entry(f"N{n}", f"-(-(-(1 + {{N{n + 1}}}())))") for n in range(35)]
    known = formulas(*chain, entry("N35", "1"))

    with pytest.raises(FormulaError, match="is nested more than 100 deep"):
        inlined(known, known.find("N0"), Quantity.FLOPS)
