import gzip
import lzma
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.memory.log_generator.serving import ranked_log, serving_log
from torchstone.errors import UnreadableFileError
from torchstone.memory.log_source import LONGEST_LINE_BYTES, read_chunks, read_lines
from torchstone.memory.read_log import choose_last_run, parse_log, write_last_run

LOG = serving_log(1, order=(0, 2, 1, 2))[0]


def stored(folder: Path, data: bytes) -> Path:
    path = folder / "run.log"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    "packed",
    [
        LOG,
        gzip.compress(LOG, mtime=0),
        lzma.compress(LOG),
        b"\xff\xfe" + LOG.decode().encode("utf-16-le"),
        LOG.decode().encode("utf-16-le"),
        LOG.decode().encode("utf-16-be"),
        b"\xef\xbb\xbf" + LOG,
    ],
    ids=["plain", "gzip", "xz", "utf-16", "utf-16 without a mark", "big-endian without a mark", "utf-8 with a mark"],
)
def test_a_log_is_read_however_it_is_stored(tmp_path: Path, packed: bytes) -> None:
    path = stored(tmp_path, packed)

    assert b"".join(read_chunks(path)) == LOG
    assert b"".join(read_lines(path)) == LOG
    assert len(parse_log(path).graphs) == 3


@pytest.mark.skipif(shutil.which("zstd") is None, reason="the zstd program is not installed")
def test_zstd_is_decompressed_by_its_own_program(tmp_path: Path) -> None:
    path = stored(tmp_path, LOG)
    subprocess.run(["zstd", "-q", str(path)], check=True)

    assert b"".join(read_chunks(path.with_name("run.log.zst"))) == LOG


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_of_a_compressed_file_that_breaks_off_all_that_can_be_read_is(tmp_path: Path, pack: object) -> None:
    assert callable(pack)
    packed = pack(LOG)
    path = stored(tmp_path, packed[: len(packed) * 2 // 3])

    found = b"".join(read_chunks(path))

    assert LOG.startswith(found)
    assert len(found) > len(LOG) // 3
    assert parse_log(path).evidence.op_lines > 0


def test_a_file_that_only_begins_like_a_compressed_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFileError, match="nothing in it can be decompressed"):
        list(read_chunks(stored(tmp_path, b"\x1f\x8b" + b"x" * 50)))


def test_the_last_run_of_one_process_has_no_line_of_another(tmp_path: Path) -> None:
    log, truths = ranked_log(6, late=True)
    path, target = stored(tmp_path, log), tmp_path / "short.log"
    whole = parse_log(path, rank="1,1")

    write_last_run(path, choose_last_run(whole), target, rank="1,1")

    short = parse_log(target)
    assert b"[1,0]" not in target.read_bytes()
    assert len(short.graphs) == len(whole.graphs) == 3
    assert {one.module for one in short.graphs} == {one.module for one in whole.graphs}
    assert max(short.memories[0].allocated.values()) <= truths[1].peak("DRAM")


def test_a_line_without_an_end_is_kept_up_to_a_limit(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_bytes(b"first\n" + b"a" * (3 * LONGEST_LINE_BYTES) + b"\nlast\n")

    first, cut, last = read_lines(tmp_path / "x.log")
    assert (first, last) == (b"first\n", b"last\n")
    assert LONGEST_LINE_BYTES <= len(cut) < 2 * LONGEST_LINE_BYTES


def test_zeros_are_not_taken_for_utf_16(tmp_path: Path) -> None:
    """A log that another program truncates while it is written begins with them."""
    (tmp_path / "x.log").write_bytes(b"\0" * 10_000 + b"text\n")

    assert b"".join(read_lines(tmp_path / "x.log")).endswith(b"\0text\n")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le"])
@pytest.mark.parametrize("rest", ["\nlast line\n", ""])
def test_a_hole_of_a_sparse_log_is_skipped(tmp_path: Path, encoding: str, rest: str) -> None:
    """It would take hours to read terabytes of zeros; a log that is truncated while it is written begins with them."""
    path = tmp_path / "x.log"
    with path.open("wb") as file:
        file.write("\ufefffirst line\n".encode(encoding))
        file.seek(1 << 43)
        file.write(rest.encode(encoding))
        file.truncate()

    first, zeros, *last = read_lines(path)

    assert first == b"first line\n"
    assert zeros.rstrip(b"\n").strip(b"\0") == b""
    assert last == ([b"last line\n"] if rest else [])
    assert sum(map(len, read_chunks(path))) < 4 * LONGEST_LINE_BYTES


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le"])
def test_the_lines_of_a_log_with_a_hole_are_those_of_one_with_zeros(tmp_path: Path, encoding: str) -> None:
    size = 4 * LONGEST_LINE_BYTES
    begin, end = "\ufefffirst\n".encode(encoding), "end\n".encode(encoding) + LOG.decode().encode(encoding)
    with (tmp_path / "sparse.log").open("wb") as file:
        file.write(begin)
        file.seek(size)
        file.write(end)
    (tmp_path / "zeros.log").write_bytes(begin + bytes(size - len(begin)) + end)

    assert list(read_lines(tmp_path / "sparse.log")) == list(read_lines(tmp_path / "zeros.log"))
    assert len(parse_log(tmp_path / "sparse.log").graphs) == 3
