from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.cli.references import make_reference
from torchstone.cli.main import run
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINDINGS, EXIT_FINE
from torchstone.reference import load_golden


def test_a_good_port_passes_in_each_kind_of_file(tmp_path: Path) -> None:
    folder = make_reference(tmp_path)
    logits = load_golden(folder).tensors["outputs/logits"]
    save_file({"logits": logits.to(torch.bfloat16)}, tmp_path / "port.safetensors")
    np.savez(tmp_path / "port.npz", logits=logits.numpy())
    torch.save({"logits": logits}, tmp_path / "port.pt")

    for name in ("port.safetensors", "port.npz", "port.pt"):
        assert run(["reference", "compare", str(folder), str(tmp_path / name)]) == EXIT_FINE


def test_a_wrong_port_fails_at_its_first_wrong_module(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_reference(tmp_path, "--intermediates", "all")
    port = dict(load_golden(folder).tensors)
    for name in ("modules/layers.2/outputs", "modules/head/outputs", "outputs/logits"):
        port[name] = -port[name]
    save_file(port, tmp_path / "port.safetensors")
    capsys.readouterr()

    code = run(["reference", "compare", str(folder), str(tmp_path / "port.safetensors"), "--only-wrong"])

    shown = capsys.readouterr().out
    assert code == EXIT_FINDINGS
    assert "wrong, first at modules/layers.2/outputs (layers.2)" in shown
    assert "modules/layers.0/outputs" not in shown


def test_a_saved_comparison_is_shown_in_the_report(tmp_path: Path) -> None:
    folder = make_reference(tmp_path)
    candidate = str(folder / "golden_data.safetensors")

    assert run(["reference", "compare", str(folder), candidate, "--save", "--quiet"]) == EXIT_FINE
    assert (folder / "comparison.json").is_file()


def test_a_file_with_other_names_is_refused_with_those_wanted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_reference(tmp_path)
    save_file({"a": torch.ones(1), "b": torch.ones(1)}, tmp_path / "port.safetensors")

    assert run(["reference", "compare", str(folder), str(tmp_path / "port.safetensors")]) == EXIT_BAD_INPUT
    assert "name them outputs/logits" in capsys.readouterr().err
