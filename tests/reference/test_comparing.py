from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.reference.nets import Counting, ManyOutputs, Noisy, TwoLayers
from torchstone.errors import InputError
from torchstone.record.reference import Status
from torchstone.reference import compare, load_golden
from torchstone.reference.golden_files import TENSORS_FILE, TORCH_FILE, Golden, save_golden
from torchstone.reference.make import Request, make_golden


class TwoOutputs(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, torch.cat((x, x), dim=1)


def layers() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(4, 4) for _ in range(4)))


def golden_layers() -> Golden:
    return make_golden(layers(), torch.randn(3, 4), Request(watched=("0", "1", "2", "3")))


@pytest.mark.parametrize("name", [TENSORS_FILE, TORCH_FILE])
def test_golden_data_passes_against_itself(name: str, tmp_path: Path) -> None:
    save_golden(tmp_path, golden_layers())

    found = compare(tmp_path, tmp_path / name)

    assert found.passed
    assert found.counts == {"passed": 10}
    assert found.unknown == ()


def test_the_first_module_that_goes_wrong_is_named_in_order_of_execution() -> None:
    golden = golden_layers()
    candidate = dict(golden.tensors)
    for name in ("modules/2/outputs", "modules/3/outputs", "outputs"):
        candidate[name] = candidate[name].flip(0)

    found = compare(golden, candidate)

    assert not found.passed
    assert (found.first_wrong, found.first_wrong_module) == ("modules/2/outputs", "2")


def test_a_missing_output_fails_and_a_missing_intermediate_does_not() -> None:
    golden = golden_layers()
    most = {
        name: tensor for name, tensor in golden.tensors.items() if name not in ("inputs/input", "modules/0/outputs")
    }

    assert compare(golden, most).passed
    found = compare(golden, {"modules/0/outputs": golden.tensors["modules/0/outputs"]})
    assert not found.passed
    assert found.verdicts[-1].status is Status.MISSING


def test_short_names_are_understood() -> None:
    golden = make_golden(ManyOutputs(), torch.randn(5))
    x = golden.tensors["inputs/x"]

    assert compare(golden, {"logits": 2 * x, "states/0": x, "states/1": x + 1, "x": x}).passed
    assert compare(golden_layers(), {"2": golden_layers().tensors["modules/2/outputs"]}).counts["missing"] == 1


def test_what_the_port_returned_can_be_compared_as_it_is() -> None:
    model, x = TwoLayers(), torch.randn(2, 4)

    assert compare(make_golden(model, x), model(x)).passed
    assert compare(make_golden(ManyOutputs(), x), ManyOutputs()(x)).passed


def test_names_that_mean_nothing_are_told_beside_those_that_do() -> None:
    golden = golden_layers()

    assert compare(golden, {"outputs": golden.tensors["outputs"], "typo": torch.ones(1)}).unknown == ("typo",)


def test_a_candidate_with_nothing_in_common_is_refused_with_the_names_wanted() -> None:
    with pytest.raises(InputError, match=r"has a, b; name them outputs"):
        compare(golden_layers(), {"a": torch.ones(1), "b": torch.ones(1)})


def test_a_stricter_pcc_can_be_asked_for(tmp_path: Path) -> None:
    save_golden(tmp_path, golden_layers())
    golden = load_golden(tmp_path)
    torch.manual_seed(0)
    noisy = golden.tensors["outputs"] * (1 + 0.05 * torch.randn(3, 4))

    assert compare(golden, noisy, pcc=0.99, partial=True).passed
    assert not compare(golden, noisy, pcc=0.99999, partial=True).passed


def test_outputs_that_are_missing_can_be_allowed_and_something_must_be_compared() -> None:
    golden = make_golden(ManyOutputs(), torch.randn(5))
    logits = {"logits": golden.tensors["outputs/logits"]}

    assert not compare(golden, logits).passed
    assert compare(golden, logits, allow_missing=True).passed
    assert not compare(golden, {"logits": -logits["logits"]}, allow_missing=True).passed
    nothing = compare(golden, {"x": golden.tensors["inputs/x"]}, allow_missing=True)
    assert not nothing.passed
    assert nothing.notes == ("only inputs were compared, which proves nothing",)


def test_golden_data_that_cannot_be_trusted_is_told() -> None:
    x = torch.zeros(3)

    (differs,) = compare(make_golden(Counting(), x), x).notes
    (seeded,) = compare(make_golden(Noisy(), x), x).notes

    assert "differs from run to run (outputs)" in differs
    assert "draws random numbers (outputs)" in seeded


def test_a_tensor_of_another_name_is_compared_with_the_only_output_of_its_shape() -> None:
    golden = make_golden(TwoOutputs(), torch.randn(2, 4))

    found = compare(golden, {"outputs/0": golden.tensors["outputs/0"], "y": torch.ones(2, 8)})

    assert found.unknown == ()
    assert (found.verdicts[-1].port_name, found.verdicts[-1].matched_by) == ("y", "order")
    assert found.first_wrong == "outputs/1"
