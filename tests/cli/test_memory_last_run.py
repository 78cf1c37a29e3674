import shlex
from pathlib import Path

import pytest

from tests.memory.logs import log_in
from torchstone.cli.main import run
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINE
from torchstone.memory.read_log import parse_log


def test_a_shorter_log_stands_beside_the_long_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, _ = log_in(tmp_path, passes=4)
    before = log.read_bytes()

    assert run(["memory", "last-run", str(log)]) == EXIT_FINE

    short = tmp_path / "my_net_last_run.log"
    assert capsys.readouterr().out.strip() == str(short)
    assert log.read_bytes() == before
    assert parse_log(short).passes == 2


def test_a_file_is_replaced_only_on_demand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, _ = log_in(tmp_path)
    target = tmp_path / "x.log"
    target.write_text("mine")

    assert run(["memory", "last-run", str(log), "-o", str(target)]) == EXIT_BAD_INPUT
    assert target.read_text() == "mine"
    assert "--force" in capsys.readouterr().err
    assert run(["memory", "last-run", str(log), "-o", str(target), "--force"]) == EXIT_FINE


def test_the_suggested_command_can_be_run_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, _ = log_in(tmp_path)
    assert run(["memory", "last-run", str(log), "-o", str(tmp_path / "a folder's" / "x y.log")]) == EXIT_FINE
    _, _, suggested = capsys.readouterr().err.partition("next: torchstone ")

    assert run(shlex.split(suggested)) == EXIT_FINE
