"""A pipe, a device, a folder, nothing, or a name with escape codes where a command expects a file: one sentence.

Each command ends, in bounded memory, without a traceback, without a control character on the terminal, and without
replacing anything but regular files.
"""

import os
import re
import sys
import threading
from pathlib import Path

import pytest

from tests.attacks.odd_files import KINDS, PROGRAMS, SLOW_KINDS, Place, places, problems_of
from tests.attacks.rights import without_override
from tests.report.traces import transformer
from torchstone.cli.main import run
from torchstone.errors import EXIT_BAD_INPUT, InputError
from torchstone.record import codec
from torchstone.record.trace import Trace

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it is Linux's")
ALL = {str(place): place for place in places() if place.words != ("ttnn", "setup")}  # that one installs packages
# Without torch, without processes, and not longer than a second where the path can be used.
LIGHT = re.compile(
    r"torchstone (memory (?!run)|db|diff|report|serve|ops|formula diff|cost --(hardware|plan|csv|prices)|inspect --dir)"
    r"|ttmem"
)
_LOGS = re.compile(r"SOURCE|LOG|--against|--analyze")


def kinds_of(place: Place, *, slow: bool) -> list[str]:
    """A log has no limit of size, so that 5 GB of it take their time."""
    is_long = _LOGS.search(str(place)) is not None
    kinds = [*KINDS, *(SLOW_KINDS if slow else ())]
    return [one for one in kinds if slow or one != "5 GB" or not is_long]


@pytest.fixture
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "TORCHSTONE_HOME", "TTMEM_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))


def tried(place: Place, kinds: list[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    problems = []
    for number, kind in enumerate(kinds):
        work = folder / str(number)
        work.mkdir()
        os.chdir(work)
        problems += problems_of(place, kind, work, capsys)
    return problems


def test_the_parameters_of_all_programs_are_found() -> None:
    assert len(ALL) > 150
    assert {place.program for place in ALL.values()} == set(PROGRAMS)


@pytest.mark.usefixtures("_home")
@pytest.mark.parametrize("name", [name for name in ALL if LIGHT.match(name)])
def test_an_odd_file_is_one_sentence(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tried(ALL[name], kinds_of(ALL[name], slow=False), tmp_path, capsys) == []


@pytest.mark.heavy
@pytest.mark.torch
@pytest.mark.usefixtures("_home")
@pytest.mark.parametrize("name", ALL)
def test_every_odd_file_is_one_sentence(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tried(ALL[name], kinds_of(ALL[name], slow=True), tmp_path, capsys) == []


def test_a_file_that_is_replaced_while_it_is_read_is_the_old_one_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    versions = transformer(1), transformer(2)
    codec.save(path, versions[0])
    over = threading.Event()

    def replace() -> None:
        while not over.is_set():
            for one in versions:
                codec.save(path, one)

    writer = threading.Thread(target=replace)
    writer.start()
    try:
        assert all(codec.load(path, Trace) in versions for _ in range(50))
    finally:
        over.set()
        writer.join()


def test_a_file_that_is_written_over_while_it_is_read_is_refused_or_read(tmp_path: Path) -> None:
    """A program that does not replace files as a whole; whatever is read then is never a broken record."""
    path = tmp_path / "trace.json"
    texts = [codec.encode(one) for one in (transformer(1), transformer(2))]
    path.write_bytes(texts[0])
    over = threading.Event()

    def write_over() -> None:
        while not over.is_set():
            for one in texts:
                path.write_bytes(one)

    writer = threading.Thread(target=write_over)
    writer.start()
    read = []
    try:
        for _ in range(50):
            try:
                read.append(codec.encode(codec.load(path, Trace)))
            except InputError:
                continue
    finally:
        over.set()
        writer.join()
    assert set(read) <= set(texts)


def test_an_argument_with_a_null_byte_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", "a\0b"]) == EXIT_BAD_INPUT
    assert capsys.readouterr().err == "torchstone: error: an argument contains a null byte, which no file name has\n"


@pytest.mark.usefixtures("_home")
@pytest.mark.parametrize(
    "command",
    ["report {}", "memory show {}", "sweep report --dir {}", "db import {}", "sweep import {} --dir out", "diff {} {}"],
)
def test_a_folder_that_may_not_be_listed_is_one_sentence(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Path.glob takes it for an empty folder: a report was written without its sections."""
    codec.save(tmp_path / "closed" / "trace.json", transformer(1))
    (tmp_path / "closed" / "runs").mkdir()
    for one in (tmp_path / "closed" / "runs", tmp_path / "closed"):
        one.chmod(0o311)

    with without_override():
        assert run(command.replace("{}", str(tmp_path / "closed")).split()) == EXIT_BAD_INPUT
    sentence = capsys.readouterr().err.splitlines()[-1]
    assert sentence.startswith("torchstone: error: ")
    assert "Permission denied" in sentence
