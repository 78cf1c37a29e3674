from msgspec.structs import replace

from tests.sweep.builders import call, mm, tensor, vector
from torchstone.sweep.vectors import call_text


def test_a_call_is_shown_with_its_arguments_but_for_those_that_are_none() -> None:
    text = call_text(vector(call("aten.sum.dim_IntList", self_=tensor(2, 3), dim=1, dtype=None)))

    assert text == "self=float32[2, 3], dim=1"


def test_a_neighbour_says_what_was_changed() -> None:
    assert call_text(vector(mm(), change="size 3 -> 1")).endswith(" [size 3 -> 1]")


def test_a_vector_of_a_module_shows_its_parameters_and_long_ones_are_cut() -> None:
    module = replace(vector(), configuration=None, parameters={"shape": [1, 2], "text": "x" * 1000})

    assert call_text(module).startswith("shape=[1, 2], text=xxx")
    assert len(call_text(module)) == 300
