"""Models that call their modules through torch.func: ensembles, gradients of each sample, weights of other modules."""

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, jacrev, vmap

from torchstone.capture import capture
from torchstone.cost import price
from torchstone.record.trace import Trace

ROWS, WIDTH, HIDDEN, MEMBERS = 7, 6, 10, 3


class Member(nn.Module):
    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, HIDDEN)
        self.norm = nn.LayerNorm(HIDDEN)
        self.down = nn.Linear(HIDDEN, WIDTH)
        self.register_buffer("scale", torch.tensor([2.0]))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(torch.relu(self.norm(self.up(x)))) * self.scale
        return out


class Members(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.members = nn.ModuleList([Member() for _ in range(MEMBERS)])


class Ensemble(Members):
    def forward(self, x: Tensor) -> Tensor:
        held = [{**dict(one.named_parameters()), **dict(one.named_buffers())} for one in self.members]
        stacked = {name: torch.stack([one[name] for one in held]) for name in held[0]}
        return vmap(lambda state: functional_call(self.members[0], state, (x,)))(stacked).sum(0)


class GradientOfEachSample(Members):
    def forward(self, x: Tensor) -> Tensor:
        def loss(state: dict[str, Tensor], row: Tensor) -> Tensor:
            out: Tensor = functional_call(self.members[0], state, (row[None],)).pow(2).mean()
            return out

        found = vmap(grad(loss), in_dims=(None, 0))(dict(self.members[0].named_parameters()), x)
        out: Tensor = found["up.weight"].sum(0)
        return out


class WeightsMadeByAnother(Members):
    def forward(self, x: Tensor) -> Tensor:
        made = self.members[1](x).mean(0)
        return functional_call(self.members[0], {"up.bias": torch.cat([made, made[:4]])}, (x,))


class Jacobian(Members):
    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = jacrev(self.members[0])(x[:2])
        return found.sum((0, 1))


def ops_of(trace: Trace) -> list[object]:
    signatures = (trace.ops.signatures[number] for number in trace.ops.signature_of)
    return [(one.op, [(spec.shape, spec.dtype) for spec in one.output_specs]) for one in signatures]


@pytest.mark.parametrize("kind", [Ensemble, GradientOfEachSample, WeightsMadeByAnother, Jacobian])
@pytest.mark.parametrize("reuse", [True, False])
def test_ops_of_a_transformed_module_are_those_of_a_real_run(kind: type[Members], *, reuse: bool) -> None:
    model, x = kind().eval(), torch.rand(ROWS, WIDTH)
    trace, real = capture(model, x, reuse=reuse), capture(model, x, "cpu")

    assert trace.failure is None
    assert trace.provenance.mode == "fake"
    assert ops_of(trace) == ops_of(real)


def test_an_ensemble_costs_what_its_members_cost() -> None:
    one = 2 * ROWS * WIDTH * HIDDEN * 2

    assert price(capture(Ensemble().eval(), torch.rand(ROWS, WIDTH))).totals.matmul_flops == MEMBERS * one
