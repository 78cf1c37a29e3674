"""A file or folder of any known format -> its configurations; the format is detected from the contents."""

import json
from hashlib import sha256
from pathlib import Path

from torchstone.configs.aten_text import is_aten_text, read_aten_text
from torchstone.configs.exchange import (
    RUN_CHARACTERS,
    Imported,
    JsonObject,
    is_exchange_text,
    is_raw_trace,
    read_lines,
    read_raw_trace,
)
from torchstone.configs.ttnn_graph import is_graph, is_report, read_graph, read_report
from torchstone.configs.ttnn_master import is_master, read_master
from torchstone.configs.ttnn_operations import (
    is_operation_trace,
    is_trace_folder,
    read_operation_trace,
    read_trace_folder,
)
from torchstone.errors import UnreadableFileError
from torchstone.record.files import open_regular, problem_of, read_file, shortened, storable

_SIDECAR = ".python_io.json"


def import_path(path: Path, *, model: str = "", keep_failing: bool = False) -> Imported:
    """The configurations of a file, or of a folder of per-operation traces."""
    if path.is_dir():
        if not is_trace_folder(path):
            msg = f"the folder {path} has no traces of ttnn operations; give the files one by one"
            raise UnreadableFileError(msg)
        return read_trace_folder(path, keep_failing=keep_failing)
    content = _content(path)
    run = sha256(content).hexdigest()[:RUN_CHARACTERS]
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        msg = f"{path} is neither JSON nor a text trace: it is not UTF-8 text"
        raise UnreadableFileError(msg) from error
    if is_raw_trace(text):
        return read_raw_trace(text, origin=str(path), keep_failing=keep_failing)
    if is_exchange_text(text):
        return read_lines(text, origin=str(path))
    if is_aten_text(text):
        return read_aten_text(text, source=source_of(path), run=run, model=model or path.stem)
    return import_document(_parsed(text, path), path, run)


def is_exchange(path: Path) -> bool:
    """Whether a file holds the contents of a database, which are merged and not replaced."""
    if not path.is_file():
        return False
    with open_regular(path) as file:
        return is_exchange_text(file.readline(200).decode("utf-8", "replace"))


def source_of(path: Path) -> str:
    """The name of a file as a source: its whole path, since files in different folders have equal names."""
    return str(path.resolve())


def _content(path: Path) -> bytes:
    return read_file(path)


def _parsed(text: str, path: Path) -> object:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        msg = (
            f"{path} is neither JSON ({shortened(error)}) nor a text trace of aten ops; "
            "`torchstone db import --help` lists the formats"
        )
        raise UnreadableFileError(msg) from error
    if problem := problem_of(text.encode("utf-8", "surrogatepass")):
        msg = f"{path} is not read: {problem}"
        raise UnreadableFileError(msg)
    return storable(document, text)


def import_document(document: object, path: Path, run: str) -> Imported:
    """The configurations of a parsed JSON document; its source name is that of the path."""
    if is_graph(document):
        return read_graph(document, source=source_of(path), run=run)
    if is_operation_trace(document):
        return read_operation_trace(document, source=source_of(path), run=run)
    if is_report(document):
        found = read_report(_with_sidecar(document, path), source=source_of(path), run=run)
        if not found.seen:
            msg = f"{path} is a graph report without any op call that can be read; nothing was imported from it"
            raise UnreadableFileError(msg)
        return found
    if is_master(document):
        return read_master(document, source=source_of(path), run=run)
    kind = f"an object with {', '.join(list(document)[:5])}" if isinstance(document, dict) else "a list or a value"
    msg = f"{path} is JSON of an unknown format ({kind}); `torchstone db import --help` lists the formats"
    raise UnreadableFileError(msg)


def _with_sidecar(document: JsonObject, path: Path) -> JsonObject:
    """A report together with the Python arguments of its calls, which some versions write to a file beside it."""
    names = (path.name + _SIDECAR, path.stem + _SIDECAR)  # the second since ttnn 0.81
    beside = next((one for name in names if (one := path.with_name(name)).is_file()), None)
    if "python_io" in document or beside is None:
        return document
    return document | {"python_io": _parsed(_content(beside).decode("utf-8", "replace"), beside)}
