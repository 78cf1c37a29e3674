from math import inf, isnan
from typing import Any

import pytest
import torch

from torchstone.backends.program import atom_source, read_atom, read_value, value_source
from torchstone.backends.program_format import ProgramError

ATOMS = [
    ("dtype", "float32", torch.float32),
    ("dtype", "torch.bool", torch.bool),
    ("layout", "strided", torch.strided),
    ("memory_format", "channels_last", torch.channels_last),
    ("device", "cpu", torch.device("cpu")),
    ("device", "cuda:1", torch.device("cuda", 1)),
    ("float", "-inf", -inf),
    ("complex", "(1+2j)", 1 + 2j),
    ("int", str(1 << 70), 1 << 70),
    ("symbol", "7", 7),
    ("slice", "0:None:2", slice(0, None, 2)),
    ("ellipsis", "...", ...),
    ("enum", "SDPBackend.MATH", torch.nn.attention.SDPBackend.MATH),
]


@pytest.mark.parametrize(("kind", "text", "value"), ATOMS)
def test_every_kind_of_scalar_is_read(kind: str, text: str, value: Any) -> None:
    assert read_atom(kind, text) == value


@pytest.mark.parametrize(("kind", "text", "value"), ATOMS)
def test_every_kind_of_scalar_is_written_as_python(kind: str, text: str, value: Any) -> None:
    import torch.nn.attention

    assert eval(atom_source(kind, text), {"torch": torch}) == value  # noqa: S307 - the text is ours


def test_nan_is_read_and_written() -> None:
    assert isnan(read_atom("float", "nan"))
    assert atom_source("float", "nan") == "float('nan')"


@pytest.mark.parametrize(
    ("kind", "text"),
    [("symbol", "s0 + 1"), ("enum", "Colour.RED"), ("dtype", "float3"), ("script", "x"), ("slice", "a:b")],
)
def test_a_scalar_that_means_nothing_here_is_told(kind: str, text: str) -> None:
    with pytest.raises(ProgramError, match=kind):
        read_atom(kind, text)


NESTED = {
    "list": [
        {"tensor": "a"},
        None,
        {"tuple": [1, {"tensor": "b"}]},
        [2.5, "text", True],
        {"dict": [["key", {"tensor": "a"}]]},
        {"set": [3]},
        {"atom": {"kind": "dtype", "text": "int8"}},
    ]
}


def test_nested_arguments_are_read() -> None:
    value = read_value(NESTED, {"a": "A", "b": "B"})

    assert value == ["A", None, (1, "B"), [2.5, "text", True], {"key": "A"}, {3}, torch.int8]


def test_nested_arguments_are_written_as_python() -> None:
    assert eval(value_source(NESTED), {"torch": torch, "a": "A", "b": "B"}) == [  # noqa: S307 - the text is ours
        "A", None, (1, "B"), [2.5, "text", True], {"key": "A"}, {3}, torch.int8
    ]  # fmt: skip


@pytest.mark.parametrize("argument", [{"tensor": "z"}, {"colour": "red"}, {"list": [], "tuple": []}, {}])
def test_an_argument_that_is_no_value_is_told(argument: Any) -> None:
    with pytest.raises(ProgramError, match="the program"):
        read_value(argument, {})
