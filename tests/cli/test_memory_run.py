from pathlib import Path

import pytest

from tests.memory.logs import log_in
from torchstone.cli.main import run
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINE


def script_that_prints(tmp_path: Path, log: Path | None, *, code: int = 0, line: str = "") -> Path:
    script = tmp_path / "my_model.py"
    body = f"print(open({str(log)!r}).read(), end='')" if log else f"print({line!r})"
    script.write_text(f"import sys\nprint('got', sys.argv[1:])\n{body}\nsys.exit({code})\n")
    return script


@pytest.mark.parametrize("code", [0, 7])
def test_from_a_script_to_a_page_with_the_scripts_exit_code(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], code: int
) -> None:
    log, _ = log_in(tmp_path)
    script = script_that_prints(tmp_path, log, code=code)

    assert run(["memory", "run", "--dir", str(tmp_path / "out"), str(script), "--batch", "4"]) == code

    shown = capfd.readouterr().out
    assert "got ['--batch', '4']" in shown
    assert "Executing operation" not in shown
    assert (tmp_path / "out" / "my-model_report.html").exists()
    assert (tmp_path / "out" / "my-model.log").read_bytes().endswith(log.read_bytes())


def test_without_memory_lines_the_missing_switch_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    line = f"{'RuntimeTTNN':>23} | {'DEBUG':>8} | Starting execution of program: main"
    script = script_that_prints(tmp_path, None, line=line)

    assert run(["memory", "run", "--dir", str(tmp_path / "out"), str(script)]) == EXIT_BAD_INPUT
    assert "TT_RUNTIME_MEMORY_LOG_LEVEL" in capfd.readouterr().err


def test_without_any_runtime_line_the_scripts_own_failure_comes_first(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = script_that_prints(tmp_path, None, line="no device", code=9)

    assert run(["memory", "run", "--dir", str(tmp_path / "out"), str(script)]) == 9
    assert "no report" in capfd.readouterr().err


def test_the_log_alone_can_be_asked_for(tmp_path: Path) -> None:
    log, _ = log_in(tmp_path)
    script = script_that_prints(tmp_path, log)

    assert run(["memory", "run", "--log-only", "--dir", str(tmp_path / "out"), str(script)]) == EXIT_FINE
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["my-model.log"]
