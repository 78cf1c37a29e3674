from typing import Any

import pytest
import torch

from torchstone.backends.program import find_op, program_module, random_ops, written_names
from torchstone.backends.program_format import ProgramError, only_entry, tensor_names_in
from torchstone.backends.protocol import Unsupported

X = {"tensor": "x"}
Y = {"tensor": "y"}


def step(op: str, *args: Any, outputs: list[Any], **kwargs: Any) -> dict[str, Any]:
    return {"op": op, "args": list(args), "kwargs": kwargs, "outputs": outputs}


def program(*steps: dict[str, Any], inputs: str = "x", outputs: str = "t", constants: str = "") -> dict[str, Any]:
    trees = [{"tensor": name} for name in outputs.split()]
    return {"inputs": inputs.split(), "constants": constants.split(), "steps": list(steps), "outputs": trees}


def test_one_op_runs() -> None:
    made = program_module(program(step("aten.mm.default", X, Y, outputs=["t"]), inputs="x y"))

    x, y = torch.randn(2, 3), torch.randn(3, 4)
    assert torch.equal(made(x, y), x @ y)


def test_a_line_of_ops_runs_with_constants_as_buffers() -> None:
    described = program(
        step("aten.add.Tensor", X, {"tensor": "w"}, outputs=["a"], alpha=2),
        step("aten.relu.default", {"tensor": "a"}, outputs=["t"]),
        constants="w",
    )
    made = program_module(described, {"w": torch.tensor([1.0, -9.0])})

    assert made(torch.tensor([1.0, 2.0])).tolist() == [3.0, 0.0]
    assert [name for name, _ in made.named_buffers()] == ["w"]


def test_ops_with_several_outputs_give_the_ones_that_are_named() -> None:
    described = program(step("aten.max.dim", X, 0, outputs=[None, "t"]))

    assert program_module(described)(torch.tensor([[1.0, 5.0], [2.0, 3.0]])).tolist() == [1, 0]


def test_a_list_of_tensors_goes_in_and_comes_out() -> None:
    described = program(
        step("aten.split.Tensor", X, 2, outputs=["a", "b"]),
        step("aten.cat.default", {"list": [{"tensor": "b"}, {"tensor": "a"}]}, outputs=["t"]),
    )

    assert program_module(described)(torch.arange(4)).tolist() == [2, 3, 0, 1]


def test_a_list_of_one_tensor_is_still_a_list() -> None:
    described = program(step("aten.split.Tensor", X, 4, outputs=["t"]))

    assert program_module(described)(torch.arange(4)).tolist() == [0, 1, 2, 3]


def test_indices_with_none_between_them_run() -> None:
    described = program(step("aten.index.Tensor", X, {"list": [None, Y]}, outputs=["t"]), inputs="x y")

    assert program_module(described)(torch.arange(6).reshape(2, 3), torch.tensor([2])).tolist() == [[2], [5]]


def test_scalars_without_a_json_word_reach_the_op() -> None:
    described = program(
        step("aten._to_copy.default", X, dtype={"atom": {"kind": "dtype", "text": "bfloat16"}}, outputs=["a"]),
        step("aten.masked_fill.Scalar", {"tensor": "a"}, Y, {"atom": {"kind": "float", "text": "-inf"}}, outputs=["t"]),
        inputs="x y",
    )

    result = program_module(described)(torch.ones(2), torch.tensor([True, False]))
    assert (result.dtype, result.tolist()) == (torch.bfloat16, [float("-inf"), 1.0])


def test_an_op_that_writes_to_its_input_gives_the_same_twice() -> None:
    made = program_module(program(step("aten.add_.Tensor", X, 1, outputs=["x"]), outputs="x"))
    x = torch.zeros(2)

    assert made(x).tolist() == made(x).tolist() == [1.0, 1.0]
    assert x.tolist() == [0.0, 0.0]


def test_a_write_through_a_view_is_seen_by_the_steps_after_it() -> None:
    described = program(
        step("aten.select.int", X, 0, 0, outputs=["row"]),
        step("aten.fill_.Scalar", {"tensor": "row"}, 7.0, outputs=["row"]),
        step("aten.sum.default", X, outputs=["t"]),
    )
    x = torch.zeros(2, 2)

    assert float(program_module(described)(x)) == 14.0
    assert not x.any()
    assert written_names(described) == {"x"}


def test_an_out_argument_is_written() -> None:
    described = program(step("aten.add.out", X, X, out=Y, outputs=["t"]), inputs="x y")

    assert program_module(described)(torch.ones(2), torch.empty(2)).tolist() == [2.0, 2.0]
    assert written_names(described) == {"y"}


def test_arguments_by_name_reach_compilers_as_torch_would_pass_them() -> None:
    described = program(
        step("aten.softmax.int", outputs=["a"], self=X, dim=-1, dtype=None),
        step("aten._to_copy.default", outputs=["b"], self={"tensor": "a"}, dtype=None, non_blocking=False),
        step("aten.embedding.default", outputs=["t"], weight={"tensor": "b"}, indices=Y, padding_idx=-1, sparse=False),
        inputs="x y",
    )

    calls = [node for node in program_module(described).graph.nodes if node.op == "call_function"]
    assert [(len(node.args), dict(node.kwargs)) for node in calls] == [(2, {}), (1, {}), (2, {})]


def test_an_argument_that_this_torch_does_not_know_is_a_refusal_unless_it_was_not_given() -> None:
    strange = program(step("aten.relu.default", outputs=["t"], self=X, colour="red"))
    harmless = program(step("aten.relu.default", outputs=["t"], self=X, colour=None))

    with pytest.raises(Unsupported, match="has no argument colour in torch"):
        program_module(strange)
    assert program_module(harmless)(torch.tensor([-1.0])).tolist() == [0.0]


def test_an_op_that_this_torch_does_not_have_is_a_refusal_with_its_name() -> None:
    with pytest.raises(Unsupported) as refused:
        find_op("aten.no_such_op.default")

    assert refused.value.ops == ("aten.no_such_op.default",)


@pytest.mark.parametrize("name", ["aten.mm", "mm", "aten"])
def test_half_a_name_is_no_op(name: str) -> None:
    with pytest.raises((ProgramError, Unsupported)):
        find_op(name)


def test_a_constant_without_a_value_is_told() -> None:
    with pytest.raises(ProgramError, match="constant w has no value"):
        program_module(program(constants="w", outputs="x"))


def test_the_outputs_are_a_tree() -> None:
    described = program() | {"outputs": [X, {"list": [X]}]}

    first, (second,) = program_module(described)(torch.ones(1))
    assert first is second


def test_ops_that_draw_random_numbers_are_known() -> None:
    described = program(
        step("aten.relu.default", X, outputs=["a"]),
        step("aten.native_dropout.default", X, 0.5, train=True, outputs=["t"]),
    )

    assert random_ops(described) == ("aten.native_dropout.default",)


NESTED = [{"tensor": "a"}, None, {"tuple": [1, {"tensor": "b"}]}, {"dict": [["key", {"tensor": "a"}]]}]


def test_the_tensors_of_an_argument_are_named_in_order() -> None:
    assert list(tensor_names_in(NESTED)) == ["a", "b", "a"]
    assert list(tensor_names_in({"atom": {"kind": "dtype", "text": "int8"}})) == []


@pytest.mark.parametrize("argument", [{}, {"list": [], "tuple": []}])
def test_a_value_is_of_one_kind(argument: dict[str, Any]) -> None:
    assert only_entry({"tensor": "a"}) == ("tensor", "a")
    with pytest.raises(ProgramError, match="not a value"):
        only_entry(argument)


@pytest.mark.parametrize("name", ["aten.from_file.default", "aten.from_file.out", "aten._print.default"])
def test_an_op_that_opens_files_or_prints_is_not_given_to_a_program(name: str) -> None:
    with pytest.raises(ProgramError, match=f"{name} reads or writes a file or prints"):
        find_op(name)
