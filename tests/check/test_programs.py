import pytest
import torch
from torch import Tensor, nn

from tests.capture.nets import Attention, Feed, Stack
from torchstone.backends.program import program_module
from torchstone.capture.capture_model import capture
from torchstone.check.child.programs import as_written_by_hand, run_step
from torchstone.check.programs import (
    CallProgram,
    program_of_call,
    program_of_steps,
    values_to_record,
)
from torchstone.record.trace import Trace


class WritesItself(nn.Module):
    """Changes a buffer and its input in place."""

    seen: Tensor
    fixed: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(3))
        self.register_buffer("fixed", torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        self.seen.add_(1)
        return x.mul(2).add_(self.seen).sub(self.fixed)


class Draws(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.nn.functional.dropout(x, training=True) + torch.empty(3).fill_(1.0)


class Parts(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        first, _, last = x.split(1)
        value, _ = torch.max(x, dim=0)
        return first + last, value


def program_of(model: nn.Module, *shape: int, row: int = 0) -> tuple[Trace, CallProgram]:
    trace = capture(model, torch.ones(shape), "cpu", reuse=False)
    return trace, program_of_call(trace, row)


def test_weights_are_known_by_their_path_and_the_rest_must_be_kept() -> None:
    _, program = program_of(Stack(Feed()), 2, 8)

    held = sorted(external.parameter_path for external in program.externals.values() if external.parameter_path)
    assert held == ["layers.0.down.bias", "layers.0.down.weight", "layers.0.up.bias", "layers.0.up.weight"]
    assert [name for name, external in program.externals.items() if external.parameter_path is None] != []


def test_a_buffer_that_somebody_writes_to_must_be_kept() -> None:
    _, program = program_of(WritesItself(), 3)

    assert [external.parameter_path for external in program.externals.values() if external.parameter_path] == ["fixed"]


def test_only_ops_of_the_module_itself_are_its_own() -> None:
    trace, program = program_of(Stack(Feed(), Feed()), 2, 8)
    inner = program_of_call(trace, 1)

    assert not any(step.own for step in program.steps)
    assert [step.op for step in inner.steps if step.own] == ["aten.leaky_relu.default"]


@pytest.mark.parametrize("model", [Stack(Feed(), Feed()), Attention(), Parts(), WritesItself()])
def test_the_program_of_a_call_gives_what_the_module_gives(model: nn.Module) -> None:
    shape = (3,) if isinstance(model, WritesItself) else (3, 4, 8)
    _, program = program_of(model, *shape)
    x = torch.ones(shape)
    held = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    names = {
        name: held[external.parameter_path] for name, external in program.externals.items() if external.parameter_path
    }
    kept = [name for name in program.externals if name not in names]
    names |= {name: torch.zeros(3) if isinstance(model, WritesItself) and name == kept[0] else x for name in kept}

    with torch.no_grad():
        for step in program.steps:
            run_step(step.description, names)
        expected = model(x)

    wanted = expected if isinstance(expected, tuple) else (expected,)
    assert all(torch.equal(names[name], value) for name, value in zip(program.outputs, wanted, strict=True))


def test_some_steps_give_whatever_others_read() -> None:
    _, program = program_of(Stack(Feed()), 2, 8)
    activation = next(place for place, step in enumerate(program.steps) if "leaky_relu" in step.op)

    part = program_of_steps(program, [activation])

    assert part["inputs"] == list(program.steps[activation].reads)
    assert [tree["tensor"] for tree in part["outputs"]] == list(program.steps[activation].makes)
    assert part["constants"] == []


def test_steps_with_a_gap_between_them_make_a_program() -> None:
    _, program = program_of(Stack(Feed()), 2, 8)
    first, last = 0, len(program.steps) - 1

    part = program_of_steps(program, [last, first])

    module = program_module(as_written_by_hand(part), {name: torch.ones(8, 16) for name in part["constants"]})
    assert len(part["steps"]) == 2
    assert len([node for node in module.graph.nodes if node.op == "placeholder"]) == len(part["inputs"])


def test_what_only_the_chosen_steps_read_is_no_output() -> None:
    _, program = program_of(Stack(Feed()), 2, 8)

    whole = program_of_steps(program, range(len(program.steps)))

    assert [tree["tensor"] for tree in whole["outputs"]] == list(program.outputs)


def test_what_nobody_reads_is_no_output() -> None:
    """Mean and deviation, which a norm gives for the backward pass, are not the model's."""
    _, program = program_of(nn.LayerNorm(8), 2, 8)
    (norm,) = program.steps

    assert len(norm.makes) == 3
    assert program_of_steps(program, [0])["outputs"] == [{"tensor": norm.makes[0]}]


class AsksForANumber(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * int(x.sum().item())


def test_a_step_that_makes_no_tensor_is_left_out() -> None:
    _, program = program_of(AsksForANumber(), 3)

    steps = program_of_steps(program, range(len(program.steps)))["steps"]

    assert "aten._local_scalar_dense.default" in [step.op for step in program.steps]
    assert [step["op"] for step in steps] == ["aten.sum.default", "aten.mul.Tensor"]


def test_random_and_unset_results_cannot_be_judged() -> None:
    _, program = program_of(Draws(), 3)

    judged = [step.op for step in program.steps if step.stands_alone]
    assert "aten.native_dropout.default" not in judged
    assert "aten.bernoulli_.float" not in judged
    assert not any(op.startswith("aten.empty") for op in judged)
    assert "aten.add.Tensor" in judged


def test_what_must_be_kept_is_told_by_op_call_and_position() -> None:
    trace, program = program_of(Feed(), 2, 8)

    ((op, places),) = values_to_record({0: program}).items()

    ((position, row, name),) = places
    assert (row, f"t{trace.ops[op].inputs[position]}") == (0, name)


def test_an_op_that_only_the_cpu_has_is_written_as_the_model_called_it() -> None:
    _, program = program_of(Attention(), 1, 2, 4, 8)
    (attention,) = (step for step in program.steps if "flash_attention_for_cpu" in step.op)

    assert attention.description["op"] == "aten.scaled_dot_product_attention.default"
    assert attention.description["outputs"] == list(attention.makes)
    assert len(attention.makes) == 1


class SharedHeads(nn.Module):
    """Four heads of queries, two of keys and values, as Mistral has them."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(x, x[:, :2], x[:, :2], enable_gqa=True)


def test_attention_with_shared_heads_says_so() -> None:
    """The kernel for the CPU sees it by the shapes; the op that the model called does not."""
    _, program = program_of(SharedHeads(), 1, 4, 3, 8)
    x = torch.randn(1, 4, 3, 8)

    described = as_written_by_hand(program_of_steps(program, range(len(program.steps))))

    assert "aten._scaled_dot_product_flash_attention_for_cpu.default" in [step.op for step in program.steps]
    assert torch.allclose(program_module(described)(x), SharedHeads()(x), atol=1e-6)


class Sorts(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        values, places = torch.sort(x)
        return values, places


def test_the_order_of_equal_elements_is_not_compared() -> None:
    _, program = program_of(Sorts(), 4)

    (output,) = program_of_steps(program, [0])["outputs"]

    assert output["tensor"] == program.steps[0].makes[0]
