import json
import os
import pty
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.memory.logs import log_in
from torchstone.cli.main import run
from torchstone.cli.ttmem import command, completed_paths
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINE

PROGRAM = [sys.executable, "-c", "from torchstone.cli.ttmem import main; main()"]


TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorials" / "find-the-op-that-ran-out-of-memory.md"


def ttmem(*arguments: str | Path) -> int:
    return run([str(one) for one in arguments], program=command, name="ttmem")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TTMEM_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    return tmp_path / "home" / "reports"


def test_the_demo_needs_no_device(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ttmem("demo") == EXIT_FINE
    assert capsys.readouterr().out.strip() == str(home / "demo" / "demo_report.html")
    assert (home / "demo" / "demo.log").exists()


def test_the_failing_demo_ends_in_a_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    assert ttmem("demo", "--out-of-memory", "--quiet") == EXIT_FINE
    assert ttmem("open", "demo-out-of-memory") == EXIT_FINE
    shown = capsys.readouterr().out
    assert "OUT OF MEMORY (capacity) at op 110: %32 = ttnn.multiply(%31, %31), in head.coordinates" in shown


def test_logs_are_processed_listed_and_opened(tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, truth = log_in(tmp_path)

    assert ttmem("list") == EXIT_FINE
    assert "no reports" in capsys.readouterr().err
    assert ttmem("process", log, "--name", "first_try") == EXIT_FINE
    capsys.readouterr()
    assert ttmem("list") == EXIT_FINE
    assert capsys.readouterr().out == f"first-try\t{home / 'first-try'}\n"
    assert ttmem("list", "--json") == EXIT_FINE
    assert json.loads(capsys.readouterr().out)["reports"][0]["name"] == "first-try"
    (home / "first-try" / "first-try_report.html").unlink()
    assert ttmem("open", "first_try") == EXIT_FINE
    shown = capsys.readouterr().out
    assert f"{truth.peak('DRAM') / 1000:.3f} MiB" in shown
    assert (home / "first-try" / "first-try_report.html").exists()


def test_a_name_that_is_not_there_is_answered_with_those_that_are(capsys: pytest.CaptureFixture[str]) -> None:
    ttmem("demo", "--quiet")

    assert ttmem("open", "nothing") == EXIT_BAD_INPUT
    assert "reports: demo" in capsys.readouterr().err


def test_without_a_terminal_nothing_is_asked(tmp_path: Path) -> None:
    done = subprocess.run(PROGRAM, stdin=subprocess.DEVNULL, capture_output=True, cwd=tmp_path, check=False)

    assert done.returncode == EXIT_BAD_INPUT
    assert b"process LOG" in done.stderr


def at_a_terminal(folder: Path, *answers: str) -> "subprocess.CompletedProcess[bytes]":
    """Run ttmem with answers typed at its questions."""
    screen, keyboard = pty.openpty()
    os.write(screen, "".join(f"{answer}\n" for answer in answers).encode())
    done = subprocess.run(PROGRAM, stdin=keyboard, capture_output=True, cwd=folder, check=False, timeout=600)
    os.close(screen)
    os.close(keyboard)
    return done


def test_at_a_terminal_a_log_of_this_folder_is_offered_first(tmp_path: Path, home: Path) -> None:
    log_in(tmp_path)

    done = at_a_terminal(tmp_path, "1", "q")

    assert b"1  process my_net.log" in done.stderr
    assert done.returncode == EXIT_FINE
    assert (home / "my-net" / "my-net_report.html").exists()


def test_the_menu_comes_back_after_each_answer_and_each_mistake(tmp_path: Path, home: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    log, _ = log_in(tmp_path)

    done = at_a_terminal(
        elsewhere, "99", "p", "/nowhere.log", str(log), "c", "my-net", str(log), "", "l", "", "l", str(log), "q"
    )

    assert done.returncode == EXIT_FINE
    assert b"'99' is not one of" in done.stderr
    assert b"there is no log or report '/nowhere.log'" in done.stderr
    assert (home / "my-net" / "my-net_report.html").exists()
    assert b"the op sequences are identical" in done.stdout
    assert (tmp_path / "my_net_last_run.log").exists()
    assert done.stderr.count(b"quit") == 6  # an empty answer leads back, too


def test_paths_are_completed(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "run.log").write_text("")

    assert completed_paths(f"{tmp_path}/ru") == [f"{tmp_path}/run.log", f"{tmp_path}/runs/"]
    assert completed_paths(f"{tmp_path}/runs/") == []
    assert completed_paths("/nowhere/at/all") == []


def test_reports_are_served_to_this_machine(home: Path) -> None:
    ttmem("demo", "--quiet")
    with subprocess.Popen(
        [*PROGRAM, "serve", "--port", "18765"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as server:
        try:
            assert server.stdout is not None
            address = server.stdout.readline().decode().strip()
            assert address.startswith("http://127.0.0.1:")
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(address, timeout=60) as answer:
                assert b"demo" in answer.read()
        finally:
            server.terminate()
            server.wait(timeout=600)
    assert (home / "demo").is_dir()


def test_the_tutorial_shows_what_its_commands_print(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"^```(text)?\n(.*?)^```", TUTORIAL.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    shown, ran = "", []
    for kind, block in blocks:
        for line in block.splitlines():
            program, *arguments = line.split()
            if kind:
                assert line in shown
            elif program == "torchstone":
                assert run(arguments) == EXIT_FINE
            elif program == "ttmem" and arguments != ["serve"]:
                assert ttmem(*arguments) == EXIT_FINE
            ran += [] if kind else [program]
        shown += capsys.readouterr().out

    assert ran == ["tt-memory-profiler", "ttmem", "torchstone", "torchstone", "ttmem", "torchstone", "ttmem"]
