import torch
from torch import nn

from tests.formula.derive.benches import derived, sample
from torchstone.formula.derive.code_paths import Body, Branch, evaluate, weights_of
from torchstone.formula.derive.database_entries import text_of
from torchstone.formula.derive.observe import Sample

SETTINGS = (
    (2, 7, 11, 3),
    (3, 13, 17, 5),
    (5, 19, 23, 2),
    (2, 29, 31, 7),
    (7, 37, 41, 2),
)  # batch, length, width, layers


class Stack(nn.Module):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x + 1


def stacks(module: type[nn.Module] = Stack, settings: tuple[tuple[int, int, int, int], ...] = SETTINGS) -> list[Sample]:
    with torch.device("meta"):
        return [
            sample(
                module(width, layers),
                torch.zeros(batch, length, width),
                known={"width": width, "layers": layers},
                held_out=number > 2,
            )
            for number, (batch, length, width, layers) in enumerate(settings)
        ]


def test_layers_become_one_call_with_their_number() -> None:
    found, refused = derived(stacks())

    body = found["Stack"].body
    assert refused == {}
    assert isinstance(body, Body)
    (call,) = body.inner
    assert text_of(call.count) == "${layers}"
    assert {name: text_of(form) for name, form in call.bindings.items() if name != "dtype_bytes"} == {
        "batch_elements": "${B} * ${S}",
        "input_features": "${width}",  # all layers seen are square, so that one of the two sizes tells both
    }


def test_a_derived_formula_gives_what_a_larger_run_measures() -> None:
    found, _ = derived(stacks())
    known = {f"torch.nn.modules.linear.{name}": one for name, one in found.items()}

    (large,) = stacks(settings=((31, 101, 64, 9),))

    values = {"B": 31, "S": 101, "width": 64, "layers": 9, "dtype_bytes": 4}
    cost = evaluate(found["Stack"], values, known)
    assert (cost.flops, cost.reads) == (large.table.totals.flops, large.table.totals.bytes_read)
    assert weights_of(found["Stack"], values, known) == large.table.totals.parameter_bytes


def test_a_class_whose_ops_depend_on_an_unnamed_number_is_refused() -> None:
    class Fickle(Stack):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.repeat_interleave(1 + x.shape[1] % 3, dim=0) * 2

    found, refused = derived(stacks(Fickle))

    assert "Fickle" not in found
    assert "the formula gives" in refused["Fickle"].reason


def test_too_few_settings_are_refused() -> None:
    _, refused = derived(stacks(settings=SETTINGS[:2]))

    assert "too few settings" in refused["Linear"].reason


def test_a_case_of_its_own_becomes_a_condition() -> None:
    class Edge(Stack):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2 if x.shape[0] == 1 else x * 2 + 1

    edges = tuple((1, length, width, layers) for _, length, width, layers in SETTINGS)
    found, refused = derived([*stacks(Edge), *stacks(Edge, edges)])

    assert refused == {}
    body = found["Edge"].body
    assert isinstance(body, Branch)
    assert (text_of(body.subject), body.equals) == ("${B}", 1)
