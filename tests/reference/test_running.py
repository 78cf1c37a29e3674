import numpy as np
import pytest
import torch
from torch import nn

from tests.reference.nets import DrawsInNumpy, Growing, ManyOutputs, Noisy, Raises, Replacing, Twice, TwoLayers
from torchstone.errors import ModelError
from torchstone.models.inputs import Inputs
from torchstone.record.reference import Role
from torchstone.reference.run_model import inputs_by_name, observe


def inputs(*args: object, **kwargs: object) -> Inputs:
    return Inputs(args=args, kwargs=kwargs, origin="test")


def test_inputs_have_the_names_of_forward() -> None:
    given = inputs_by_name(inputs(torch.ones(1), scale=3.0), ManyOutputs())

    assert list(given) == ["x", "scale"]


def test_inputs_that_do_not_bind_are_named_by_position() -> None:
    assert list(inputs_by_name(inputs(1, 2, 3), ManyOutputs())) == ["0", "1", "2"]


def test_tensors_stand_in_order_of_execution_and_inner_modules_end_first() -> None:
    seen = observe(TwoLayers(), inputs(torch.ones(1, 4)), seed=0, watched=["first", "second"]).seen

    assert [one.name for one in seen] == [
        "inputs/x",
        "modules/first/inputs/input",
        "modules/first/outputs",
        "modules/second/inputs/input",
        "modules/second/outputs",
        "outputs",
    ]
    assert [one.role for one in seen][1:3] == [Role.MODULE_INPUT, Role.MODULE_OUTPUT]


def test_a_tensor_is_kept_as_it_was_before_later_ops_wrote_to_it() -> None:
    model, x = TwoLayers(), torch.randn(5, 4)

    kept = observe(model, inputs(x), seed=0, watched=["first"]).tensors()["modules/first/outputs"]

    assert torch.equal(kept, model.first(x).detach())
    assert bool((kept < 0).any()), "the relu came later"


def test_a_second_call_of_a_module_is_kept_under_its_number() -> None:
    names = observe(Twice(), inputs(torch.randn(2, 4)), seed=0, watched=["norm"]).tensors()

    assert {"modules/norm/outputs", "modules/norm#2/outputs"} <= set(names)


def test_inputs_buffers_and_the_random_state_are_as_before() -> None:
    model, x = Growing(), torch.zeros(2)
    torch.manual_seed(3)
    expected = torch.random.get_rng_state()

    seen = observe(model, inputs(x), seed=9)

    assert x.tolist() == [0, 0]
    assert float(model.counted) == 0
    assert seen.tensors()["inputs/x"].tolist() == [0, 0]
    assert seen.tensors()["outputs"].tolist() == [1, 1]
    assert torch.equal(torch.random.get_rng_state(), expected)


@pytest.mark.parametrize("kind", [Growing, Replacing])
def test_a_buffer_that_the_run_changes_or_replaces_is_put_back_and_named(kind: type[Growing]) -> None:
    model = kind()
    buffer = model.counted

    seen = observe(model, inputs(torch.zeros(2)), seed=0)

    assert model.counted is buffer
    assert float(buffer) == 0
    assert seen.changed_buffers == ["counted"]
    assert observe(TwoLayers(), inputs(torch.ones(1, 4)), seed=0).changed_buffers == []


@pytest.mark.parametrize("kind", [Noisy, DrawsInNumpy])
def test_the_seed_decides_what_is_random(kind: type[nn.Module]) -> None:
    x = torch.zeros(3)
    np.random.seed(3)
    expected = np.random.rand()
    np.random.seed(3)

    first, second, other = (observe(kind(), inputs(x), seed=seed).tensors()["outputs"] for seed in (1, 1, -2))

    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert np.random.rand() == expected


def test_no_hook_is_left_when_the_model_raises() -> None:
    model = Raises()

    with pytest.raises(ModelError, match="RuntimeError: no such kernel"):
        observe(model, inputs(torch.ones(1)), seed=0, watched=[""])
    assert not model._forward_hooks
    assert not model._forward_pre_hooks


class Stateful(nn.Module):
    """Writes a parameter, an attribute, statistics and a tensor in a list, and returns a buffer that it writes."""

    total: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.register_buffer("total", torch.zeros(4))
        self.state, self.states = torch.zeros(4), [torch.zeros(4)]

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.linear.weight.data.mul_(1.5)
        self.state += 1
        self.states[0].add_(self.state)
        self.total += x.sum(0)
        return self.norm(self.linear(x)) + self.states[0], self.total


def test_each_run_begins_with_the_values_that_the_model_had() -> None:
    model, x = Stateful(), torch.randn(3, 4)
    before = [one.tolist() for one in (*model.state_dict().values(), model.state, model.states[0])]

    first, second = (observe(model, inputs(x), seed=0).tensors() for _ in range(2))

    assert [one.tolist() for one in (*model.state_dict().values(), model.state, model.states[0])] == before
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert torch.equal(first["outputs/1"], x.sum(0)), "as it was when the run ended"
