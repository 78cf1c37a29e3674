from typing import Any

import pytest

from torchstone.backends.program_format import ProgramError, only_entry, tensor_names_in

NESTED = [{"tensor": "a"}, None, {"tuple": [1, {"tensor": "b"}]}, {"dict": [["key", {"tensor": "a"}]]}]


def test_the_tensors_of_an_argument_are_named_in_order() -> None:
    assert list(tensor_names_in(NESTED)) == ["a", "b", "a"]
    assert list(tensor_names_in({"atom": {"kind": "dtype", "text": "int8"}})) == []


@pytest.mark.parametrize("argument", [{}, {"list": [], "tuple": []}])
def test_a_value_is_of_one_kind(argument: dict[str, Any]) -> None:
    assert only_entry({"tensor": "a"}) == ("tensor", "a")
    with pytest.raises(ProgramError, match="not a value"):
        only_entry(argument)
