import gzip
import os
import sys
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.attacks.rights import without_override
from torchstone.errors import UnreadableFileError
from torchstone.record import files
from torchstone.record.files import (
    MAX_DEPTH,
    MAX_DIGITS,
    all_files_below,
    encodable,
    matching,
    parse_json,
    parse_toml,
    problem_of,
    read_file,
    read_text,
    read_unpacked,
)


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


def test_a_pipe_is_refused_before_it_is_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for read in (read_file, read_text, read_unpacked):
        with pytest.raises(UnreadableFileError, match=r"pipe is not a regular file"):
            read(tmp_path / "pipe")


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no such device here")
def test_a_device_that_never_ends_is_refused() -> None:
    with pytest.raises(UnreadableFileError, match=r"^/dev/zero is not a regular file; "):
        read_file(Path("/dev/zero"))


def test_a_file_beyond_the_limit_is_refused_without_reading_it(tmp_path: Path) -> None:
    large = tmp_path / "large.json"
    with large.open("wb") as file:
        file.truncate(files.MAX_FILE_BYTES + 1)  # takes no space

    with pytest.raises(UnreadableFileError, match=r"large.json is larger than 512 MiB"):
        read_file(large)


def test_an_archive_that_unpacks_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    (tmp_path / "small.gz").write_bytes(gzip.compress(bytes(1 << 20)))

    with pytest.raises(UnreadableFileError, match=r"small.gz unpacks to more than 64.0 KiB"):
        read_unpacked(tmp_path / "small.gz", most_bytes=1 << 16)


_CUT_OFF = gzip.compress(b"text", mtime=0)[:-3]  # with a time in it, two workers would collect different tests


@pytest.mark.parametrize("damaged", [b"\x1f\x8b", b"\x1f\x8b\x08\x00" + bytes(20), _CUT_OFF])
def test_a_damaged_archive_is_named(tmp_path: Path, damaged: bytes) -> None:
    (tmp_path / "x.gz").write_bytes(damaged)

    with pytest.raises(UnreadableFileError, match=r"^cannot read .*x\.gz: "):
        read_unpacked(tmp_path / "x.gz")


@pytest.mark.parametrize("depth", [1, MAX_DEPTH - 1, MAX_DEPTH])
def test_nesting_up_to_the_limit_is_read(depth: int) -> None:
    assert problem_of(nested(depth)) == ""


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 5_000, 1_000_000])
def test_deeper_nesting_is_refused(depth: int) -> None:
    assert problem_of(nested(depth)) == "it nests lists and objects more than 200 levels deep"
    with pytest.raises(UnreadableFileError, match=r"^deep.json "):
        parse_json(nested(depth), origin="deep.json")


@given(st.text())
def test_brackets_digits_and_quotes_inside_texts_do_not_count(text: str) -> None:
    import json

    for ascii_only in (True, False):
        document = json.dumps({text: [text + "[{" * 300 + '"\\' + "9" * 400]}, ensure_ascii=ascii_only)
        assert problem_of(document.encode("utf-8", "surrogatepass")) == ""


def test_numbers_that_no_float_holds_are_refused() -> None:
    assert problem_of(b"[1, -" + b"9" * MAX_DIGITS + b"]") == ""
    assert problem_of(b'{"a": ' + b"9" * (MAX_DIGITS + 1) + b"}") == "it has a number of more than 310 digits"


@pytest.mark.parametrize("text", [b"\xff", b'{"a": "\xff"}', b"{", b"", b"[1,]", b"9" * 5_000])
def test_what_is_not_json_is_named_in_one_short_line(text: bytes) -> None:
    with pytest.raises(UnreadableFileError, match=r"^x\.json is not valid JSON \(.{1,201}\); make it again$"):
        parse_json(text, origin="x.json")


def test_a_small_packed_file_allocates_no_more_than_it_has(tmp_path: Path) -> None:
    (tmp_path / "small.gz").write_bytes(gzip.compress(b"x" * 5_000_000))
    tracemalloc.start()
    content = read_unpacked(tmp_path / "small.gz", most_bytes=1 << 34)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert len(content) == 5_000_000
    assert peak_bytes < 20_000_000


def test_halves_of_characters_are_written_out_wherever_they_are() -> None:
    written = encodable({"net\udce9": ("a\udcff", ["b\udcff", 1])})

    assert written == {"net\\udce9": ["a\\udcff", ["b\\udcff", 1]]}


@pytest.mark.parametrize(
    "text",
    ["x = " + "9" * 5_000, "x = 0x" + "f" * 5_000, "x = [[-9223372036854775809]]", "a." * 100_000 + "b = 1",
     "x = " + "[" * 100_000, "a." * 500 + "b = 1", "x = ", "x = [\n" * 300],
)  # fmt: skip
def test_toml_beyond_the_limits_is_refused(text: str) -> None:
    with pytest.raises(UnreadableFileError, match=r"^x\.toml is not a TOML file: "):
        parse_toml(text, origin="x.toml")


def test_toml_within_the_limits_is_read() -> None:
    text = 'a.b = [{c = 9223372036854775807}, 1.5, "x"]\nd = 2026-01-01\n'

    assert parse_toml(text, origin="x.toml")["a"] == {"b": [{"c": 2**63 - 1}, 1.5, "x"]}


@pytest.mark.skipif(sys.platform != "linux", reason="rights are taken from root as Linux has them")
def test_a_folder_that_may_not_be_listed_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    closed = tmp_path / "out" / "closed"
    closed.mkdir(parents=True)
    (closed / "a.json").touch()
    closed.chmod(0o311)

    assert matching(tmp_path / "missing", "*.json") == []
    with without_override():
        for place, pattern in ((closed, "*.json"), (tmp_path / "out", "*/*.json")):
            with pytest.raises(UnreadableFileError, match=r"cannot list .*closed: Permission denied"):
                matching(place, pattern)
        with pytest.raises(UnreadableFileError, match="cannot list"):
            all_files_below(tmp_path / "out")


def test_the_files_that_match_are_sorted(tmp_path: Path) -> None:
    for name in ("b/2.json", "a/1.json", "a/x.txt", "a/deep/3.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "a" / "loop").symlink_to(tmp_path)

    assert matching(tmp_path, "*/*.json") == [tmp_path / "a" / "1.json", tmp_path / "b" / "2.json"]
    assert [one.name for one in all_files_below(tmp_path)] == ["1.json", "3.json", "x.txt", "2.json"]
