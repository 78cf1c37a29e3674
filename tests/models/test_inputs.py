from collections import UserDict

import pytest
import torch

from torchstone.errors import ModelInputsError
from torchstone.models.inputs import Inputs, inputs_from_value

X, Y = torch.zeros(1), torch.ones(2)


@pytest.mark.parametrize(
    ("value", "args", "kwargs"),
    [
        (X, (X,), {}),
        ((X, Y), (X, Y), {}),
        ([X, Y], (X, Y), {}),
        ({"x": X}, (), {"x": X}),
        (UserDict({"x": X}), (), {"x": X}),
        (((X,), {"y": Y}), (X,), {"y": Y}),
        (([X, Y], {}), (X, Y), {}),
        ((X, {"y": Y}), (X, {"y": Y}), {}),  # the first is no tuple: a positional dict
        ((), (), {}),
    ],
)
def test_every_documented_form_of_inputs_is_read(value: object, args: tuple[object, ...], kwargs: object) -> None:
    inputs = inputs_from_value(value, origin="here")
    assert (inputs.args, inputs.kwargs, inputs.origin) == (args, kwargs, "here")


@pytest.mark.parametrize(("value", "named"), [(None, "a NoneType"), (3, "an int"), ("text", "a str")])
def test_what_cannot_be_inputs_is_named_with_the_forms_that_can(value: object, named: str) -> None:
    with pytest.raises(ModelInputsError, match=rf"net\.py::get_inputs gave {named}, .*tensor.*tuple.*dict"):
        inputs_from_value(value, origin="net.py::get_inputs")


def test_keyword_names_must_be_text() -> None:
    with pytest.raises(ModelInputsError, match=r"not text \(1\)"):
        inputs_from_value({1: X}, origin="here")


def test_inputs_stay_as_they_are() -> None:
    inputs = Inputs(args=(X,), origin="before", notes=("x: made up",))
    assert inputs_from_value(inputs, origin="after") is inputs
