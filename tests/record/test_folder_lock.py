"""One command at a time writes to a folder, whatever becomes of the others."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from errno import ENOSPC
from pathlib import Path

import pytest

from torchstone.errors import InputError
from torchstone.record.folder_lock import exclusive

pytestmark = pytest.mark.skipif(os.name != "posix", reason="folders are not locked there")
HOLDER = """import sys; from pathlib import Path
from torchstone.record.folder_lock import exclusive
with exclusive(Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


@contextmanager
def another_process_in(folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """A process that writes to a folder until the block ends."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    try:
        yield process
    finally:
        process.stdin.close()
        process.wait(timeout=600)
        process.stdout.close()


def test_a_second_process_is_refused_and_may_enter_once_the_first_is_gone(tmp_path: Path) -> None:
    refused = pytest.raises(InputError, match=r"another torchstone command is writing to .*; wait for it, or choose")
    with another_process_in(tmp_path), refused, exclusive(tmp_path):
        pytest.fail("both are in the folder")
    with exclusive(tmp_path):
        pass


def test_the_lock_of_a_killed_process_is_released(tmp_path: Path) -> None:
    with another_process_in(tmp_path) as process:
        os.kill(process.pid, signal.SIGKILL)
        process.wait(timeout=600)
        with exclusive(tmp_path):
            pass


WRITER = """import sys; from pathlib import Path
from torchstone.temporary import replacing
with replacing(Path(sys.argv[1])):
    print("open", flush=True)
    sys.stdin.read()
"""


def fail_beside_a_worker(folder: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", WRITER, str(folder / "work" / "values" / "0.bin")]
    with exclusive(folder):
        worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        with worker:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "open\n"
            worker.kill()
        assert len(list(folder.rglob(".*.part"))) == 1
        raise OSError(ENOSPC, "no space left on device")


def test_what_a_worker_had_not_finished_when_the_command_failed_is_removed(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no space"):
        fail_beside_a_worker(tmp_path)

    assert [path.name for path in tmp_path.rglob("*")] == ["work", "values"]


def test_what_a_worker_of_a_part_of_a_command_had_not_finished_is_removed_when_the_part_fails(tmp_path: Path) -> None:
    with exclusive(tmp_path):
        with pytest.raises(OSError, match="no space"):
            fail_beside_a_worker(tmp_path)

        assert [path.name for path in tmp_path.rglob("*")] == ["work", "values"]


def test_a_short_command_waits(tmp_path: Path) -> None:
    with another_process_in(tmp_path / "d") as process:
        assert process.stdin is not None
        process.stdin.close()
        with exclusive(tmp_path / "d", wait_s=600):
            assert (tmp_path / "d").is_dir()


def test_a_command_inside_another_one_enters_its_folder(tmp_path: Path) -> None:
    with exclusive(tmp_path), exclusive(tmp_path / "." / "x" / ".."):
        pass
    with exclusive(tmp_path):
        pass


def test_a_folder_that_stays_empty_is_removed_and_one_with_files_stays(tmp_path: Path) -> None:
    with exclusive(tmp_path / "a" / "b"):
        assert (tmp_path / "a" / "b").is_dir()
    assert list(tmp_path.iterdir()) == []
    with exclusive(tmp_path / "a" / "b"):
        (tmp_path / "a" / "b" / "file").touch()
    assert (tmp_path / "a" / "b" / "file").is_file()


def test_a_folder_that_cannot_be_created_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused = pytest.raises(InputError, match=r"cannot write to .*file/d: .*; choose another --dir")
    with refused, exclusive(tmp_path / "file" / "d"):
        pytest.fail("it was created")
