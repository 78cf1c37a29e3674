"""Steps of a received graph, as the search sees them."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.check.held import kept_model
from torchstone.check.child.graphs import describe_graph
from torchstone.check.settings import Settings


class Splits(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        first, second = x.split(2, -1)
        return torch.cat([second, first], -1).softmax(-1)


def described(model: nn.Module, x: Tensor, path: Path) -> list[dict[str, Any]]:
    kept = kept_model(model, x, path)
    requests = kept.requests(Settings(backend="aot_eager"))
    request = requests.for_graph(kept.plan.units["mod_000_root"], "graph", "entry", kind="dynamo")
    steps: list[dict[str, Any]] = describe_graph(request.task.payload)["steps"]
    return steps


def test_what_takes_a_tuple_apart_stays_with_what_gives_it(tmp_path: Path) -> None:
    steps = described(Splits(), torch.randn(2, 4), tmp_path)

    assert [step["op"] for step in steps] == ["aten.split.Tensor", "aten.cat.default", "aten.softmax.int"]
    assert [step["reads"] for step in steps] == [[], [0], [1]]
    assert steps[2]["arguments"].startswith("float32[2, 4]")


@pytest.mark.parametrize(
    ("model", "able"),
    [(nn.BatchNorm2d(3).eval(), [True]), (nn.Dropout(0.5).train(), [False]), (nn.Dropout(0.5).eval(), [True])],
)
def test_only_what_draws_random_numbers_has_no_values(tmp_path: Path, model: nn.Module, able: list[bool]) -> None:
    """A batch norm leaves a buffer empty inside its kernel; that is no reason."""
    steps = described(model, torch.randn(2, 3, 4, 4), tmp_path)

    assert [step["has_values"] for step in steps] == able
