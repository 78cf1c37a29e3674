import pytest
import torch

from tests.sweep.builders import call, mm, tensor, vector
from torchstone.backends.program import program_module
from torchstone.record.chain import Step, configuration_of, result_of_step
from torchstone.record.value import Argument, Value
from torchstone.sweep.child.inputs import make_inputs
from torchstone.sweep.child.program import NothingToCompareError, describe_results, program_for
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

    assert program_for(payload)["outputs"] == [{"tensor": "s0_0"}, {"tensor": "i0"}]


def test_a_chain_gives_what_no_later_step_takes() -> None:
    chain = configuration_of(
        [
            Step(op="aten.topk.default", arguments=topk()),
            Step(op="aten.neg.default", arguments=(Argument(name="self", value=result_of_step(0, "0")),)),
        ]
    )
    payload = payload_of(vector(chain))

    assert program_for(payload)["outputs"] == [{"tensor": "s0_1"}, {"tensor": "s1_0"}]
    (x,) = make_inputs(payload["inputs"], seed=1)
    indices, values = program_module(program_for(payload))(x)
    assert torch.equal(values, -x.topk(2)[0])
    assert torch.equal(indices, x.topk(2)[1])


def test_results_of_steps_are_described_with_their_values() -> None:
    chain = configuration_of(
        [
            Step(op="aten.topk.default", arguments=topk()),
            Step(op="aten.neg.default", arguments=(Argument(name="self", value=result_of_step(0, "0")),)),
        ]
    )

    values, indices, negated = describe_results(payload_of(vector(chain)))

    assert [one["name"] for one in (values, indices, negated)] == ["s0_0", "s0_1", "s1_0"]
    assert indices["spec"]["dtype"] == "int64"
    assert 0 <= indices["facts"]["lowest"] <= indices["facts"]["highest"] < 5
    assert negated["facts"]["highest"] == -values["facts"]["lowest"]


def topk() -> tuple[Argument, ...]:
    arguments: dict[str, Value] = {"self": tensor(3, 5), "k": 2, "dim": -1, "largest": True, "sorted": True}
    return tuple(Argument(name=name, value=value) for name, value in arguments.items())


def test_an_op_without_tensors_in_its_result_cannot_be_compared() -> None:
    with pytest.raises(NothingToCompareError):
        program_for(payload_of(vector(call("aten._local_scalar_dense.default", self_=tensor(1)))))
