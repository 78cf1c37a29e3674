"""What the commands do with a file that somebody else wrote, each as a function of its bytes or its path.

The result can be compared with that of the original. A function goes as far as the commands do: what was read is also
priced, rendered or summed up.
"""

import gzip
import os
import zlib
from collections.abc import Callable
from contextlib import suppress
from fnmatch import fnmatch
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from tests.attacks.corpora import scratch
from tests.report.traces import transformer
from torchstone.errors import TorchstoneError, UnreadableFileError
from torchstone.record import codec
from torchstone.record.base import Document
from torchstone.record.memory import MemoryTimeline
from torchstone.record.trace import Trace
from torchstone.record.unique import unique_modules

Read = Callable[[bytes], object]
_TORCH_ONE_IN = 128
_PAGE_ONE_IN = 512
_FOLDER_ONE_IN = 16
_USE_ONE_IN = 8


def from_path(read: Callable[[Path], object], name: str) -> Read:
    """A reader of a path; the file stays open for writing, which is faster than to make it again for each mutant."""
    opened: list[tuple[Path, int]] = []

    def from_bytes(content: bytes) -> object:
        if not opened:
            path = scratch() / name
            opened.append((path, os.open(path, os.O_RDWR | os.O_CREAT, 0o600)))
        path, file = opened[0]
        os.pwrite(file, content, 0)
        os.ftruncate(file, len(content))
        return read(path)

    return from_bytes


# --- Records ---


def record_of(kind: type[Document], use: Callable[[Any], object] | None = None) -> Read:
    def read(content: bytes) -> object:
        record = codec.decode(content, kind, origin="x.json")
        if use is not None:
            use(record)
        return codec.encode(record)

    return read


def use_trace(trace: Trace) -> None:
    from torchstone.cost.price_trace import price
    from torchstone.report.text import failure_text

    price(trace)
    unique_modules(trace)
    failure_text(trace)
    len(trace.ops)


def use_timeline(timeline: MemoryTimeline) -> None:
    """Show a timeline, or write its documents, by turns: commands do the one or the other."""
    from torchstone.memory.documents import memory_json, operations_json, registry_document, show_document
    from torchstone.memory.study import Study

    study = Study(timeline)
    if len(codec.encode(timeline)) % 2:
        show_document(study)
        return
    registry_document(study, "x")
    for _ in (*memory_json(study, "x"), *operations_json(study, "x")):
        pass


def read_log(content: bytes) -> object:
    from torchstone.memory.read_log import parse_log

    return written_and_read(parse_log(content.splitlines(keepends=True)))


def read_memory_file(path: Path) -> object:
    from torchstone.memory.read_log import parse_log

    timeline = parse_log(path)
    text = codec.encode(timeline)
    _write_and_read(text, MemoryTimeline)
    if zlib.crc32(text) % _USE_ONE_IN == 0:  # the reader "timeline" uses whatever a written one may be
        _use_written(text)
    return text


def written_and_read(record: Document) -> bytes:
    """A record as a file, which must be one that can be read again: commands write it for other commands."""
    text = codec.encode(record)
    _write_and_read(text, type(record))
    return text


@lru_cache(maxsize=256)  # many mutants are equal to the original
def _write_and_read(text: bytes, kind: type[Document]) -> None:
    try:
        codec.decode(text, kind, origin="x.json")
    except TorchstoneError as error:
        msg = f"it was read, but what is written of it cannot be: {error}"
        raise AssertionError(msg) from error


@lru_cache(maxsize=256)
def _use_written(text: bytes) -> None:
    use_timeline(codec.decode(text, MemoryTimeline, origin="x.json"))


# --- Configurations ---


def import_any(path: Path) -> object:
    from torchstone.configs.export import write_master
    from torchstone.configs.import_file import import_path

    found = import_path(path)
    write_master(found.seen)
    return [one.key for one in found.seen]


def load_master(path: Path) -> object:
    """Configurations for a sweep module, from a master file."""
    from torchstone.sweep import master_entries

    master_entries._parsed.cache_clear()  # by the time of the last change, which is the same for mutants of one moment
    try:
        return str(master_entries.read_master(path, "ttnn.add"))
    except ValueError as error:  # its callers turn it into a sentence
        return str(error)[:40]


def master_database(path: Path) -> object:
    """Configurations for a sweep module, from a database."""
    from torchstone.sweep.master_entries import read_database

    try:
        return str(read_database(str(path), "aten.mm.default"))
    except ValueError as error:  # its callers turn it into a sentence
        return str(error)[:40]


def formulas(path: Path) -> object:
    from torchstone.formula.database.files import _read_entries

    return sorted(_read_entries(path)[0])


def template(content: bytes) -> object:
    from torchstone.formula.language.parse import parse

    return repr(parse(content.decode("utf-8", "replace")))


def hardware(path: Path) -> object:
    from torchstone.cost.roofline import find_hardware

    return repr(find_hardware(str(path)))


def tolerances(path: Path) -> object:
    from torchstone.check.settings import _from_file

    return repr(_from_file(path))


def journal(path: Path) -> object:
    from torchstone.workers.journal import Journal

    return Journal.read(path)


# --- Documents that a report shows: read, laid out and written as a page ---


def rendered(name: str, kind: Callable[[], type[Document]], beside: Callable[[], dict[str, Document]] = dict) -> Read:
    """A document beside a capture and others, as `torchstone report` takes it.

    What a section of the report does first is done first: it decodes the document, which nine of ten mutants do not
    survive. Of those, one in some goes to the section all the same.
    """
    from torchstone.report.page import assemble, render_page
    from torchstone.report.render import SECTIONS, render_twin
    from torchstone.report.section import ReportFolder
    from torchstone.report.view import memory

    chosen = [one for one in SECTIONS if any(fnmatch(name, file) for file in one.files)]
    decoded_as = cache(kind)

    @cache
    def capture() -> Trace:
        """Write the documents that stay as they are, and read the capture, once."""
        folder = scratch() / name
        folder.mkdir()
        for other, document in {"trace.json": transformer(1), **beside()}.items():
            codec.save(folder / other, document)
        return codec.load(folder / "trace.json", Trace)

    def in_folder(path: Path) -> object:
        memory._opened.cache_clear()  # by the time of the last change, which is the same for mutants of one moment
        folder = ReportFolder(path.parent)
        if name != "trace.json":
            vars(folder)["trace"] = capture()
        report = assemble(folder, chosen)
        render_twin(report)
        return report

    write_and_read = from_path(in_folder, f"{name}/{name}")

    def read(content: bytes) -> object:
        capture()
        turn = zlib.crc32(content)
        if turn % _FOLDER_ONE_IN:
            codec.decode(_unpacked(content), decoded_as(), origin=name)
        report: Any = write_and_read(content)
        if turn % _PAGE_ONE_IN == 0:  # the page is some hundred times as slow, and mostly scripts
            render_page(report)
        return repr(report)

    return read


def _unpacked(content: bytes) -> bytes:
    if not content.startswith(b"\x1f\x8b"):
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:  # as read_unpacked does
        raise UnreadableFileError(str(error)) from error


# --- Archives, databases and settings ---


def bundle(path: Path) -> object:
    """Unpack a bundle of `check`."""
    from torchstone.check.bundle import unpack

    folder = scratch() / "unpacked"
    folder.mkdir(exist_ok=True)
    return repr(unpack(path, folder))


class Answers(dict[str, str]):
    """What commands print about a file; equal where all commands that both were asked for print the same."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Answers) and all(self[name] == other[name] for name in self.keys() & other.keys())

    __hash__ = None


def store(path: Path, *, whole: bool = False) -> object:
    """Open a database and ask for what one command prints, by turns; whole: for everything."""
    from torchstone.store.database import Store
    from torchstone.store.sweeps import newest_statuses, read_sweep, sweep_runs

    commands: dict[str, Callable[[Store], object]] = {
        "info": lambda opened: opened.info(),
        "list": lambda opened: opened.operations(),
        "names": lambda opened: (opened.op_names(), opened.models(), opened.sources()),
        "export": lambda opened: list(opened.configurations()),
        "runs": lambda opened: opened.runs(),
        "check": lambda opened: opened.faults(),
        "sweeps": lambda opened: [read_sweep(opened, one.run) for one in sweep_runs(opened)],
        "statuses": lambda opened: newest_statuses(opened, "eager"),
    }
    for beside in ("-wal", "-shm", "-journal"):
        with suppress(FileNotFoundError):
            os.unlink(f"{path}{beside}")  # noqa: PTH108 - a path takes longer
    turn = zlib.crc32(path.read_bytes()) % len(commands)
    with Store.open(str(path), create=False) as opened:
        chosen = commands if whole else list(commands)[turn : turn + 1]
        return Answers({name: repr(commands[name](opened)) for name in chosen})


def settings(path: Path) -> object:
    from torchstone.cli.cost import command
    from torchstone.cli.project_settings import find_settings

    found = find_settings(path.parent)
    return None if found is None else repr(found.defaults("cost", command))


def setup(path: Path) -> object:
    from torchstone.reference.setup_differences import read_setup

    return repr(read_setup(path))


# --- Tensor files and exported programs, which need torch ---


def tensors(path: Path) -> object:
    from torchstone.reference.port_files import read_candidate

    return {
        name: (tuple(one.shape), str(one.dtype), str(one.flatten()[:1000].tolist()))
        for name, one in read_candidate(path).items()
    }


def own_tensors(path: Path) -> object:
    from torchstone.numerics.tensor_files import TensorFileError, read_tensors

    try:
        return {name: (tuple(one.shape), str(one.dtype)) for name, one in read_tensors(path).items()}
    except TensorFileError as error:  # its callers turn it into a sentence
        raise UnreadableFileError(str(error)) from error


def exported(path: Path) -> object:
    """Check a program before torch reads it; torch reads one in some, since it takes much longer."""
    from torchstone.models.exported import _read
    from torchstone.models.exported_archive import check_archive

    if zlib.crc32(path.read_bytes()) % _TORCH_ONE_IN == 0:
        _read(path)
        return "harmless"
    try:
        check_archive(path)
    except Exception as error:  # as _read does, which then says that the file is not readable
        raise UnreadableFileError(str(error)[:80]) from error
    return "harmless"


# --- Files of other tools, and what a model is built from ---


def tt_metal(path: Path) -> object:
    """Vectors or results of tt-metal's sweeps."""
    from torchstone.sweep.tt_metal_files import has_vectors, read_results_export, read_vectors_export

    return repr(read_vectors_export(path)) if has_vectors(path) else written_and_read(read_results_export(path))


def name_map(path: Path) -> object:
    """The names of a port, as --map gives them."""
    from torchstone.reference.match_names import read_map

    return dict(read_map(path))


def model_config(path: Path) -> object:
    """A configuration of a model of transformers."""
    from torchstone.models.pretrained import _local_blueprint

    made = _local_blueprint(path)
    return made.name, made.model_class, str(vars(made.config))  # what repr shows of it takes longer than to read it


def weight_index(path: Path) -> object:
    """The index of weight files beside it."""
    from torchstone.models.weight_files import _shards

    (path.parent / "model-1.safetensors").touch()
    return _shards(path)


def image(path: Path) -> object:
    """An example image."""
    from torchstone.models.example_inputs.processed import _read_image

    found: Any = _read_image(path)
    return found.size, found.tobytes()


def audio(path: Path) -> object:
    """An example recording."""
    from torchstone.models.example_inputs.processed import _read_audio

    return _read_audio(path, 16_000).tobytes()


def python_file(path: Path) -> object:
    """What is read of a model's file before it is executed."""
    from torchstone.errors import ModelError
    from torchstone.models.user_code import _relative_import_levels

    try:
        return _relative_import_levels(path)
    except (Exception, SystemExit) as error:  # as whoever runs the file does
        raise ModelError(str(error)[:80]) from error


def kept_files(path: Path) -> object:
    """The state of files beside a capture that was kept; what is damaged counts as changed."""
    from torchstone.workflows.capture_cache import _is_unchanged

    return _is_unchanged(path)


def kept_dependencies(path: Path) -> object:
    """What the results of a check depended on; what is damaged counts as not recorded."""
    from torchstone.check.dependencies import Dependencies
    from torchstone.record.codec import load_kept

    return load_kept(path, Dependencies)


def reports(path: Path) -> object:
    """The list of reports in a folder."""
    from torchstone.report.index_page import _twin_of

    return _twin_of(path)


def answer_of_worker(content: bytes) -> object:
    """A line from a child process."""
    from torchstone.workers.lane import read_message

    return repr(read_message(content))
