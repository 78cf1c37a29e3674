import msgspec
import pytest
import torch
from torch import nn

from tests.formula.derive.benches import observed, sample, torch_library
from tests.formula.entries import formulas
from torchstone.formula.database.files import Formulas
from torchstone.formula.derive.validate import entry_for, validate
from torchstone.record.formula import FormulaEntry, Quantity

LINEAR = "torch.nn.modules.linear.Linear"


def linear(**changed: object) -> FormulaEntry:
    entry = torch_library().entries[LINEAR]
    if not changed:
        return entry
    return msgspec.structs.replace(entry, flop_analysis=msgspec.structs.replace(entry.flop_analysis, **changed))


@pytest.fixture(scope="module")
def known() -> Formulas:
    return formulas(linear())


def test_a_right_formula_agrees_at_every_call(known: Formulas) -> None:
    seen = observed([sample(nn.Linear(8, 4, bias=bias), torch.zeros(3, 8)) for bias in (True, False)])

    result = validate(known, seen)

    assert result.checked == {LINEAR: 2}
    assert result.differences == []


def test_a_wrong_formula_is_named_with_the_term_that_differs() -> None:
    wrong = linear(
        formula_template="batch_elements * input_features * output_features",
        breakdown={"aten.mm.default": "batch_elements * input_features * output_features"},
    )

    result = validate(formulas(wrong), observed([sample(nn.Linear(8, 4, bias=False), torch.zeros(3, 8))]))

    (difference,) = result.differences
    assert difference.quantity is Quantity.FLOPS
    assert (difference.computed, difference.measured) == (96, 192)
    assert difference.term == "aten.mm.default: batch_elements * input_features * output_features is 96, measured 192"


def test_a_call_outside_the_domain_is_not_compared() -> None:
    narrow = msgspec.structs.replace(linear(), domain=("batch_elements > 100",))

    result = validate(formulas(narrow), observed([sample(nn.Linear(8, 4), torch.zeros(3, 8))]))

    assert "holds only where batch_elements > 100" in result.outside[LINEAR]
    assert result.checked == {}


def test_classes_without_a_formula_are_counted(known: Formulas) -> None:
    result = validate(known, observed([sample(nn.Sequential(nn.Tanh()), torch.zeros(3, 8))]))

    assert sum(result.unknown.values()) == 2


def test_another_code_path_is_compared_with_its_own_entries_only(known: Formulas) -> None:
    seen = observed([sample(nn.Linear(8, 4), torch.zeros(3, 8))])

    assert entry_for(known, LINEAR, "") == linear()
    assert entry_for(known, LINEAR, "eager") is None
    assert validate(known, seen, "eager").unknown == {}
