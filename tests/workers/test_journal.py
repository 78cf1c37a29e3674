import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchstone.errors import InputError, NewerSchemaError, UnreadableFileError
from torchstone.workers.journal import Journal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "journal.jsonl"


def written(path: Path, **documents: int) -> Path:
    with Journal(path) as journal:
        for key, value in documents.items():
            journal.append(key, {"value": value})
    return path


def test_what_was_appended_is_read_in_order(path: Path) -> None:
    written(path, b=1, a=2)
    written(path, c=3)

    assert list(Journal.read(path).items()) == [("b", {"value": 1}), ("a", {"value": 2}), ("c", {"value": 3})]


def test_a_later_document_takes_the_place_of_an_earlier_one(path: Path) -> None:
    written(path, a=1, b=2)

    assert Journal.read(written(path, a=3)) == {"a": {"value": 3}, "b": {"value": 2}}


def test_no_journal_holds_nothing(path: Path) -> None:
    assert Journal.read(path) == {}


@pytest.mark.parametrize("cut", range(1, 60))
def test_a_journal_cut_anywhere_keeps_its_whole_lines_and_goes_on(path: Path, cut: int) -> None:
    whole = written(path, a=1, b=2).read_bytes()
    path.write_bytes(whole[:-cut])
    kept = Journal.read(path)

    assert kept in ({"a": {"value": 1}}, {})
    assert Journal.read(written(path, c=3)) == kept | {"c": {"value": 3}}


def test_a_line_is_in_the_file_before_append_returns(path: Path) -> None:
    with Journal(path) as journal:
        journal.append("a", {"value": 1})

        assert Journal.read(path) == {"a": {"value": 1}}


def test_a_killed_writer_loses_nothing_it_had_appended(path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from torchstone.workers.journal import Journal\n"
        "journal = Journal(Path(sys.argv[1]))\n"
        "for n in range(10**9): journal.append(str(n), {'n': n}); print(n, flush=True)"
    )
    writer = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    with writer.stdout:
        writer.stdout.readline()
        time.sleep(0.1)
        writer.send_signal(signal.SIGKILL)
        said = [0, *(int(line) for line in writer.stdout.read().splitlines())]
    writer.wait()

    kept = Journal.read(path)
    assert len(said) <= len(kept) <= len(said) + 1
    assert list(kept) == [str(n) for n in range(len(kept))]


def test_two_runs_cannot_write_to_one_journal(path: Path) -> None:
    with Journal(path), pytest.raises(InputError, match="another run is writing"):
        Journal(path)


def test_half_a_head_is_a_journal_that_was_killed_at_once(path: Path) -> None:
    path.parent.mkdir()
    path.write_text('{"schema": "torchstone')

    assert Journal.read(path) == {}
    assert Journal.read(written(path, a=1)) == {"a": {"value": 1}}


@pytest.mark.parametrize("content", ["my notes", "my notes\nmore", '{"a": 1}\n', "[]\n", "\n"])
def test_a_file_of_somebody_else_is_refused_and_left_alone(path: Path, content: str) -> None:
    path.parent.mkdir()
    path.write_text(content)

    with pytest.raises(UnreadableFileError):
        Journal(path)
    with pytest.raises(UnreadableFileError):
        Journal.read(path)
    assert path.read_text() == content


def test_a_journal_of_a_newer_torchstone_is_refused(path: Path) -> None:
    path.parent.mkdir()
    path.write_text('{"schema": "torchstone/journal/3"}\n')

    with pytest.raises(NewerSchemaError):
        Journal.read(path)


def test_a_damaged_line_is_named(path: Path) -> None:
    lines = written(path, a=1, b=2).read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"\x00" * 20 + b"\n" + lines[2])

    with pytest.raises(UnreadableFileError, match=r"line 2 of .* is damaged"):
        Journal.read(path)


def test_a_full_disk_leaves_no_half_line(path: Path) -> None:
    """A file size limit stands for the disk."""
    program = (
        "import resource, signal, sys; from pathlib import Path; from torchstone.workers.journal import Journal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "journal = Journal(Path(sys.argv[1])); resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "journal.append('a', {}); journal.append('b', {'text': 'x' * 100})"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=False)

    assert "InputError: cannot write to" in done.stderr
    assert path.read_bytes().endswith(b',"key":"a","document":{}}\n')


@given(documents=st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.integers()))
def test_any_keys_come_back(tmp_path_factory: pytest.TempPathFactory, documents: dict[str, int]) -> None:
    path = tmp_path_factory.mktemp("journal") / "j"
    written_documents = {key: {"value": value} for key, value in documents.items()}
    with Journal(path) as journal:
        for key, document in written_documents.items():
            journal.append(key, document)

    assert Journal.read(path) == written_documents


def test_a_number_that_json_cannot_hold_is_refused_and_nothing_is_written(path: Path) -> None:
    with Journal(path) as journal:
        before = path.stat().st_size
        with pytest.raises(ValueError, match="Out of range float"):
            journal.append("a", {"value": float("nan")})

        assert path.stat().st_size == before


def test_the_file_names_its_schema(path: Path) -> None:
    assert json.loads(written(path).read_text()) == {"schema": "torchstone/journal/2"}
