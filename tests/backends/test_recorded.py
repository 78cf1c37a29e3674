from functools import cache

import msgspec
import pytest
import torch
from torch import nn

from tests.backends.recorded_calls import lone_call
from torchstone.backends.program import program_module
from torchstone.backends.program_source import tensor_of
from torchstone.backends.recorded import (
    NotReplayableError,
    program_of_calls,
    tensor_description,
    tensor_name,
)
from torchstone.capture import capture
from torchstone.models import load
from torchstone.record.op import OpSignature
from torchstone.record.tensor import TensorSpec
from torchstone.record.trace import Trace
from torchstone.record.value import Argument, Items, Opaque, tensors_in

F32 = TensorSpec(shape=(2,), dtype="float32", stride=(1,))


@cache
def captured(name: str) -> Trace:
    model, inputs = load(name)
    return capture(model, inputs)


def signature(**changes: object) -> OpSignature:
    relu = OpSignature(op="aten.relu.default", arguments=(Argument(name="self", value=F32),), output=F32)
    return msgspec.structs.replace(relu, **changes)


@pytest.mark.parametrize("name", ["tiny:bert", "tiny:mistral"])
def test_every_recorded_op_runs_as_a_program_of_its_own(name: str) -> None:
    signatures = captured(name).ops.signatures
    assert len(signatures) > 20

    for one in signatures:
        tensors = [tensor_of(tensor_description(spec) | {"whole": (0, 1)}) for spec in one.input_specs]
        result = program_module(program_of_calls([lone_call(one)]))(*tensors)
        given = [leaf for leaf in torch.utils._pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        wanted = one.output_specs[:1] if "_scaled_dot_product" in one.op else one.output_specs  # the rest: notes
        assert [(tuple(leaf.shape), str(leaf.dtype)[6:]) for leaf in given] == [
            (spec.shape, spec.dtype) for spec in wanted
        ], one.op


def test_all_calls_of_a_model_together_compute_what_it_computes() -> None:
    model = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)  # training takes no short cut in C++
    x = torch.randn(2, 5, 16)
    trace = capture(model, (x,), mode="cpu")
    kinds = {tensor.tensor: tensor for tensor in trace.tensors.external}
    constants = [number for number, tensor in kinds.items() if tensor.kind == "parameter"]

    described = program_of_calls([*trace.ops], outputs=trace.module_calls.outputs[0], constants=constants)
    state = dict(model.named_parameters())
    values = {tensor_name(number): state[kinds[number].name].detach() for number in constants}
    result = program_module(described, values)(x)

    assert len(described["steps"]) > 15
    assert len(described["inputs"]) == 1
    assert torch.equal(result, model(x))


def test_a_call_with_no_tensor_in_its_result_has_no_outputs() -> None:
    described = program_of_calls([lone_call(signature(op="aten._local_scalar_dense.default", output=True))])

    assert described["outputs"] == []
    assert described["steps"][0]["outputs"] == []


def test_results_between_other_values_keep_their_places() -> None:
    output = Items(kind="tuple", items=(F32, None, 3, Items(kind="list", items=(F32, F32))))

    described = program_of_calls([lone_call(signature(output=output))])

    assert described["steps"][0]["outputs"] == ["t1", None, None, ["t2", "t3"]]
    assert len(list(tensors_in(output))) == len(described["outputs"])


def test_the_outputs_are_what_no_later_call_takes() -> None:
    calls = [*captured("tiny:bert").ops]
    taken = {number for call in calls for number in call.inputs}
    made = {number for call in calls for number in call.outputs}

    described = program_of_calls(calls)

    assert {output["tensor"] for output in described["outputs"]} == {tensor_name(number) for number in made - taken}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"arguments": (Argument(name="g", value=Opaque(class_name="torch.Generator")),)}, "<Generator>"),
        ({"output": TensorSpec(shape=(1,), dtype="float32", layout="sparse_coo")}, "sparse_coo layout"),
        ({"output": TensorSpec(shape=(1,), dtype="float32", subclass="ao.Packed")}, "ao.Packed"),
    ],
)
def test_a_call_that_cannot_be_made_again_is_told(changes: dict[str, object], said: str) -> None:
    with pytest.raises(NotReplayableError, match=said):
        program_of_calls([lone_call(signature(**changes))])
