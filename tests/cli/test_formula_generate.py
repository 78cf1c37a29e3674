from pathlib import Path

import pytest

from tests.formula.codegen.generated.packages import run_bare
from torchstone.cli.main import run


def test_the_package_is_written_and_works(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["formula", "generate", "--out", str(tmp_path), "--filter", "TransformerBlock"]) == 0
    shown = capsys.readouterr()
    point = {"B": 1, "S": 2048, "hidden_size": 4096, "num_heads": 32, "intermediate_size": 11008}

    assert shown.out == f"{tmp_path / 'generated_modules'}\n"
    assert "from generated_modules import compute_flops" in shown.err
    assert run_bare(tmp_path, [("TransformerBlock", point)])[0][0] == 678_711_263_232


def test_a_filter_without_classes_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["formula", "generate", "--out", str(tmp_path / "new"), "--filter", "nothing-like-this"]) == 2
    assert "no class path contains 'nothing-like-this'" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_a_foreign_package_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "generated_modules").mkdir()

    assert run(["formula", "generate", "--out", str(tmp_path)]) == 2
    assert "was not written by" in capsys.readouterr().err
