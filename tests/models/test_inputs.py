from collections import UserDict
from typing import Any

import pytest
import torch

from torchstone.errors import InputError, ModelInputsError
from torchstone.models.inputs import InputOptions, Inputs, inputs_from_value

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
    with pytest.raises(ModelInputsError, match=rf"net\.py::get_inputs: {named} cannot be .*tensor.*tuple.*dict"):
        inputs_from_value(value, origin="net.py::get_inputs")


def test_keyword_names_must_be_text() -> None:
    with pytest.raises(ModelInputsError, match=r"not a string: 1;"):
        inputs_from_value({1: X}, origin="here")


def test_inputs_stay_as_they_are() -> None:
    inputs = Inputs(args=(X,), origin="before", notes=("x: generated",))
    assert inputs_from_value(inputs, origin="after") is inputs


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"batch_size": 0}, "--batch-size must be at least 1, not 0"),
        ({"seq_len": -3}, "--seq-len must be at least 1"),
        ({"phase": "decoding"}, "unknown phase 'decoding'; use prefill or decode"),
        ({"cache_len": 5}, "--cache-len applies only to the decode phase"),
    ],
)
def test_options_that_no_model_can_follow_are_refused(options: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        InputOptions(**options)


def test_the_options_about_inputs_that_were_given_are_known() -> None:
    assert InputOptions(seq_len=3, phase="decode", dtype="float16").given_input_options() == ["seq_len", "phase"]
