from collections.abc import Mapping

import pytest
import torch
from torch import nn

from tests.formula.derive.benches import bench, seeded
from torchstone.formula.derive.op_forms import RefusedError
from torchstone.formula.derive.samples import sample_module, sample_recipe


def test_a_class_is_sampled_with_every_switch_in_every_type() -> None:
    samples = list(sample_module("Linear", bench(), random=seeded(0), count=1))

    assert [sample.trace.ops[len(sample.trace.ops) - 1].op for sample in samples].count("aten.addmm.default") == 2
    assert len(samples) == 4


def test_a_recipe_is_sampled_at_its_own_sizes() -> None:
    def make(values: Mapping[str, int]) -> tuple[nn.Module, object]:
        with torch.device("meta"):
            return nn.Linear(values["width"], 4), torch.zeros(values["B"], values["S"], values["width"])

    samples = list(sample_recipe(make, ["B", "S", "width"], bench()))

    assert any(sample.held_out for sample in samples)
    assert {name for sample in samples for name in sample.known} == {"width"}


def test_a_recipe_that_cannot_run_is_refused_with_its_error() -> None:
    def make(values: Mapping[str, int]) -> tuple[nn.Module, object]:
        return nn.Linear(values["B"], 4), torch.zeros(1, values["B"] + 1)

    with pytest.raises(RefusedError, match="cannot be run"):
        list(sample_recipe(make, ["B"], bench()))
