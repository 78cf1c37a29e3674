import pytest

from torchstone.cli.main import run
from torchstone.errors import EXIT_FINE


def test_help_lists_what_can_be_done(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["db", "--help"]) == EXIT_FINE

    shown = capsys.readouterr().out
    for name in ("info", "import", "export", "merge", "verify", "vacuum"):
        assert f"\n  {name}" in shown
