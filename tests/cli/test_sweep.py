import pytest

from torchstone.cli.main import run


def test_the_commands_of_a_sweep_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sweep", "--help"]) == 0

    shown = capsys.readouterr().out
    assert all(name in shown for name in ("generate", "run", "report", "compare", "repro", "retrace"))
