import msgspec
import pytest

from tests.formula.derive.benches import bench
from torchstone.formula.database import load_shipped
from torchstone.formula.derive.built_models import Options
from torchstone.formula.derive.confirming import confirm_model, with_symbolic_route

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
    entry = SHIPPED[MLP]
    wrong = msgspec.structs.replace(
        entry, flop_analysis=msgspec.structs.replace(entry.flop_analysis, formula_template="B * S * n_embd")
    )

    found, _ = confirm_model("gpt2", {**SHIPPED, MLP: wrong}, bench().price, Options(), "")

    assert not found[entry.module_path]


def test_a_model_that_does_not_run_this_way_says_why() -> None:
    found, failure = confirm_model("t5", SHIPPED, bench().price, Options(), "")

    assert found == {}
    assert failure.startswith("ValueError")


def test_the_route_is_added_to_the_evidence_once() -> None:
    entry = with_symbolic_route(with_symbolic_route(SHIPPED[MLP]))

    assert entry.evidence is not None
    assert entry.evidence.routes.count("symbolic") == 1
