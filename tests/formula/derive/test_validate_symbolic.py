import msgspec
import pytest

from tests.formula.derive.benches import bench
from tests.formula.entries import entry, formulas, memory
from torchstone.formula.algebra.polynomial import Polynomial
from torchstone.formula.database.files import Formulas, load_shipped
from torchstone.formula.derive.symbolic_run import SymbolicCosts
from torchstone.formula.derive.validate import Options
from torchstone.formula.derive.validate_library import confirm_model, confirmed, with_symbolic_route

SHIPPED = load_shipped().modules
MLP = "transformers__models__gpt2__modeling_gpt2__GPT2MLP"


def test_symbolic_sizes_lead_to_the_shipped_formulas() -> None:
    found, failure = confirm_model("gpt2", SHIPPED, bench().price, Options(), "")

    assert failure == ""
    names = {name.rpartition(".")[2]: equal for name, equal in found.items()}
    assert names["GPT2Attention"]
    assert names["GPT2Block"]
    assert all(names.values())


@pytest.mark.heavy
def test_a_wrong_formula_is_contradicted() -> None:
    right = SHIPPED[MLP]
    wrong = msgspec.structs.replace(
        right, flop_analysis=msgspec.structs.replace(right.flop_analysis, formula_template="B * S * hidden_size")
    )

    found, _ = confirm_model("gpt2", {**SHIPPED, MLP: wrong}, bench().price, Options(), "")

    assert not found[right.module_path]


def test_a_model_that_does_not_run_this_way_says_why() -> None:
    found, failure = confirm_model("t5", SHIPPED, bench().price, Options(), "")

    assert found == {}
    assert failure.startswith("ValueError")


def test_the_route_is_added_to_the_evidence_once() -> None:
    twice = with_symbolic_route(with_symbolic_route(SHIPPED[MLP]))

    assert twice.evidence is not None
    assert twice.evidence.routes.count("symbolic") == 1


TOKENS = Polynomial.product(1, {"B": 1, "S": 1})
FORMS = (Polynomial.constant(128) * TOKENS, Polynomial.constant(32) * TOKENS, Polynomial.constant(32) * TOKENS)


def known(flops: str) -> Formulas:
    bytes_of = memory("B", "S", reads="32*B*S", writes="32*B*S")
    return formulas(msgspec.structs.replace(entry("net.Inner", flops, "B", "S"), memory_analysis=bytes_of))


def test_a_formula_is_confirmed_or_contradicted() -> None:
    costs = SymbolicCosts(by_class={"net.Inner": FORMS})

    assert confirmed(costs, known("128*B*S"), {}, dtype_bytes=4, variant="") == {"net.Inner": True}
    assert confirmed(costs, known("128*B*S + S"), {}, dtype_bytes=4, variant="") == {"net.Inner": False}


def test_a_class_with_other_parameters_or_several_costs_is_not_compared() -> None:
    several = SymbolicCosts(by_class={"net.Inner": FORMS}, ambiguous={"net.Inner"})
    one = SymbolicCosts(by_class={"net.Inner": FORMS})

    assert confirmed(several, known("128*B*S"), {}, dtype_bytes=4, variant="") == {}
    assert confirmed(one, formulas(entry("net.Inner", "width", "width")), {}, dtype_bytes=4, variant="") == {}
