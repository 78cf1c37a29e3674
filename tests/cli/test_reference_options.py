from pathlib import Path

import pytest

from torchstone.cli.options import Session
from torchstone.cli.reference_options import save_comparison, show_comparison
from torchstone.errors import EXIT_FINDINGS, EXIT_FINE, InputError
from torchstone.record.comparison import Comparison


@pytest.mark.parametrize(("passed", "code"), [(True, EXIT_FINE), (False, EXIT_FINDINGS)])
def test_the_verdict_is_the_exit_code(*, passed: bool, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    found = Comparison(model="net", candidate="a", passed=passed, first_wrong="outputs", first_wrong_module="")

    assert show_comparison(found, Session(), only_wrong=False, as_json=False) == code
    assert ("passed" if passed else "wrong, first at outputs") in capsys.readouterr().out


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(InputError, match="cannot write to"):
        save_comparison(tmp_path / "file", Comparison(model="net", candidate="a", passed=True), Session())
