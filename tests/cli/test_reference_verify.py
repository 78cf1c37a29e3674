import json
from pathlib import Path

import pytest

from tests.cli.references import NET, make_reference
from torchstone.cli.main import run
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINDINGS, EXIT_FINE


def test_an_unchanged_model_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_reference(tmp_path)

    assert run(["reference", "verify", str(folder)]) == EXIT_FINE
    assert "2 of 2 tensors are equal bit for bit" in capsys.readouterr().out


def test_a_changed_model_is_found_at_the_module_that_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_reference(tmp_path, "--intermediates", "all")
    (tmp_path / "net.py").write_text(
        NET.replace("layer(x).relu()", "layer(x).relu() if layer is not self.layers[1] else -layer(x)")
    )
    capsys.readouterr()

    assert run(["reference", "verify", str(folder), "--json"]) == EXIT_FINDINGS
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "torchstone/comparison/1"
    assert found["first_wrong"] == "modules/layers.2/inputs/input"


@pytest.mark.parametrize("name", ["graph.svg", "summary.csv", "operators.json", "tensors.csv", "parameters.csv"])
def test_a_document_of_each_box_that_was_changed_is_found(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_reference(tmp_path)
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content.replace(b"6", b"7"))
    capsys.readouterr()

    assert run(["reference", "verify", str(folder)]) == EXIT_FINDINGS
    assert f"{name} was changed after it was checked" in capsys.readouterr().out
    (folder / name).write_bytes(content)
    assert run(["reference", "verify", str(folder)]) == EXIT_FINE


def test_a_folder_without_golden_data_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reference", "verify", str(tmp_path)]) == EXIT_BAD_INPUT
    assert "golden_data.json" in capsys.readouterr().err
