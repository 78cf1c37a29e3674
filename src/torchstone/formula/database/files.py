"""The formula database: entries that ship with torchstone, and over them those of the user's cache; keys and names."""

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from torchstone.errors import FormulaError, InputError, UnknownFormulaError, UnreadableFileError
from torchstone.formula.database.published import from_published
from torchstone.record.base import Record
from torchstone.record.codec import decode_as, encode, write_atomically
from torchstone.record.files import read_file, shortened
from torchstone.record.folder_lock import SHORT_WRITE_S, exclusive
from torchstone.record.formula import FormulaDatabase, FormulaEntry, Quantity, Status, Validation

if TYPE_CHECKING:
    from torchstone.formula.language.expression import Value

# --- Class paths, database keys and aliases ---


_SPECIAL = re.compile(r"-|(?<=_)_|_(?=_)|^_|_$")  # what would make `__` ambiguous
_ESCAPES = {"-": "-d", "_": "-u"}
_VARIANT = re.compile(r"(?P<path>[^\[\]]*)\[(?P<variant>[^\[\]]+)\]")
_TORCH_MODULES = re.compile(r"torch\.nn\.modules\.\w+\.(?P<name>\w+)")


@lru_cache(maxsize=4096)  # an evaluation asks for the same few classes again and again
def key_of(module_path: str, variant: str = "") -> str:
    """The key of a class path: `.` becomes `__`; a `_` that would be misread, and `-`, become `-u` and `-d`."""
    parts = (_SPECIAL.sub(lambda found: _ESCAPES[found[0]], part) for part in module_path.split("."))
    return "__".join(parts) + (f"[{variant}]" if variant else "")


def path_of(key: str) -> tuple[str, str]:
    """The class path and variant of a key."""
    escaped, variant = split_variant(key)
    parts = (part.replace("-u", "_").replace("-d", "-") for part in escaped.split("__"))
    return ".".join(parts), variant


def split_variant(name: str) -> tuple[str, str]:
    """A name and the variant in its square brackets: Net[eager] -> Net, eager."""
    found = _VARIANT.fullmatch(name)
    return (found["path"], found["variant"]) if found else (name, "")


def with_variant(name: str, variant: str) -> str:
    """The name that split_variant takes apart."""
    return f"{name}[{variant}]" if variant else name


def short_name(path: str) -> str:
    """The class name alone."""
    return path.rpartition(".")[2]


def public_alias(module_path: str) -> str | None:
    """The path that users write for a class of torch.nn: torch.nn.modules.linear.Linear -> torch.nn.Linear."""
    found = _TORCH_MODULES.fullmatch(module_path)
    return f"torch.nn.{found['name']}" if found else None


def nearest(name: str, known: list[str]) -> list[str]:
    """Known names that look like this one, by their class names first."""
    by_short = {short_name(one): one for one in known}
    short = get_close_matches(short_name(name), by_short, n=3, cutoff=0.7)
    return [by_short[one] for one in short] or get_close_matches(name, known, n=3)


# --- JSON Schema of the database, for programs that read or write it without torchstone ---


SCHEMA_NAME = "torchstone/module_db/1"
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def database_schema() -> dict[str, object]:
    """The JSON Schema of module_db.json, made from the records."""
    schema = msgspec.json.schema(FormulaDatabase)
    root = schema["$defs"]["FormulaDatabase"]
    root["properties"] = {"schema": {"const": SCHEMA_NAME}, **root["properties"]}
    root["required"] = ["schema", *root["required"]]
    whole = {"$schema": _DIALECT, "title": "torchstone module_db.json", **schema}
    return msgspec.json.decode(msgspec.json.encode(whole), type=dict[str, object])


# --- Loading: the shipped entries, overridden by the user's own ---


HOME_VARIABLE = "TORCHSTONE_HOME"
DATABASE_FILE = "module_db.json"
NOTE_OF_FORM = (
    "{path} has no schema: it is read as a database of the original design, and its entries without a validator "
    "count as unchecked"
)
_LIST_OF_TEXTS = re.compile(rb'(?<=: )\[\n(?:\s*"(?:[^"\\\n]|\\.)*",?\n)+\s*\]')
_OPEN_TO_DOUBT = (Status.PENDING, Status.FAILED)


@dataclass(frozen=True)
class Formulas:
    """Entries by key, and what was wrong with the files they come from."""

    entries: Mapping[str, FormulaEntry]
    own: frozenset[str] = frozenset()  # the keys that come from the user's cache
    problems: tuple[str, ...] = ()  # each one sentence
    as_shipped: bool = False  # nothing but the shipped entries, of which the tests check every one

    def find(self, name: str) -> FormulaEntry:
        """The entry of a class path, alias, key or unambiguous class name, with a variant in [] where there is one."""
        entry = self.get(name)
        if entry is not None:
            return entry
        path, _ = split_variant(name)
        found = self._named(path)
        if len(found) > 1:
            listed = ", ".join(sorted(found))
            msg = f"{path} may be any of {listed}; give the whole path"
            raise UnknownFormulaError(msg)
        raise UnknownFormulaError(self._unknown(name))

    def get(self, name: str) -> FormulaEntry | None:
        """The entry, or None where there is not exactly one."""
        path, variant = split_variant(name)
        found = self._named(path)
        return self.entries.get(key_of(found[0], variant)) if len(found) == 1 else None

    def variants_of(self, module_path: str) -> tuple[str, ...]:
        """The variants that are known of a class, the usual one as ""."""
        return tuple(entry.variant for entry in self.entries.values() if entry.module_path == module_path)

    def _named(self, path: str) -> list[str]:
        for table in (self._paths, self._short_names):
            if path in table:
                return table[path]
        return []

    @cached_property
    def sound(self) -> set[tuple[str, Quantity]]:
        """The keys and quantities that were found free of mistakes, so that none is looked at twice."""
        return {(key, quantity) for key in self.entries for quantity in Quantity} if self.as_shipped else set()

    @cached_property
    def values(self) -> "dict[Quantity, dict[tuple[str, tuple[Value, ...]], Value]]":
        """By quantity: what entries gave at the arguments they were called with, so that none is computed twice.

        The modules of a model call each other's formulas: that of a layer is part of those of all modules around it.
        """
        return {quantity: {} for quantity in Quantity}

    @cached_property
    def _paths(self) -> dict[str, list[str]]:
        """Class paths, aliases and keys, each with the class paths it means."""
        table: dict[str, list[str]] = {}
        for entry in self.entries.values():
            for alias in (*entry.aliases, public_alias(entry.module_path) or entry.module_path):
                _add(table, alias, entry.module_path)
        for entry in self.entries.values():
            table[entry.module_path] = table[key_of(entry.module_path)] = [entry.module_path]
        return table

    @cached_property
    def _short_names(self) -> dict[str, list[str]]:
        table: dict[str, list[str]] = {}
        for entry in self.entries.values():
            _add(table, short_name(entry.module_path), entry.module_path)
        return table

    def _unknown(self, name: str) -> str:
        known = [with_variant(entry.module_path, entry.variant) for entry in self.entries.values()]
        near = nearest(name, known)
        hint = f"; did you mean {' or '.join(near)}?" if near else "; `torchstone formula list` shows what is known"
        return f"no formula is known for {name}{hint}"


def _add(table: dict[str, list[str]], name: str, path: str) -> None:
    paths = table.setdefault(name, [])
    if path not in paths:
        paths.append(path)


def home_folder() -> Path:
    """Where the user's own formulas are kept: $TORCHSTONE_HOME, or torchstone/ in the user's data folder."""
    given = os.environ.get(HOME_VARIABLE)
    if given:
        return Path(os.path.expanduser(given))  # noqa: PTH111 - it leaves an unknown user as it is
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "torchstone"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "torchstone"
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "torchstone"


def own_database(home: Path | None = None) -> Path:
    """The file of the user's own formulas, which need not exist."""
    return (home or home_folder()) / DATABASE_FILE


def load_formulas(home: Path | None = None) -> Formulas:
    """The shipped entries with the user's own over them; a damaged cache is reported and left alone."""
    path = own_database(home)
    shipped = load_shipped().modules
    try:
        own, broken = _read_entries(path) if path.exists() else ({}, [])
        notes = [NOTE_OF_FORM.format(path=path)] if path.exists() and from_published(read_file(path), key_of) else []
    except UnreadableFileError as error:
        return Formulas(entries=shipped, problems=(f"{error}; its formulas are not used",))
    used = {key: entry for key, entry in own.items() if key not in shipped or not _doubtful(entry)}
    entries = {**shipped, **used}
    return Formulas(entries=entries, own=frozenset(used), problems=(*broken, *notes), as_shipped=not used)


def _doubtful(entry: FormulaEntry) -> bool:
    return entry.validation.status in _OPEN_TO_DOUBT


def load_shipped() -> FormulaDatabase:
    """The database inside the package.

    It is decoded without the checks of files that others wrote, which take twice the time of decoding it: a test makes
    them.
    """
    text = (Path(__file__).parents[1] / DATABASE_FILE).read_bytes()
    return msgspec.json.decode(text, type=FormulaDatabase)


def load_file(path: Path) -> FormulaDatabase:
    """A database file, every entry of it readable and under its own key."""
    entries, broken = _read_entries(path)
    if broken:
        raise UnreadableFileError(broken[0])
    return FormulaDatabase(modules=entries)


class _Entries(Record, frozen=True, kw_only=True):
    """A database whose entries are not yet looked into."""

    modules: dict[str, msgspec.Raw] = {}


def _read_entries(path: Path) -> tuple[dict[str, FormulaEntry], list[str]]:
    """The readable entries of a file, and what is wrong with the others."""
    text = read_file(path)
    text = from_published(text, key_of) or text
    raw = decode_as(text, _Entries, FormulaDatabase.schema, upgrades={}, origin=str(path))
    entries, broken = {}, []
    for key, one in raw.modules.items():
        try:
            entry = msgspec.json.decode(one, type=FormulaEntry)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            broken.append(f"the entry {key} in {path} cannot be used: {shortened(error)}")
            continue
        right = key_of(entry.module_path, entry.variant)
        if key == right:
            entries[key] = entry
        else:
            broken.append(f"{path} has {entry.module_path} under the key {key}; it must be {right}")
    return entries, broken


def save_file(path: Path, database: FormulaDatabase) -> None:
    """Write a database as a whole, sorted by key and indented, so that changes are easy to read."""
    ordered = FormulaDatabase(modules=dict(sorted(database.modules.items())))
    try:
        write_atomically(path, _LIST_OF_TEXTS.sub(_on_one_line, msgspec.json.format(encode(ordered), indent=1)) + b"\n")
    except OSError as error:
        msg = f"cannot write {path}: {error.strerror or error}; set {HOME_VARIABLE} to a folder of yours"
        raise InputError(msg) from error


def _on_one_line(texts: re.Match[bytes]) -> bytes:
    return b"[" + b" ".join(line.strip() for line in texts[0].splitlines()[1:-1]) + b"]"


def own_entries(home: Path | None = None) -> FormulaDatabase:
    """The user's own entries alone, the pending ones too."""
    path = own_database(home)
    return load_file(path) if path.exists() else FormulaDatabase()


def save_entry(entry: FormulaEntry, home: Path | None = None) -> tuple[Path, Path | None]:
    """Keep an entry in the user's cache; gives the file, and where a damaged one was put aside."""
    return save_entries([entry], home)


def save_entries(entries: Iterable[FormulaEntry], home: Path | None = None) -> tuple[Path, Path | None]:
    """Keep entries in one write: an entry is never there without those that it calls."""
    folder = home or home_folder()
    path = folder / DATABASE_FILE
    with _locked(folder):
        known, aside = _readable_entries(path)
        added = {key_of(entry.module_path, entry.variant): entry for entry in entries}
        save_file(path, FormulaDatabase(modules={**known, **added}))
    return path, aside


def add_to_file(path: Path, entries: Iterable[FormulaEntry]) -> None:
    """Add entries to a database file; those of the same names are replaced."""
    with exclusive(path.parent, wait_s=SHORT_WRITE_S, way_out="choose another --out"):
        known = load_file(path).modules if path.exists() else {}
        added = {key_of(entry.module_path, entry.variant): entry for entry in entries}
        save_file(path, FormulaDatabase(modules={**known, **added}))


def _readable_entries(path: Path) -> tuple[dict[str, FormulaEntry], Path | None]:
    """The readable entries of a user's database, and where a damaged file was moved to; None: it is intact."""
    if not path.exists():
        return {}, None
    try:
        entries, broken = _read_entries(path)
    except UnreadableFileError:
        return {}, _put_aside(path)
    return entries, _put_aside(path) if broken else None


def remove_entry(name: str, home: Path | None = None) -> FormulaEntry:
    """Take an entry out of the user's cache."""
    folder = home or home_folder()
    with _locked(folder):
        known = dict(own_entries(folder).modules)
        entry = Formulas(entries=known).find(name)
        del known[key_of(entry.module_path, entry.variant)]
        save_file(folder / DATABASE_FILE, FormulaDatabase(modules=known))
    return entry


def _put_aside(path: Path) -> Path:
    for number in range(1, 1000):
        aside = path.with_name(f"{path.stem}.damaged-{number}{path.suffix}")
        if not aside.exists():
            path.rename(aside)
            return aside
    msg = f"{path.parent} holds a thousand damaged databases; look at them and delete what you do not need"
    raise FormulaError(msg)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One writer at a time; the system gives the lock back when its process ends, however it ends."""
    try:
        with exclusive(folder, wait_s=SHORT_WRITE_S, way_out=f"set {HOME_VARIABLE} to a folder of yours"):
            yield
    except OSError as error:
        msg = f"cannot write to {folder}: {error.strerror or error}; set {HOME_VARIABLE} to a folder of yours"
        raise InputError(msg) from error


# --- Approving a pending entry ---


def approved(entry: FormulaEntry, person: str) -> FormulaEntry:
    """The entry as validated by a person; who wrote it stays in the notes."""
    before = entry.validation
    return replace(
        entry,
        validation=Validation(
            status=Status.VALIDATED,
            validator=person,
            date=datetime.now(UTC).date().isoformat(),
            notes=f"written by {before.validator} on {before.date}",
        ),
    )
