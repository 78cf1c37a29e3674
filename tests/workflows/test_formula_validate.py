import msgspec
import pytest

from torchstone.errors import InputError
from torchstone.formula.database.files import Formulas, load_shipped
from torchstone.workflows.formula_validate import ValidateRequest, validate_formulas

RELU = "torch.nn.modules.activation.ReLU"


def formulas(relu_flops: str = "") -> Formulas:
    entries = load_shipped().modules
    key = RELU.replace(".", "__")
    if not relu_flops:
        return Formulas(entries=entries)
    analysis = msgspec.structs.replace(
        entries[key].flop_analysis, formula_template=relu_flops, breakdown={"aten.relu.default": relu_flops}
    )
    return Formulas(entries={**entries, key: msgspec.structs.replace(entries[key], flop_analysis=analysis)})


def test_a_shipped_formula_agrees_with_fresh_captures() -> None:
    result = validate_formulas(ValidateRequest(name=RELU, points=1), formulas())

    assert list(result.agree) == [RELU]
    assert (result.differences, result.outside, result.not_built) == ([], {}, [])


def test_a_wrong_formula_differs_in_a_named_term() -> None:
    result = validate_formulas(ValidateRequest(name=RELU, quick=True), formulas("2 * elements"))

    (difference,) = result.differences
    assert difference.computed == 2 * difference.measured
    assert difference.term.startswith("aten.relu.default: 2 * elements is")


def test_a_class_that_nothing_builds_cannot_be_validated() -> None:
    with pytest.raises(InputError, match="nothing builds TransformerBlock, so it cannot be measured"):
        validate_formulas(ValidateRequest(name="TransformerBlock"), formulas())
