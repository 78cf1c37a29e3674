import torch
from torch import Tensor

from tests.cost.calls import cost_of, flops_of


def test_views_cost_nothing_at_all() -> None:
    def views(x: Tensor) -> Tensor:
        parts = x.view(8, 4).t().unsqueeze(0).expand(3, 4, 8).detach().split(2, dim=1)
        return parts[0][..., 1:]

    totals = cost_of(views, torch.ones(4, 8)).totals
    assert (totals.flops, totals.bytes_read, totals.bytes_written) == (0, 0, 0)
    assert totals.op_calls >= 6


def test_a_label_for_the_profiler_costs_nothing() -> None:
    def labelled(x: torch.Tensor) -> torch.Tensor:
        with torch.profiler.record_function("block"):
            return x + 1

    assert flops_of(labelled, torch.ones(4)) == 4
