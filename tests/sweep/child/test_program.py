import pytest
import torch

from tests.sweep.builders import call, mm, tensor, vector
from torchstone.backends.program import program_module
from torchstone.sweep.child.inputs import make_inputs
from torchstone.sweep.child.program import NothingToCompareError, program_for, written_inputs
from torchstone.sweep.vectors import payload_of


def test_a_program_gives_what_the_op_gives() -> None:
    payload = payload_of(vector(mm()))
    inputs = make_inputs(payload["inputs"], seed=1)

    assert torch.equal(program_module(program_for(payload))(*inputs), inputs[0] @ inputs[1])


def test_an_op_that_gives_a_list_gives_all_of_it() -> None:
    payload = payload_of(vector(call("aten.split.Tensor", self_=tensor(7), split_size=3, dim=0)))

    assert len(program_for(payload)["outputs"]) == 3


def test_what_is_written_to_is_an_output_too() -> None:
    payload = payload_of(vector(call("aten.add_.Tensor", self_=tensor(3), other=tensor(3), alpha=1)))

    assert program_for(payload)["outputs"] == [{"tensor": "t0"}, {"tensor": "i0"}]
    assert written_inputs(torch.ops.aten.add_.Tensor, payload["arguments"]) == ["i0"]


def test_an_op_without_tensors_in_its_result_cannot_be_compared() -> None:
    with pytest.raises(NothingToCompareError):
        program_for(payload_of(vector(call("aten._local_scalar_dense.default", self_=tensor(1)))))
