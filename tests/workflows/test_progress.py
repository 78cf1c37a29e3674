import pytest

from torchstone.workflows.progress import SILENT


def test_silent_progress_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with SILENT.step("loading"):
        SILENT.note("wrote a file")

    assert capsys.readouterr() == ("", "")
