from pathlib import Path

import pytest

from tests.memory.log_generator.graphs import random_graph
from tests.memory.log_generator.run import generate
from torchstone.errors import InputError
from torchstone.memory.read_log import parse_log
from torchstone.memory.run_script import WANTED, logging_environment, run_script


def script_that(tmp_path: Path, body: str) -> Path:
    path = tmp_path / "net.py"
    path.write_text(f"import os, sys\n{body}\n")
    return path


def test_every_variable_is_set_and_nothing_keeps_lines_away() -> None:
    found = logging_environment(
        {"HOME": "/x", "TTMLIR_RUNTIME_LOGGER_FILE": "f", "TT_RUNTIME_MEMORY_LOG_LEVEL": "none"}
    )

    assert found == {"HOME": "/x"} | WANTED


def test_the_scripts_own_words_are_shown_and_the_runtimes_are_saved(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    log = generate([random_graph(1)])[0]
    (tmp_path / "device.log").write_bytes(log)
    script = script_that(
        tmp_path,
        "print('loading', os.environ['TT_RUNTIME_MEMORY_LOG_LEVEL'], sys.argv[1])\n"
        "print('to stderr', file=sys.stderr)\n"
        f"sys.stdout.write(open({str(tmp_path / 'device.log')!r}).read())\nprint('done')",
    )

    run = run_script(script, ["--batch"], log=tmp_path / "out" / "net.log")

    assert run.exit_code == 0
    shown = capfdbinary.readouterr().out
    assert shown == b"loading any --batch\nto stderr\ndone\n"
    assert log in run.log.read_bytes()
    assert len(parse_log(run.log).ops) > 0


@pytest.mark.parametrize(("body", "code"), [("sys.exit(7)", 7), ("os.kill(os.getpid(), 11)", 139)])
def test_the_exit_code_is_the_scripts(tmp_path: Path, body: str, code: int) -> None:
    assert run_script(script_that(tmp_path, body), [], log=tmp_path / "net.log").exit_code == code


def test_all_lines_are_shown_on_demand(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    script = script_that(tmp_path, "print(' Always | INFO | Device memory state before submit')")

    run_script(script, [], log=tmp_path / "net.log", show_log=True)

    assert b"before submit" in capfdbinary.readouterr().out


def test_a_script_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing\.py"):
        run_script(tmp_path / "nothing.py", [], log=tmp_path / "x.log")


def test_a_script_outlives_a_log_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file where a folder should be")

    run = run_script(script_that(tmp_path, "sys.exit(3)"), [], log=tmp_path / "taken" / "net.log")

    assert run.exit_code == 3
    assert "could not be written" in run.problem


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_a_script_outlives_a_full_disk(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    full = tmp_path / "net.log"
    full.symlink_to("/dev/full")
    script = script_that(tmp_path, "print('x' * 100_000)\nprint('done')\nsys.exit(4)")

    run = run_script(script, [], log=full)

    assert run.exit_code == 4
    assert "No space left" in run.problem
    assert capfdbinary.readouterr().out.endswith(b"done\n")
    assert not full.exists()
