"""Captures that were made before, found by what they were made from: the second question needs no torch.

A capture depends on the configuration, the options, and the versions of torchstone, torch and transformers. That of a
model or inputs from Python code also depends on all files that the code read, which are listed beside it.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from time import time_ns
from typing import TypeVar

import msgspec

import torchstone
from torchstone.errors import InputError, TorchstoneError, UnreadableFileError
from torchstone.models.inputs import InputOptions
from torchstone.models.user_code import parse_target
from torchstone.models.zoo.catalogue import find_entry
from torchstone.record import codec
from torchstone.record.base import Record
from torchstone.record.cost import BatchesByCapture
from torchstone.record.files import read_file
from torchstone.record.formula import FormulaCost, Setting
from torchstone.record.trace import Trace
from torchstone.units import read_bytes
from torchstone.workflows.code_files import FileState, surroundings

VARIABLE = "TORCHSTONE_CACHE"  # a folder, or "off"
SIZE_VARIABLE = "TORCHSTONE_CACHE_SIZE"
_DEFAULT_SIZE = "1GiB"
_PACKAGES = ("torch", "transformers", "numpy")
_CONFIG = "config.json"
_SETTINGS = ".settings"
_FORMULAS = ".formulas"
_BATCHES = ".batches"
_ANSWER = ".answer"
_MOST_ANSWERS = 200  # files of a few KiB
_JUST_WRITTEN_NS = 2_000_000_000  # a file that changes again so soon may keep its size and time


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureKey:
    """What a capture is made from, apart from versions."""

    model: str
    options: InputOptions
    how: Mapping[str, object]  # mode, backward pass, keywords for forward()
    inputs: str | None = None  # FILE.py::FN
    around: str = field(default_factory=surroundings)  # before the code runs, which may change them

    @property
    def has_code(self) -> bool:
        """Whether the model or its inputs are made by Python code of the user."""
        return self.inputs is not None or parse_target(self.model) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheInfo:
    """Where captures are kept, how many, and how large they are."""

    folder: Path | None  # None: the cache is off
    captures: int
    size_bytes: int
    limit_bytes: int


def is_off() -> bool:
    """Whether every question is answered by a new capture."""
    return os.environ.get(VARIABLE, "").lower() == "off"


def cache_folder() -> Path | None:
    """The folder of captures; None where the cache is off."""
    chosen = os.environ.get(VARIABLE, "")
    if is_off():
        return None
    if chosen:
        return Path(chosen)
    home = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    with suppress(RuntimeError):  # there is no home folder
        return (Path(home) if home else Path.home() / ".cache") / "torchstone" / "captures"
    return None


def cached_capture(key: CaptureKey) -> Trace | None:
    """The capture of an earlier, equal request; one that cannot be read counts as none."""
    path = _path(key)
    if path is None or not path.is_file():
        return None
    try:
        if key.has_code and not _is_unchanged(path):
            return None
        content = _read(path)
        if content is None:
            return None
        found = codec.decode(content, Trace, origin=str(path))
        os.utime(path)  # the captures that were not used for longest go first
    except (TorchstoneError, OSError):
        return None
    return found


def keep_capture(key: CaptureKey, trace: Trace, files: Sequence[FileState] | None = ()) -> None:
    """Keep a capture that ended well; a cache that cannot be written is not an error.

    `files` are those that code was made from; None where more than files decides what it does.
    """
    path = None if trace.failure is not None or files is None else _path(key)
    if path is None:
        return
    with suppress(OSError):
        _remove(path)  # never a capture beside the files of another one
        if key.has_code:
            _keep(_files_beside(path), msgspec.json.encode(files))
        _keep(path, codec.encode(trace))
        _shrink(path.parent, keep=path)


def cache_info() -> CacheInfo:
    """What the cache holds."""
    folder = cache_folder()
    sizes = [path.stat().st_size for path in _captures(folder)]
    return CacheInfo(folder=folder, captures=len(sizes), size_bytes=sum(sizes), limit_bytes=_limit_bytes())


def clear_cache() -> CacheInfo:
    """Delete all captures; returns what there was."""
    before = cache_info()
    for path in _captures(before.folder):
        _remove(path)
    if before.folder is not None:
        for suffix in (_SETTINGS, _FORMULAS, _BATCHES, _ANSWER):  # also beside captures that come with torchstone
            for path in before.folder.glob(f"*{suffix}"):
                path.unlink(missing_ok=True)
    return before


def keep_settings(key: CaptureKey, settings: Mapping[str, Setting]) -> None:
    """Keep the values of the configuration of a model, which are not known without transformers."""
    path = None if key.has_code else _path(key)
    if path is not None:
        with suppress(OSError):
            _keep(path.with_suffix(_SETTINGS), msgspec.json.encode(settings))


def kept_settings(key: CaptureKey) -> dict[str, Setting] | None:
    """Those values; None where nobody has asked for them before."""
    path = None if key.has_code else _path(key)
    if path is None:
        return None
    return _load(path.with_suffix(_SETTINGS), dict[str, Setting])


class _KeptFormulas(Record, frozen=True, kw_only=True):
    """The cost of a model by formulas, and what it depends on beside the capture."""

    state: str
    result: FormulaCost


def keep_formula_cost(key: CaptureKey, state: str, result: FormulaCost) -> None:
    """Keep the costs by formula beside a capture; `state` is what else they depend on."""
    path = _path(key)
    if path is not None:
        kept = _KeptFormulas(state=state, result=result)
        with suppress(OSError):
            _keep(path.with_suffix(_FORMULAS), msgspec.json.encode(kept))


def kept_formula_cost(key: CaptureKey, state: str) -> FormulaCost | None:
    """The costs by formula of an equal capture; None where there are none, or where the state was another one."""
    path = _path(key)
    if path is None:
        return None
    kept = _load(path.with_suffix(_FORMULAS), _KeptFormulas)
    return kept.result if kept is not None and kept.state == state else None


class _KeptBatches(Record, frozen=True, kw_only=True):
    """The largest batches of a model by captures, and what they depend on beside the first capture."""

    state: str
    result: BatchesByCapture


def keep_batches(key: CaptureKey, state: str, result: BatchesByCapture) -> None:
    """Keep the largest batches beside a capture; `state` is what else they depend on."""
    path = _path(key)
    if path is not None and path.is_file():
        with suppress(OSError):
            _keep(path.with_suffix(_BATCHES), msgspec.json.encode(_KeptBatches(state=state, result=result)))


def kept_batches(key: CaptureKey, state: str) -> BatchesByCapture | None:
    """Those of an equal capture; None where there are none, or where the state was another one."""
    path = _path(key)
    kept = None if path is None else _load(path.with_suffix(_BATCHES), _KeptBatches)
    return kept.result if kept is not None and kept.state == state else None


# --- Answers from a database ---


R = TypeVar("R", bound=Record)
T = TypeVar("T")


class _KeptAnswer(Record, frozen=True, kw_only=True):
    """An answer, and the state of what it was read from."""

    state: str
    answer: msgspec.Raw


def state_of_file(path: Path) -> str | None:
    """The size and time of a database, with its journals; None where it is missing, or has changed just now."""
    found = []
    for one in (path, Path(f"{path}-wal"), Path(f"{path}-journal")):
        try:
            seen = one.stat()
        except OSError:
            found.append("")
            continue
        if abs(time_ns() - seen.st_mtime_ns) < _JUST_WRITTEN_NS:
            return None
        found.append(f"{seen.st_ino} {seen.st_size} {seen.st_mtime_ns}")
    return repr(found) if found[0] else None


def keep_answer(question: str, state: str, answer: Record) -> None:
    """Keep what a question was answered with while its source is in this state."""
    path = _answer_path(question)
    if path is None:
        return
    kept = _KeptAnswer(state=state, answer=msgspec.Raw(msgspec.json.encode(answer)))
    with suppress(OSError):
        _keep(path, msgspec.json.encode(kept))
        found = sorted(path.parent.glob(f"*{_ANSWER}"), key=lambda one: one.stat().st_mtime_ns)
        for old in found[:-_MOST_ANSWERS]:
            old.unlink(missing_ok=True)


def kept_answer(question: str, state: str, answer_type: type[R]) -> R | None:
    """That answer; None where there is none, or where the source was in another state."""
    path = _answer_path(question)
    if path is None:
        return None
    kept = _load(path, _KeptAnswer)
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(kept.answer, type=answer_type) if kept is not None and kept.state == state else None
    return None


def _answer_path(question: str) -> Path | None:
    folder = cache_folder()
    return None if folder is None else folder / f"{sha256(question.encode()).hexdigest()[:40]}{_ANSWER}"


def state_of_sources(*folders: str) -> str:
    """A digest of torchstone's version and the state of its files in some folders: an edit changes it."""
    root = Path(torchstone.__file__).parent
    found = []
    for part in folders:
        for folder, _, names in os.walk(root / part):  # paths as text: this runs before every answer
            found += [f"{folder}/{name}" for name in names if name.endswith((".py", ".json", ".toml"))]
    facts = [(path[len(str(root)) :], os.stat(path)) for path in sorted(found)]  # noqa: PTH116 - as above
    states = [f"{path} {state.st_size} {state.st_mtime_ns}" for path, state in facts]
    return sha256("\n".join([torchstone.__version__, *states]).encode()).hexdigest()


def _remove(path: Path) -> None:
    for one in (path, _files_beside(path), *map(path.with_suffix, (_SETTINGS, _FORMULAS, _BATCHES))):
        one.unlink(missing_ok=True)


def _files_beside(path: Path) -> Path:
    return path.with_suffix(".files")


def _is_unchanged(path: Path) -> bool:
    """Whether all files are as they were that the code of a capture was made from."""
    files = _load(_files_beside(path), tuple[FileState, ...])
    return files is not None and all(one.holds() for one in files)


def _captures(folder: Path | None) -> list[Path]:
    return sorted(folder.glob("*.json")) if folder is not None and folder.is_dir() else []


def _limit_bytes() -> int:
    text = os.environ.get(SIZE_VARIABLE, _DEFAULT_SIZE)
    limit = read_bytes(text)
    if limit is None:
        msg = f"{SIZE_VARIABLE} is {text!r}; give a size such as {_DEFAULT_SIZE}"
        raise InputError(msg)
    return limit


def _shrink(folder: Path, *, keep: Path) -> None:
    """Delete the captures that were not used for longest until the rest fits."""
    found = sorted(((path.stat().st_mtime_ns, path.stat().st_size, path) for path in _captures(folder)), reverse=True)
    held = 0
    for _, size, path in found:
        held += size
        if held > _limit_bytes() and path != keep:
            _remove(path)


# --- Files with a checksum: JSON in which a digit has changed is read as well as the right one ---


def _keep(path: Path, content: bytes) -> None:
    codec.write_atomically(path, content + b"\n" + _checksum(path, content))


def _read(path: Path) -> bytes | None:
    """The content of a file; None where it is missing, or anything but what was kept under this name."""
    try:
        content, _, found = read_file(path).rpartition(b"\n")
    except UnreadableFileError:
        return None
    return content if found == _checksum(path, content) else None


def _load(path: Path, kind: type[T]) -> T | None:
    content = _read(path)
    try:
        return None if content is None else msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _checksum(path: Path, content: bytes) -> bytes:
    return b"sha256 " + sha256(path.name.encode() + b"\0" + content).hexdigest().encode()


# --- The key ---


def _path(key: CaptureKey) -> Path | None:
    folder = cache_folder()
    source = _source(key) if folder is not None else None
    if folder is None or source is None:
        return None
    facts = {
        "model": key.model,
        "source": source,
        "options": asdict(key.options),
        "how": dict(key.how),
        "inputs": key.inputs,
        "python": sys.version,
        "packages": {name: installed_version(name) for name in _PACKAGES},
        "torchstone": state_of_sources("capture", "models", "record", "numerics"),
    }
    return folder / f"{sha256(repr(facts).encode()).hexdigest()[:40]}.json"


def _source(key: CaptureKey) -> str | None:
    """What a model is built from, by content; None where that is not known. Code is known by its files, elsewhere."""
    name, options = key.model, key.options
    if options.pretrained or options.given_media():
        return None
    if key.has_code:
        return key.around
    if name.startswith("tiny:"):
        return name
    path = Path(name)
    with suppress(OSError):
        if path.is_dir():
            path /= _CONFIG
        if path.is_file():
            return sha256(path.read_bytes()).hexdigest()
    entry = find_entry(name)
    return None if entry is None else msgspec.json.encode(entry).decode()


def installed_version(package: str) -> str:
    """The version of an installed package, "" where there is none.

    Its folder of metadata has it in its name. Only where there is none, as for a source tree, importlib.metadata is
    asked: importing that takes a tenth of the time of a whole answer.
    """
    start, end = f"{package}-", ".dist-info"
    for folder in sys.path:
        with suppress(OSError):
            for found in os.listdir(folder or "."):  # noqa: PTH208 - five times as fast as a glob
                if found.startswith(start) and found.endswith(end):
                    return found[len(start) : -len(end)]
    from importlib.metadata import PackageNotFoundError, version

    with suppress(PackageNotFoundError):
        return version(package)
    return ""
