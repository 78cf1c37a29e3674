from collections.abc import Mapping

import msgspec
import pytest
import torch
from torch import nn

from tests.formula.derive.benches import bench, observed, sample, torch_library
from tests.formula.entries import formulas
from torchstone.formula.derive.derive_model import ConfiguredModel, derive_model
from torchstone.formula.derive.observe import Sample, observe
from torchstone.formula.derive.validate import Options, cost_by_formula
from torchstone.models.inputs import InputOptions
from torchstone.models.pretrained import find_blueprint
from torchstone.record.formula import Coverage

LINEAR = "torch.nn.modules.linear.Linear"


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 2))


def test_each_module_stands_beside_what_was_traced() -> None:
    seen = observed([sample(net(), torch.zeros(3, 8))])

    result = cost_by_formula("net", seen, formulas(torch_library().entries[LINEAR]), {}, "")

    by_path = {module.path: module for module in result.modules}
    assert by_path["0"].coverage is Coverage.FORMULA
    assert by_path["0"].flops == by_path["0"].traced_flops == 2 * 3 * 8 * 4 + 3 * 4
    assert by_path["1"].coverage is Coverage.TRACED
    assert by_path["1"].reason == "no formula is known for the class"
    assert result.disagreeing == ()
    assert result.count(Coverage.FORMULA) == 2


def test_a_formula_that_differs_is_told() -> None:
    entry = torch_library().entries[LINEAR]
    wrong = msgspec.structs.replace(
        entry, flop_analysis=msgspec.structs.replace(entry.flop_analysis, formula_template="1")
    )

    result = cost_by_formula("net", observed([sample(net(), torch.zeros(3, 8))]), formulas(wrong), {}, "")

    assert [module.path for module in result.disagreeing] == ["0", "2"]


def test_classes_derived_for_this_run_and_refusals_are_marked() -> None:
    seen = observed([sample(net(), torch.zeros(3, 8))])
    outcome = {LINEAR: "", "torch.nn.modules.activation.Tanh": "it is refused"}

    result = cost_by_formula("net", seen, formulas(torch_library().entries[LINEAR]), outcome, "")

    by_path = {module.path: module for module in result.modules}
    assert by_path["0"].coverage is Coverage.DERIVED
    assert by_path["1"].reason == "it is refused"


def test_in_another_code_path_the_usual_formula_counts_only_without_a_cache() -> None:
    class Attention(nn.Linear):
        def forward(self, input: torch.Tensor, past_key_values: object = None) -> torch.Tensor:  # noqa: A002
            del past_key_values
            return super().forward(input)

    trace, table = bench().measure(Attention(8, 4), ((torch.zeros(3, 8),), {"past_key_values": torch.zeros(1)}))
    seen = observe(Sample(trace=trace, table=table))
    entry = msgspec.structs.replace(torch_library().entries[LINEAR], module_path=seen[0].class_name)

    result = cost_by_formula("net", seen, formulas(entry), {}, "decode")

    assert result.modules[0].coverage is Coverage.TRACED
    assert result.modules[0].reason == "no formula is known for the class in the phase decode"


def test_a_module_called_twice_costs_its_calls_together() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = self.inner(self.inner(x))
            return made

    result = cost_by_formula(
        "net", observed([sample(Twice(), torch.zeros(3, 8))]), formulas(torch_library().entries[LINEAR]), {}, ""
    )

    (inner,) = (module for module in result.modules if module.path == "inner")
    assert inner.calls == 2
    assert inner.flops == inner.traced_flops == 2 * (2 * 3 * 64 + 24)


class RunsOnce(ConfiguredModel):
    """A model that takes no other sizes than the first."""

    def sample(self, sizes: Mapping[str, int], *, held_out: bool, guard: str = "") -> Sample | None:
        if self.problem:
            return None
        found = super().sample(sizes, held_out=held_out, guard=guard)
        self.problem = "it takes no other sizes"
        return found


def test_a_model_that_takes_one_size_alone_is_refused_and_not_an_error() -> None:
    blueprint = find_blueprint("tiny:distilbert", InputOptions())
    library = derive_model(RunsOnce(blueprint=blueprint, bench=bench(), options=Options()))

    assert library.entries == {}
    assert [one.reason for one in library.refused.values()] == [
        "it cannot be run at the sizes of a fit: it takes no other sizes"
    ]


@pytest.mark.heavy
@pytest.mark.parametrize("model_type", ["modernbert", "fnet"])
def test_a_model_is_exact_for_long_sequences_and_for_transforms_over_two_dimensions(model_type: str) -> None:
    """A window of 128 is full from 65 positions on: another code path than that of short sequences."""
    model = ConfiguredModel(
        blueprint=find_blueprint(f"tiny:{model_type}", InputOptions()), bench=bench(), options=Options()
    )
    measured = model.sample({"B": 3, "S": 128}, held_out=True)
    assert measured is not None
    seen = observe(measured)
    library = derive_model(model, seen)
    result = cost_by_formula("net", seen, formulas(*library.entries.values()), {}, "")

    assert result.modules[0].coverage is not Coverage.TRACED, library.refused
    assert result.disagreeing == ()
