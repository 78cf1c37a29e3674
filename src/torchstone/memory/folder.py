"""The output folder of one log, the folder of all reports, and the sample logs."""

import gzip
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from itertools import count
from pathlib import Path

import msgspec

from torchstone.errors import InputError, UnreadableFileError
from torchstone.memory.documents import memory_json, operations_json, registry_document
from torchstone.memory.log_source import Progress
from torchstone.memory.read_log import parse_log
from torchstone.memory.study import Study
from torchstone.memory.ttnn_files import ttnn_file_in
from torchstone.record.codec import decode, encode, write_atomically
from torchstone.record.files import matching, read_unpacked
from torchstone.record.memory import MemoryTimeline
from torchstone.temporary import replacing

# --- Sample logs of the package: generated, in the runtime's exact format ---


HEALTHY, OUT_OF_MEMORY = "healthy.log.gz", "out_of_memory.log.gz"


def demo_log(name: str) -> bytes:
    """The text of a sample log."""
    return gzip.decompress((files("torchstone.memory") / "demo" / name).read_bytes())


# --- Report folders ---


HOME_VARIABLE = "TTMEM_HOME"
TIMELINE_SUFFIX = "_timeline.json.gz"
MAX_TIMELINE_BYTES = 2 << 30  # unpacked: an op takes about 100 bytes
_UNSAFE = re.compile(r"[^\w.+-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFolder:
    """The files of one report."""

    path: Path
    name: str

    @property
    def memory(self) -> Path:
        """State before each op and its effect."""
        return self.path / f"{self.name}_memory.json"

    @property
    def operations(self) -> Path:
        """Name, operands and location of each op."""
        return self.path / f"{self.name}_operations.json"

    @property
    def registry(self) -> Path:
        """Weights, constants and inputs."""
        return self.path / f"{self.name}_inputs_registry.json"

    @property
    def timeline(self) -> Path:
        """Everything, in columns: the source of all reports."""
        return self.path / f"{self.name}{TIMELINE_SUFFIX}"

    @property
    def page(self) -> Path:
        """The report itself."""
        return self.path / f"{self.name}_report.html"

    @property
    def log(self) -> Path:
        """The log, where torchstone captured it."""
        return self.path / f"{self.name}.log"


def reports_home() -> Path:
    """Where reports are kept: ~/.ttmem/reports, or $TTMEM_HOME/reports."""
    home = os.environ.get(HOME_VARIABLE)
    return (Path(home) if home else Path.home() / ".ttmem") / "reports"


def report_name(source: str | Path) -> str:
    """The name of a report from its log or script; underscores become hyphens."""
    name = Path(source).name
    for suffix in (".gz", ".xz", ".zst"):
        name = name.removesuffix(suffix)
    stem = name.rpartition(".")[0] or name
    return _UNSAFE.sub("-", stem.replace("_", "-")).strip("-.") or "report"


def folder_for(source: str | Path, *, directory: Path | None = None, name: str = "") -> MemoryFolder:
    """The folder that a log or script is written to."""
    chosen = report_name(name or source)
    return MemoryFolder(path=directory or reports_home() / chosen, name=chosen)


def next_folder(folder: MemoryFolder, *, packed: bytes | None = None, log: Path | None = None) -> MemoryFolder:
    """The folder itself where it is free, else NAME-2, NAME-3, ...: an earlier report is never overwritten.

    One that holds the same timeline, packed, is the same report: it may be written again. A log that was saved without
    a report gets it in its own folder.
    """
    for number in count(1):
        suffix = "" if number == 1 else f"-{number}"
        own_place = folder.path.parent == reports_home() and folder.path.name == folder.name
        name = f"{folder.name}{suffix}" if own_place else folder.name
        path = folder.path.with_name(f"{folder.path.name}{suffix}") if suffix else folder.path
        found = MemoryFolder(path=path, name=name)
        if not _is_taken(found, log) or (packed is not None and _holds(found, packed)):
            return found
    raise AssertionError  # the numbers do not end


def claimed_folder(folder: MemoryFolder) -> MemoryFolder:
    """The next free folder, with an empty log in it: of two scripts of one name that start together, each has its own.

    Where no file can be created, the folder is given all the same: the script runs, and its log is reported as lost.
    """
    while True:
        free = next_folder(folder)
        try:
            free.path.mkdir(parents=True, exist_ok=True)
        except OSError:
            return free
        try:
            free.log.touch(exist_ok=False)
        except FileExistsError:  # another script was faster
            continue
        except OSError:
            pass
        return free


def _is_taken(folder: MemoryFolder, log: Path | None) -> bool:
    if folder.timeline.exists():
        return True
    return folder.log.exists() and not (log is not None and log.exists() and folder.log.samefile(log))


def _holds(folder: MemoryFolder, packed: bytes) -> bool:
    return folder.timeline.exists() and folder.timeline.read_bytes() == packed


def earlier_runs(name: str) -> list[MemoryFolder]:
    """The reports NAME, NAME-2, NAME-3, ... in the place of reports, oldest first."""
    stem = report_name(f"{name}.log")
    pattern = re.compile(rf"{re.escape(stem)}(?:-(\d+))?")
    found = [
        (int(match.group(1) or 1), folder)
        for folder in list_folders(reports_home())
        if (match := pattern.fullmatch(folder.name)) is not None
    ]
    return [folder for _, folder in sorted(found, key=lambda one: one[0])]


def find_folder(path: Path) -> MemoryFolder:
    """The report in a folder."""
    found = matching(path, f"*{TIMELINE_SUFFIX}")
    if not found:
        msg = f"{path} has no memory report; create one with `torchstone memory parse LOG`"
        raise InputError(msg)
    if len(found) > 1:
        names = ", ".join(one.name.removesuffix(TIMELINE_SUFFIX) for one in found)
        msg = f"{path} has more than one memory report ({names}); name the log or move them apart"
        raise InputError(msg)
    return MemoryFolder(path=path, name=found[0].name.removesuffix(TIMELINE_SUFFIX))


def list_folders(home: Path) -> list[MemoryFolder]:
    """All reports below a folder, newest first."""
    found = (MemoryFolder(path=one.parent, name=one.name.removesuffix(TIMELINE_SUFFIX))
             for one in home.glob(f"*/*{TIMELINE_SUFFIX}"))  # fmt: skip
    return sorted(found, key=lambda folder: (-folder.timeline.stat().st_mtime, folder.name))


def pack_timeline(timeline: MemoryTimeline) -> bytes:
    """A timeline as it is stored."""
    return gzip.compress(encode(timeline), compresslevel=6, mtime=0)


def write_folder(
    folder: MemoryFolder, timeline: MemoryTimeline, *, packed: bytes | None = None, each_op: bool = True
) -> None:
    """Write all documents; the timeline last, so that a folder with a timeline is complete.

    Without `each_op`, the two documents with a row for each op are left out: the timeline has the same in columns,
    where what repeats is written once.
    """
    study = Study(timeline)
    if each_op:
        write_pieces(folder.memory, memory_json(study, folder.name))
        write_pieces(folder.operations, operations_json(study, folder.name))
    registry = msgspec.json.format(msgspec.json.encode(registry_document(study, folder.name)), indent=1)
    write_atomically(folder.registry, registry + b"\n")
    write_atomically(folder.timeline, pack_timeline(timeline) if packed is None else packed)


def write_pieces(path: Path, pieces: Iterable[bytes]) -> None:
    """Write a file piece by piece, and move it into place when it is complete."""
    with replacing(path) as file:
        file.writelines(pieces)


def read_timeline(path: Path) -> MemoryTimeline:
    """A timeline from its own file."""
    return decode(read_unpacked(path, most_bytes=MAX_TIMELINE_BYTES), MemoryTimeline, origin=str(path))


def open_timeline(
    source: str, *, dialect: str = "", rank: str = "", progress: Progress | None = None
) -> MemoryTimeline:
    """Read the timeline of a log, a report folder, or a report name: see `locate`."""
    place = locate(source)
    report = ttnn_file_in(place) if place.is_dir() and not any(matching(place, f"*{TIMELINE_SUFFIX}")) else None
    if report is not None:
        return parse_log(report)
    if place.is_dir():
        return read_timeline(find_folder(place).timeline)
    if place.name.endswith(TIMELINE_SUFFIX):
        return read_timeline(place)
    return parse_log(place, dialect=dialect, rank=rank, progress=progress)


def locate(source: str) -> Path:
    """Find the log or report folder that a user named, by a path or by a report name.

    A source with a slash (`./demo`, `runs/net.log`), `.` and `..` are paths. Any other is a report name, or a file or
    folder of the working directory, whichever exists. When both exist the source is refused, because each has an
    unambiguous spelling. A folder without a memory report does not conflict: the command could not read it anyway.
    """
    here = Path(source)
    report = None if _is_path(source) else _report_named(source)
    if report is None and here.exists():
        return here
    if report is not None and not _is_readable(here):
        return report
    if report is None:
        msg = f"there is no log or report {source!r}; give a log file, a report folder, or a name from `ttmem list`"
        raise UnreadableFileError(msg)
    kind = "folder" if here.is_dir() else "file"
    msg = (
        f"{source!r} is both a report name and a {kind} in the working directory; "
        f"write ./{source} for the {kind}, or {report} for the report"
    )
    raise InputError(msg)


def _is_path(source: str) -> bool:
    return source in {"", ".", ".."} or os.sep in source or bool(os.altsep and os.altsep in source)


def _report_named(name: str) -> Path | None:
    """The folder of a report; underscores may be written for the hyphens of its name."""
    places = (reports_home() / name, reports_home() / report_name(f"{name}.log"))
    return next((place for place in places if place.is_dir()), None)


def _is_readable(path: Path) -> bool:
    return path.is_file() or (path.is_dir() and any(matching(path, f"*{TIMELINE_SUFFIX}")))
