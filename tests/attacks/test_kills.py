"""kill -9 at random moments of commands that write, then the same command again: the files of an undisturbed run."""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.attacks.readers import READERS
from tests.report.traces import transformer
from torchstone.record import codec

COMMANDS = {
    "report": "report out",
    "memory parse": "memory parse my.log --dir out/m",
    "memory report": "memory report my.log --dir out/m",
    "db import": "db import master.json --db out/x.db",
    "cost": "cost model --dir out/c",
}
_TIMES = re.compile(rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[\d.+:Z]*")
KILLS = 20


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    codec.save(tmp_path / "model" / "trace.json", transformer(2))
    (tmp_path / "my.log").write_bytes(READERS["log"].corpus()[0])
    (tmp_path / "master.json").write_bytes(READERS["master"].corpus()[0])
    return tmp_path


def prepare(work: Path) -> None:
    shutil.rmtree(work / "out", ignore_errors=True)
    (work / "out").mkdir()
    shutil.copy(work / "model" / "trace.json", work / "out" / "trace.json")


def start(work: Path, command: str) -> "subprocess.Popen[bytes]":
    environment = {**os.environ, "TTMEM_HOME": str(work / "home"), "TORCHSTONE_HOME": str(work / "home")}
    return subprocess.Popen(
        [sys.executable, "-m", "torchstone", *command.split()],
        cwd=work, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip


def files_of(work: Path) -> dict[str, bytes]:
    """The finished files without times; a database by its rows, as its pages depend on the order of writing."""
    found = {}
    for path in sorted((work / "out").rglob("*")):
        if path.is_file() and path.suffix not in {".db", ".db-wal", ".db-shm"} and not path.name.startswith("."):
            found[str(path.relative_to(work))] = _TIMES.sub(b"", path.read_bytes())
    return found


@pytest.mark.heavy
@pytest.mark.parametrize("name", COMMANDS)
def test_a_killed_command_can_be_run_again(name: str, work: Path) -> None:
    command = COMMANDS[name]
    prepare(work)
    began_s = time.monotonic()
    assert start(work, command).wait(timeout=600) == 0
    whole_s, expected = time.monotonic() - began_s, files_of(work)
    dice = random.Random(name)  # noqa: S311 - moments, not secrets
    killed = 0
    for _ in range(KILLS):
        prepare(work)
        process = start(work, command)
        time.sleep(dice.uniform(0.3, 1.0) * whole_s)
        killed += process.poll() is None
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=600)
        again = start(work, command).wait(timeout=600)
        found = files_of(work)
        missing = [path for path in expected if path not in found and path.replace("/m/", "/m-2/") not in found]
        assert again == 0
        assert missing == []
        assert all(found[path] == content for path, content in expected.items() if path in found)
    assert killed > 0
