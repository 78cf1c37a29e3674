import pytest

from tests.formula.entries import entry, formulas
from torchstone.errors import FormulaError
from torchstone.formula.algebra.polynomial import same_value
from torchstone.formula.algebra.simplify import inlined, named_parts
from torchstone.formula.algebra.view import Form, FormulaView
from torchstone.formula.database.files import Formulas, load_shipped
from torchstone.formula.language.expression import Number, Sum, free_parameters
from torchstone.formula.language.parse import parse
from torchstone.formula.language.print import show
from torchstone.record.formula import Quantity

SHIPPED = Formulas(entries=load_shipped().modules)
BLOCK = {"hidden_size": "4096", "num_heads": "32", "intermediate_size": "11008"}


def view(name: str, **given: str) -> FormulaView:
    return FormulaView(SHIPPED, SHIPPED.find(name), {key: parse(text) for key, text in given.items()})


def test_a_formula_is_shown_as_written_with_some_values_put_in() -> None:
    tree = view("MLP", B="1").formula(Quantity.FLOPS)

    assert show(tree, plain=True).startswith("Linear(1 * S, hidden_size, intermediate_size) + ")


def test_a_formula_is_multiplied_out_within_its_domain() -> None:
    tree = view("MultiHeadAttention").formula(Quantity.FLOPS, Form.EXPANDED)

    assert show(tree, plain=True) == "2 * B * S**2 * hidden_size + 8 * B * S * hidden_size**2"


def test_a_formula_is_written_as_a_product() -> None:
    pytest.importorskip("sympy", reason="writing formulas as products needs sympy")
    tree = view("MultiHeadAttention").formula(Quantity.FLOPS, Form.FACTORED)

    assert show(tree, plain=True) == "2 * B * S * hidden_size * (S + 4 * hidden_size)"


def test_an_unknown_parameter_is_refused() -> None:
    with pytest.raises(FormulaError, match="MLP has no parameter X; it has B, S"):
        view("MLP", X="1")


def test_growth_is_that_of_the_whole_formula() -> None:
    orders = {growth.parameter: growth.order for growth in view("TransformerBlock").growth(Quantity.FLOPS)}

    assert orders == {"B": 1, "S": 2, "hidden_size": 2, "num_heads": 0, "intermediate_size": 1}


def test_the_part_that_dominates_is_named_by_its_path_of_attributes() -> None:
    first, *_, last = view("TransformerBlock", B="1", **BLOCK).dominant_terms(Quantity.FLOPS, "S")

    assert (first.part, first.first) == ("attention.qkv_projections", 1)
    assert last.part.startswith("attention.")
    assert last.first > 1


def test_the_parts_add_up_to_the_whole() -> None:
    for name in ("TransformerBlock", "LlamaForCausalLM", "BertLayer"):
        one = SHIPPED.find(name)
        for quantity in (Quantity.FLOPS, Quantity.READS, Quantity.WEIGHTS):
            whole = Sum((Number(0), *named_parts(SHIPPED, one, quantity, {}).values()))
            assert same_value(whole, inlined(SHIPPED, one, quantity)), (name, quantity)


def test_a_default_that_follows_from_given_values_is_resolved() -> None:
    tree = view("MultiHeadAttention", hidden_size="4096", num_heads="32").formula(Quantity.FLOPS, Form.EXPANDED)

    assert free_parameters(tree) == ("B", "S")


def test_the_power_that_dominates_is_named() -> None:
    linear, square = view("TransformerBlock", B="1", **BLOCK).dominant_powers(Quantity.FLOPS, "S")

    assert (linear.part, square.part, square.first) == ("S", "S**2", 38407)


def test_missing_values_are_named() -> None:
    with pytest.raises(FormulaError, match="give values for hidden_size, num_heads, intermediate_size, such as"):
        view("TransformerBlock", B="1").dominant_terms(Quantity.FLOPS, "S")
    with pytest.raises(FormulaError, match="S has a given value; drop S=VALUE"):
        view("MLP", S="1").largest((Quantity.FLOPS,), "S", 5)
    with pytest.raises(FormulaError, match="MLP has no parameter T"):
        view("MLP").largest((Quantity.FLOPS,), "T", 5)


def test_the_largest_batch_is_found_with_defaults() -> None:
    asked = (Quantity.WEIGHTS, Quantity.INTERMEDIATES)
    one = view("TransformerBlock", S="2048", **BLOCK)
    solution = one.largest(asked, "B", 80 * 2**30)

    assert solution is not None
    assert (solution.value, solution.proven) == (242, True)
    assert sum(one.values_at(asked, "B", 242).values()) == solution.cost <= 80 * 2**30 < solution.next_cost


def test_values_that_go_in_a_circle_with_defaults_are_refused() -> None:
    net = entry("Net", "${B} * ${c}", "B", "c", "d", defaults={"c": "${d}"})
    circle = FormulaView(formulas(net), net, {"d": parse("c")})

    with pytest.raises(FormulaError, match="circular dependency"):
        circle.largest((Quantity.FLOPS,), "B", 10)
