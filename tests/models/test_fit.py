import pytest
import torch
from torch import Tensor, nn

from torchstone.errors import ModelInputsError
from torchstone.models.inputs import inputs_from_value
from torchstone.models.prepare import check_inputs_match


class Add(nn.Module):
    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return left + right


ONE = torch.zeros(1)


@pytest.mark.parametrize("given", [(ONE, ONE), {"left": ONE, "right": ONE}, ((ONE,), {"right": ONE})])
def test_inputs_that_match_by_number_or_name_are_let_through(given: object) -> None:
    check_inputs_match(Add(), inputs_from_value(given, origin="net.py::get_inputs"))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (ONE, "missing a required argument: 'right'"),
        ((ONE, ONE, ONE), "too many positional arguments"),
        ({"left": ONE, "middle": ONE}, "missing a required argument: 'right'"),
        ({"left": ONE, "right": ONE, "middle": ONE}, "got an unexpected keyword argument 'middle'"),
    ],
)
def test_inputs_that_do_not_are_refused_with_what_forward_takes(given: object, why: str) -> None:
    with pytest.raises(ModelInputsError) as caught:
        check_inputs_match(Add(), inputs_from_value(given, origin="net.py::get_inputs"))
    assert str(caught.value) == (
        f"the inputs (net.py::get_inputs) do not match Add: {why}; its forward takes left, right; "
        "pass matching ones with --inputs FILE.py::FN"
    )


def test_a_hook_may_hand_over_what_is_missing() -> None:
    model = Add()
    model.register_forward_pre_hook(lambda _, given: (*given, ONE))

    check_inputs_match(model, inputs_from_value(ONE, origin="net.py::get_inputs"))
