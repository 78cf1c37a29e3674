import pytest
import torch
from torch import Tensor, nn

from torchstone.capture import capture
from torchstone.record.op import OpCall
from torchstone.record.trace import Trace
from torchstone.record.value import Items

MODES = ("meta", "fake", "cpu")


class Function(nn.Module):
    """A module around a function."""

    def __init__(self, function: object) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Tensor) -> object:
        assert callable(self.function)
        return self.function(*args)


def traced(function: object, *args: Tensor, mode: str = "cpu") -> Trace:
    trace = capture(Function(function), args, mode)
    assert trace.failure is None
    return trace


def only(trace: Trace, op: str) -> OpCall:
    (found,) = [call for call in trace.ops if call.op == op]
    return found


@pytest.mark.parametrize("mode", MODES)
def test_arguments_stand_under_their_schema_names_with_defaults(mode: str) -> None:
    call = only(
        traced(lambda a, b: torch.add(a, b, alpha=3), torch.zeros(2), torch.zeros(2), mode=mode), "aten.add.Tensor"
    )

    assert [argument.name for argument in call.signature.arguments] == ["self", "other", "alpha"]
    assert call.signature.argument("alpha") == 3

    default = only(traced(torch.add, torch.zeros(2), torch.zeros(2), mode=mode), "aten.add.Tensor")
    assert default.signature.argument("alpha") == 1


@pytest.mark.parametrize("mode", MODES)
def test_lists_of_tensors_count_as_inputs(mode: str) -> None:
    call = only(
        traced(lambda a, b: torch.cat([a, b, a]), torch.zeros(2), torch.zeros(3), mode=mode), "aten.cat.default"
    )

    assert [spec.shape for spec in call.signature.input_specs] == [(2,), (3,), (2,)]
    assert call.inputs[0] == call.inputs[2] != call.inputs[1]
    assert call.signature.argument("tensors") == Items(kind="list", items=call.signature.input_specs)


@pytest.mark.parametrize("mode", MODES)
def test_views_share_memory_and_copies_do_not(mode: str) -> None:
    trace = traced(lambda a: (a.t(), a.t().contiguous(), a[0]), torch.zeros(2, 3), mode=mode)

    storage = {call.op: trace.tensors[call.outputs[0]].storage for call in trace.ops}
    base = trace.tensors[trace.ops[0].inputs[0]].storage
    assert storage["aten.t.default"] == storage["aten.select.int"] == base
    assert storage["aten.clone.default"] != base


@pytest.mark.parametrize("mode", MODES)
def test_an_in_place_op_writes_its_input_and_gives_it_back(mode: str) -> None:
    call = only(traced(lambda a: (a + 1).mul_(2), torch.zeros(2), mode=mode), "aten.mul_.Tensor")

    assert call.writes == call.outputs == (call.inputs[0],)


@pytest.mark.parametrize("mode", MODES)
def test_an_op_that_changes_the_shape_in_place_makes_a_new_tensor_of_the_same_memory(mode: str) -> None:
    trace = traced(lambda a: (a + 1).squeeze_(0) * 2, torch.zeros(1, 3), mode=mode)
    squeeze, after = only(trace, "aten.squeeze_.dim"), only(trace, "aten.mul.Tensor")

    assert squeeze.outputs == (after.inputs[0],)
    assert squeeze.inputs != squeeze.outputs
    assert after.signature.input_specs[0].shape == (3,)
    assert trace.tensors[squeeze.inputs[0]].storage == trace.tensors[squeeze.outputs[0]].storage


def test_inference_mode_hides_no_op() -> None:
    @torch.inference_mode()
    def infer(a: Tensor, b: Tensor) -> Tensor:
        return nn.functional.linear(a, b)

    ops = [call.op for call in traced(infer, torch.zeros(2, 3), torch.zeros(4, 3)).ops]

    assert ops == ["aten.t.default", "aten.mm.default"]


def test_equal_calls_share_one_signature() -> None:
    trace = traced(lambda a: ((a + 1) + 1) + 1, torch.zeros(2))

    assert len(trace.ops) == 3
    assert len(trace.ops.signatures) == 1


@pytest.mark.parametrize("scalar", [True, 1, 1.0, -0.0, float("inf"), float("nan")])
def test_scalars_of_other_types_are_other_signatures(scalar: float) -> None:
    trace = traced(lambda a: (a + 0, a + scalar), torch.zeros(2))

    assert len(trace.ops.signatures) == 2


def test_a_custom_op_is_recorded_by_its_own_name() -> None:
    with torch.library._scoped_library("torchstone_test", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")

        trace = traced(torch.ops.torchstone_test.twice, torch.zeros(2))

    assert [call.op for call in trace.ops] == ["torchstone_test.twice.default"]


def test_a_constant_written_in_code_is_an_external_tensor() -> None:
    trace = traced(lambda a: a + torch.tensor([1.0, 2.0]), torch.zeros(2))

    kinds = {external.tensor: external.kind for external in trace.tensors.external}
    assert kinds[only(trace, "aten.add.Tensor").inputs[1]] == "constant"


def test_an_op_belongs_to_the_innermost_module() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU(), nn.Linear(2, 2)))

    trace = capture(model, torch.zeros(1, 2))

    assert [trace.module_path_of(call) for call in trace.ops] == ["0", "0", "1.0", "1.1", "1.1"]
