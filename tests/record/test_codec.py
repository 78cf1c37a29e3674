import os
import stat
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import msgspec
import pytest
from hypothesis import given

from tests.record import strategies
from tests.report.traces import transformer
from torchstone import record
from torchstone.errors import NewerSchemaError, UnreadableFileError
from torchstone.record import codec
from torchstone.record.base import Document, Record, Schema
from torchstone.record.codec import decode, decode_as, encode, load, save, write_atomically
from torchstone.record.trace import Trace
from torchstone.record.unique import UniqueModules


class Box(Record, frozen=True, kw_only=True):
    """A record that has seen three versions."""

    width_bytes: int
    labels: dict[int, str] = {}


BOX = Schema(kind="box", version=3)


def bytes_for_bits(document: dict[str, Any]) -> dict[str, Any]:
    return {**document, "width_bytes": document.pop("width_bits") // 8}


def width_for_size(document: dict[str, Any]) -> dict[str, Any]:
    return {**document, "width_bits": document.pop("size")}


UPGRADES = {("box", 1): width_for_size, ("box", 2): bytes_for_bits}


@pytest.fixture
def umask() -> Iterator[int]:
    before = os.umask(0o027)
    yield 0o027
    os.umask(before)


@given(strategies.traces)
def test_a_trace_comes_back_as_it_was(trace: Trace) -> None:
    back = decode_as(encode(trace), Trace, Trace.schema, upgrades={}, origin="memory")  # its numbers are random

    assert back == trace
    assert repr(back) == repr(trace), "1, 1.0 and True are equal, but not the same"


@given(strategies.unique_modules)
def test_unique_modules_come_back_as_they_were(modules: UniqueModules) -> None:
    assert decode_as(encode(modules), UniqueModules, UniqueModules.schema, upgrades={}, origin="memory") == modules


@given(strategies.traces)
def test_a_document_names_its_schema_first_and_is_plain_json(trace: Trace) -> None:
    document = encode(trace)

    assert document.startswith(b'{"schema":"torchstone/trace/2",')
    assert msgspec.json.decode(document)["schema"] == "torchstone/trace/2"


def test_every_part_of_a_file_cut_short_is_refused_with_a_sentence() -> None:
    whole = encode(transformer(1))

    for length in range(0, len(whole), max(len(whole) // 50, 1)):
        with pytest.raises(UnreadableFileError, match=r"^net\.json is not a .*trace file"):
            decode(whole[:length], Trace, origin="net.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", r"net\.json is not a readable trace file \(Input data was truncated\); make it again"),
        (b"\xff\xfe", "not a readable trace file"),
        (b"[]", "not a readable trace file"),
        (b"{}", "it names no schema"),
        (b'{"schema":7}', "not a readable trace file"),
        (b'{"schema":"torchstone/trace/1"}', "missing required field `provenance`"),
        (b'{"schema":"torchstone/unique_modules/1"}', "its schema is 'torchstone/unique_modules/1'"),
        (b'{"schema":"somebody/trace/1"}', "its schema is 'somebody/trace/1'"),
        (b'{"schema":"torchstone/trace/one"}', "not a torchstone trace file"),
        (b'{"schema":"torchstone/trace/0"}', "not a torchstone trace file"),
        (b'{"schema":"torchstone/trace/%s"}' % (b"9" * 5000), "not a torchstone trace file"),
        (b'{"schema":"torchstone/trace/1","x":' + b"[" * 100_000, "not a readable trace file"),
    ],
)
def test_what_is_no_trace_is_refused_with_a_sentence(text: bytes, message: str) -> None:
    with pytest.raises(UnreadableFileError, match=message):
        decode(text, Trace, origin="net.json")


def test_a_newer_version_is_refused_with_the_way_out() -> None:
    newer = encode(transformer(1)).replace(b"torchstone/trace/2", b"torchstone/trace/3")

    with pytest.raises(NewerSchemaError) as caught:
        decode(newer, Trace, origin="net.json")
    assert str(caught.value) == (
        "net.json was written by a newer torchstone (torchstone/trace/3, this one reads up to 2); upgrade torchstone"
    )


def test_keys_that_a_later_torchstone_added_do_not_disturb() -> None:
    trace = transformer(1)
    document = msgspec.json.decode(encode(trace)) | {"added_later": [1, 2]}

    assert decode(msgspec.json.encode(document), Trace, origin="net.json") == trace


@pytest.mark.parametrize(("version", "fields"), [(1, {"size": 64}), (2, {"width_bits": 64}), (3, {"width_bytes": 8})])
def test_every_old_version_is_still_read(version: int, fields: dict[str, Any]) -> None:
    text = msgspec.json.encode({"schema": f"torchstone/box/{version}", "labels": {7: "seven"}, **fields})

    box = decode_as(text, Box, BOX, upgrades=UPGRADES, origin="box.json")

    assert box == Box(width_bytes=8, labels={7: "seven"})


def every_document() -> list[type[Document]]:
    for module in iter_modules(record.__path__):
        import_module(f"torchstone.record.{module.name}")
    return Document.__subclasses__()


def test_every_old_version_of_every_document_has_its_upgrade() -> None:
    schemas = [document.schema for document in every_document()]
    needed = {(schema.kind, version) for schema in schemas for version in range(1, schema.version)}

    assert set(codec._UPGRADES) == needed


def test_a_file_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    trace = transformer(2)
    save(tmp_path / "new" / "folder" / "trace.json", trace)

    assert load(tmp_path / "new" / "folder" / "trace.json", Trace) == trace


def test_a_name_that_is_not_utf8_is_written_out() -> None:
    trace = transformer(1)
    odd = msgspec.structs.replace(trace, provenance=msgspec.structs.replace(trace.provenance, model="net\udcff.py"))

    assert decode(encode(odd), Trace, origin="x").provenance.model == "net\\udcff.py"
    assert decode(encode(odd), Trace, origin="x").ops == trace.ops


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFileError, match=r"^cannot read .*absent\.json: No such file or directory$"):
        load(tmp_path / "absent.json", Trace)


class FullDiskError(Exception):
    """The disk is full."""


def refuse(*_: object) -> None:
    raise FullDiskError


@pytest.mark.parametrize("step", ["fsync", "chmod", "replace"])
def test_the_old_file_stays_when_writing_fails(step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_atomically(tmp_path / "a.json", b"old")
    monkeypatch.setattr(os if step == "fsync" else Path, step, refuse)

    with pytest.raises(FullDiskError):
        write_atomically(tmp_path / "a.json", b"new")
    assert (tmp_path / "a.json").read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [tmp_path / "a.json"], "nothing half-written is left"


def test_nothing_is_left_where_a_folder_stands_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "a.json").mkdir()

    with pytest.raises(IsADirectoryError):
        write_atomically(tmp_path / "a.json", b"new")
    assert list(tmp_path.iterdir()) == [tmp_path / "a.json"]


def test_a_new_file_has_the_permissions_the_user_wants(tmp_path: Path, umask: int) -> None:
    write_atomically(tmp_path / "a.json", b"")

    assert stat.S_IMODE((tmp_path / "a.json").stat().st_mode) == 0o666 & ~umask
    assert os.umask(umask) == umask, "the umask itself is as before"


def test_a_long_file_name_can_be_written(tmp_path: Path) -> None:
    name = "n" * 250 + ".json"
    write_atomically(tmp_path / name, b"new")

    assert (tmp_path / name).read_bytes() == b"new"


def test_every_document_states_its_schema() -> None:
    names = {document.__name__: document.schema.name for document in every_document()}

    assert names["Trace"] == "torchstone/trace/2"
    shared = {"CheckedModules", "UniqueModules"}  # a check adds its verdicts to the same file
    assert len(set(names.values())) == len(names) - len(shared) + 1
