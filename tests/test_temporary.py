"""Temporary folders: gone when the block ends, and, after kill -9, when the next process needs one."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from torchstone import temporary
from torchstone.temporary import temporary_folder

pytestmark = pytest.mark.skipif(os.name != "posix", reason="folders are not locked there")
HOLDER = """import sys
from torchstone.temporary import temporary_folder
with temporary_folder("test") as folder:
    (folder / "file").write_text("half")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(temporary, "_tidied", set())


def another_process() -> tuple["subprocess.Popen[str]", Path]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def end(process: "subprocess.Popen[str]", number: int) -> None:
    process.send_signal(number)
    process.communicate(timeout=600)


def test_a_folder_is_removed_with_all_that_is_in_it(tmp_path: Path) -> None:
    with temporary_folder("test") as folder:
        (folder / "sub").mkdir()
        (folder / "sub" / "file").write_text("x", encoding="utf-8")
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_killed_process_is_removed_by_the_next_one(tmp_path: Path) -> None:
    process, left = another_process()
    end(process, signal.SIGKILL)
    assert (left / "file").is_file()
    with temporary_folder("test"):
        assert not left.exists()
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_running_process_stays() -> None:
    process, held = another_process()
    with temporary_folder("test"):
        assert (held / "file").is_file()
    end(process, signal.SIGKILL)


def test_a_folder_that_looks_like_ours_but_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("x", encoding="utf-8")
    (tmp_path / "torchstone-tmp-test-link").symlink_to(tmp_path / "precious")
    with temporary_folder("test"):
        pass
    assert (tmp_path / "precious" / "file").is_file()
