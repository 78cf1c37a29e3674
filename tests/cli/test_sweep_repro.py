from pathlib import Path

import pytest

from tests.cli.sweeps import finished_run, vectors_in
from tests.sweep.builders import mm, result
from torchstone.cli.main import run
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINE

WRONG = ["--backend", "faulty", "--backend-option", "fault=wrong"]


@pytest.mark.heavy
def test_a_failure_becomes_a_small_script_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    vectors_in(Path("sweep"), mm(64, 32, 16))
    assert run(["sweep", "run", "-q", *WRONG]) == 1
    capsys.readouterr()

    assert run(["sweep", "repro", mm(64, 32, 16).key[:20]]) == EXIT_FINE

    told = capsys.readouterr()
    assert "float32[64, 32], float32[32, 16] -> float32[1, 1], float32[1, 1]" in told.err
    assert "exit code 1" in told.err
    assert "torch.ops.aten.mm.default" in Path(told.out.strip()).read_text(encoding="utf-8")


def test_what_did_not_fail_has_no_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    finished_run(Path("sweep"), "r1", result("k1-aa"))

    assert run(["sweep", "repro", "k1-aa"]) == EXIT_BAD_INPUT
    assert "no failure" in capsys.readouterr().err
