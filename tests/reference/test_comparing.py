from pathlib import Path

import pytest
import torch
from torch import nn

from tests.reference.nets import ManyOutputs, TwoLayers
from torchstone.errors import InputError
from torchstone.record.comparison import Status
from torchstone.reference import compare, load_golden
from torchstone.reference.golden_files import TENSORS_FILE, TORCH_FILE, Golden, save_golden
from torchstone.reference.making import Request, make_golden


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

    assert compare(golden, {"outputs": golden.tensors["outputs"]}).passed
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

    assert compare(golden, noisy).passed
    assert not compare(golden, noisy, pcc=0.99999).passed
