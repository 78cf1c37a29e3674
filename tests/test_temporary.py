"""Temporary folders and unfinished files: gone when the block ends, or, after kill -9, with the next process."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from torchstone import temporary
from torchstone.temporary import remove_unfinished, replacing, temporary_folder

pytestmark = pytest.mark.skipif(os.name != "posix", reason="folders are not locked there")
HOLDER = """import sys
from torchstone.temporary import temporary_folder
with temporary_folder("test") as folder:
    (folder / "file").write_text("half")
    print(folder, flush=True)
    sys.stdin.read()
"""
WRITER = """import sys; from pathlib import Path
from torchstone.temporary import replacing
with replacing(Path(sys.argv[1])) as file:
    file.write(b"half")
    file.flush()
    print(file.name, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(temporary, "_tidied", set())


def another_process(code: str = HOLDER, *arguments: str) -> tuple["subprocess.Popen[str]", Path]:
    """A process that holds what it is writing, and the path of that."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
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


def test_the_unfinished_files_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    process, left = another_process(WRITER, str(tmp_path / "a" / "b" / "file.json"))
    end(process, signal.SIGKILL)
    assert left.read_bytes() == b"half"
    other = left.with_name(".mine.part")
    other.touch()

    remove_unfinished(tmp_path)
    assert left.exists(), "only the folder itself was asked for"
    remove_unfinished(tmp_path, below=True)
    assert list((tmp_path / "a" / "b").iterdir()) == [other]


def test_the_unfinished_file_of_a_killed_process_is_removed_although_another_process_has_its_id(tmp_path: Path) -> None:
    process, left = another_process(WRITER, str(tmp_path / "file.json"))
    end(process, signal.SIGKILL)
    reused = left.rename(left.with_name(f".{os.getpid()}-abcdefgh.part"))

    remove_unfinished(tmp_path)
    assert not reused.exists()


def test_a_file_that_is_being_written_is_not_removed_although_its_process_id_is_unknown_here(tmp_path: Path) -> None:
    """The writer may run in a container, which has process ids of its own."""
    process, unfinished = another_process(WRITER, str(tmp_path / "file.json"))
    elsewhere = unfinished.rename(unfinished.with_name(".4194999999-abcdefgh.part"))

    remove_unfinished(tmp_path)
    assert elsewhere.exists()
    elsewhere.rename(unfinished)
    process.communicate(timeout=600)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"file.json": b"half"}


def test_a_link_with_the_name_of_an_unfinished_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"x")
    (tmp_path / ".1-abcdefgh.part").symlink_to("precious")

    remove_unfinished(tmp_path)
    assert (tmp_path / "precious").exists()


def test_a_block_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"old")
    with pytest.raises(TypeError), replacing(tmp_path / "x") as file:
        file.writelines([b"new", 1])  # type: ignore[list-item]

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"x": b"old"}


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with replacing(pipe) as file:
        file.write(b"content")

    assert os.read(reader, 100) == b"content"
    assert pipe.is_fifo()
    os.close(reader)
    with pytest.raises(OSError, match="No such device or address"), replacing(pipe):
        pytest.fail("it waits for a reader")


def test_a_link_of_proc_to_an_open_file_is_written_through(tmp_path: Path) -> None:
    """What `--csv /dev/stdout > file` asks for."""
    with (tmp_path / "out").open("wb") as opened:
        opened.write(b"before ")
        opened.flush()
        with replacing(Path(f"/proc/self/fd/{opened.fileno()}")) as file:
            file.write(b"content")

    assert (tmp_path / "out").read_bytes() == b"before content"


def test_another_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    """A folder of results that somebody else made cannot lead a command to a file outside of it."""
    (tmp_path / "precious").write_bytes(b"x")
    (tmp_path / "report.html").symlink_to("precious")
    with replacing(tmp_path / "report.html") as file:
        file.write(b"content")

    assert (tmp_path / "precious").read_bytes() == b"x"
    assert (tmp_path / "report.html").read_bytes() == b"content"
    assert not (tmp_path / "report.html").is_symlink()
