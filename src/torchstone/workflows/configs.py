"""The database of configurations: files into it and out of it, its contents, and how much of a model is tested."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from torchstone.errors import InputError
from torchstone.record.config_summary import Damaged, DamageKind, HashCounts, ImportSummary, NotRecorded, UnreadPart
from torchstone.workflows.database import ConfigurationFilter, database_address, open_store, query_of
from torchstone.workflows.progress import SILENT, Progress
from torchstone.workflows.result_folder import writing_to

if TYPE_CHECKING:
    from torchstone.configs.exchange import Exported, Imported
    from torchstone.configs.export import HashCheck
    from torchstone.record.config import ModelCoverage, OpSummary, SeenConfiguration, StoreInfo, TraceRun
    from torchstone.store.database import Fault, Store
    from torchstone.store.rows import Added, Query

_NEAREST = 3


# --- Importing files ---


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRequest:
    """Files or folders of any known format, and the database that they go to."""

    paths: tuple[Path, ...]
    model: str = ""  # the model of a text trace, which does not name it
    keep_failing: bool = False  # also the calls of tests that did not pass
    database: str | None = None


def import_files(request: ImportRequest, progress: Progress = SILENT) -> Iterator[ImportSummary]:
    """Add each file to the database and yield its summary; the database is created for the first file that is read.

    Work happens while the iterator is consumed. Parts that cannot be read are in the summary. Raises
    UnreadableFileError for a file of no known format, InputError for a database that cannot be written.
    """
    from torchstone.configs.import_file import import_path, is_exchange

    with ExitStack() as opened:
        store = None
        for path in request.paths:
            with progress.step(f"importing {path}"):
                imported = import_path(path, model=request.model, keep_failing=request.keep_failing)
                store = store or opened.enter_context(open_store(request.database, create=True))
                added = store.add(imported.seen, runs=imported.runs, replaces=not is_exchange(path))
            yield _import_summary(path, imported, added)


def _import_summary(path: Path, imported: "Imported", added: "Added") -> ImportSummary:
    from torchstone.backends.ttnn_trace_text import NOT_RECORDED

    everything = [broken for one in imported.seen for broken in one.damage]
    damage = [broken for broken in everything if broken.kind not in NOT_RECORDED]
    kinds = Counter((one.kind, one.repaired) for one in damage)
    absent = Counter(broken.kind for broken in everything if broken.kind in NOT_RECORDED)
    names = [name for one in imported.seen for name in one.foreign if name.hash]
    return ImportSummary(
        path=str(path),
        format=", ".join(sorted({run.format.value for run in imported.runs})),
        configurations=len(imported.seen),
        operations=len({one.configuration.op for one in imported.seen}),
        calls=sum(one.calls for one in imported.seen),
        new=added.new,
        known=added.known,
        damaged=Damaged(
            arguments=len(damage),
            repaired=sum(broken.repaired for broken in damage),
            kinds=tuple(
                DamageKind(kind=kind, repaired=repaired, arguments=count)
                for (kind, repaired), count in kinds.most_common()
            ),
        ),
        not_recorded=tuple(NotRecorded(kind=kind, arguments=count) for kind, count in absent.most_common()),
        hashes=HashCounts(
            given=len(names),
            verified=sum(bool(name.rule) for name in names),
            rules=dict(Counter(name.rule for name in names if name.rule).most_common()),
        ),
        unread=tuple(UnreadPart(where=part.where, reason=part.reason) for part in imported.unread),
    )


# --- Exporting to a file ---


class ExportFormat(StrEnum):
    """The formats of an export."""

    JSONL = "jsonl"  # torchstone's own lines
    TTNN = "ttnn"  # ttnn master JSON
    ATEN = "aten"  # text of aten ops
    PYTEST = "pytest"  # a test file that needs only torch


_FORMAT_OF_SUFFIX = {
    ".jsonl": ExportFormat.JSONL,
    ".json": ExportFormat.TTNN,
    ".txt": ExportFormat.ATEN,
    ".py": ExportFormat.PYTEST,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """The configurations to export, the file and its format."""

    output: Path
    format: ExportFormat | None = None  # None: from the suffix of the file
    wanted: ConfigurationFilter = field(default_factory=ConfigurationFilter)
    database: str | None = None


def export_configurations(request: ExportRequest) -> "Exported":
    """Write the configurations that match; an existing file is replaced.

    Raises InputError where nothing matches, for an unknown format, and for a file that cannot be written.
    """
    from msgspec.structs import replace

    from torchstone.record.codec import write_atomically

    chosen = request.format or _format_of(request.output)
    with open_store(request.database) as store:
        query = query_of(store, request.wanted)
        if chosen is ExportFormat.JSONL and query.op is None:  # the only format that has chains
            query = replace(query, chains=None)
        runs = [run for run in store.runs() if query.sources is None or run.source in query.sources]
        exported = _exported(chosen, store.configurations(query), runs)
    if not exported.configurations:
        msg = "no configuration matches, so nothing was written; `torchstone ops` lists the configurations"
        raise InputError(msg)
    with writing_to(request.output, "output file"):
        write_atomically(request.output, exported.text.encode())
    return exported


def _format_of(output: Path) -> ExportFormat:
    if output.suffix not in _FORMAT_OF_SUFFIX:
        msg = f"the suffix of {output.name} does not name a format; give --format"
        raise InputError(msg)
    return _FORMAT_OF_SUFFIX[output.suffix]


def _exported(chosen: ExportFormat, seen: "Iterable[SeenConfiguration]", runs: "list[TraceRun]") -> "Exported":
    from torchstone.configs.aten_text import export_aten
    from torchstone.configs.exchange import export_lines
    from torchstone.configs.export import write_master, write_pytest

    match chosen:
        case ExportFormat.JSONL:
            return export_lines(runs, seen)
        case ExportFormat.TTNN:
            return write_master(seen)
        case ExportFormat.ATEN:
            return export_aten(runs, seen)
        case ExportFormat.PYTEST:
            return write_pytest(seen)


# --- The database as a whole ---


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseContents:
    """The contents of a database, counted."""

    name: str  # the file, or the URL without its password
    info: "StoreInfo"
    runs: "tuple[TraceRun, ...]"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedDatabase:
    """One merged database, and what it added."""

    name: str
    added: "Added"


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseCheck:
    """The result of checking a database for consistency."""

    configurations: int
    faults: "tuple[Fault, ...]"
    hashes: "tuple[HashCheck, ...]"  # of other tools; not computed where there are faults

    @property
    def unverified(self) -> "tuple[HashCheck, ...]":
        """The hashes that no known rule reproduces."""
        return tuple(check for check in self.hashes if not check.rule)

    @property
    def problems(self) -> tuple[str, ...]:
        """A line for each fault and each hash that was not reproduced."""
        faults = [f"{fault.where}: {fault.reason}" for fault in self.faults]
        hashes = [f"{check.key}: no known rule reproduces the hash {check.hash}" for check in self.unverified]
        return (*faults, *hashes)


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumedDatabase:
    """The size of a database file before and after; None for a server."""

    name: str
    before_bytes: int | None
    after_bytes: int | None


def read_contents(database: str | None = None) -> DatabaseContents:
    """Count the contents of a database; raises UnreadableFileError where there is none."""
    with open_store(database) as store:
        return DatabaseContents(name=store.name, info=store.info(), runs=store.runs())


def merge_databases(
    others: Sequence[str], database: str | None = None, progress: Progress = SILENT
) -> Iterator[MergedDatabase]:
    """Add the contents of other databases and yield what each added; they stay as they are.

    Work happens while the iterator is consumed. Raises InputError for a database that cannot be opened, before anything
    is changed.
    """
    from torchstone.store.database import Store
    from torchstone.store.rows import Query

    for other in others:
        Store.open(other, create=False).close()
    with open_store(database, create=True) as store:
        for other in others:
            with Store.open(other, create=False) as source:
                with progress.step(f"merging {source.name}"):
                    added = store.add(source.configurations(Query(chains=None)), runs=source.runs())
                yield MergedDatabase(name=source.name, added=added)


def verify_database(database: str | None = None, progress: Progress = SILENT) -> DatabaseCheck:
    """Compute every key, column and foreign hash again and compare; nothing is changed.

    Faults are in the result; raises UnreadableFileError only where there is no database.
    """
    from torchstone.configs.export import check_hashes

    with open_store(database) as store, progress.step(f"verifying {store.name}"):
        faults = store.faults()
        hashes = tuple(check_hashes(store.configurations())) if not faults else ()
        return DatabaseCheck(configurations=store.info().configurations, faults=faults, hashes=hashes)


def vacuum_database(database: str | None = None, progress: Progress = SILENT) -> VacuumedDatabase:
    """Release unused space and renew the statistics for query planning; needs exclusive access to a SQLite file."""
    from torchstone.store.engine import file_of

    with open_store(database) as store:
        path = file_of(store.engine.url)
        before_bytes = None if path is None else path.stat().st_size
        with progress.step(f"vacuuming {store.name}"):
            store.vacuum()
        after_bytes = None if path is None else path.stat().st_size
        return VacuumedDatabase(name=store.name, before_bytes=before_bytes, after_bytes=after_bytes)


# --- Ops and their configurations ---


def list_ops(wanted: ConfigurationFilter, database: str | None = None) -> "tuple[OpSummary, ...]":
    """The ops that have matching configurations; raises InputError for an unknown model or source."""
    with open_store(database) as store:
        return store.operations(query_of(store, wanted))


def show_op(name: str, wanted: ConfigurationFilter, database: str | None = None) -> "list[SeenConfiguration]":
    """The matching configurations of an op, with the matching occurrences; a part of the op name is enough.

    Raises InputError where the database has no such op, model or source.
    """
    from msgspec.structs import replace

    with open_store(database) as store:
        query = query_of(store, wanted)
        ops = _ops_named(store, name)
        return [_within(query, one) for op in ops for one in store.configurations(replace(query, op=op))]


def _within(query: "Query", seen: "SeenConfiguration") -> "SeenConfiguration":
    """A configuration with only those occurrences that match."""
    from msgspec.structs import replace

    places = tuple(
        place
        for place in seen.occurrences
        if (query.models is None or place.model in query.models)
        and (query.sources is None or place.source in query.sources)
    )
    return replace(seen, occurrences=places)


def _ops_named(store: "Store", name: str) -> list[str]:
    """The op of this name, or all ops that contain it as a part."""
    known = store.op_names()
    if name in known:
        return [name]
    wanted = name.replace("::", ".")
    found = [op for op in known if wanted == op or f".{wanted}." in f".{op}."]
    if found:
        return found
    parts = {part: op for op in known for part in (*op.split("."), op)}
    near = [op for op in known if wanted.lower() in op.lower()][:_NEAREST] or [
        parts[part] for part in get_close_matches(wanted, parts, n=_NEAREST)
    ]
    hint = f"; did you mean {' or '.join(near)}?" if near else "; `torchstone ops` lists all"
    msg = f"the database has no op {name!r}{hint}"
    raise InputError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageRequest:
    """A model of the database, by a part of its name, on a backend; all models without a name."""

    backend: str
    model: str | None = None
    database: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageResult:
    """The calls of a model that are covered by vectors that pass."""

    coverage: "ModelCoverage"
    has_results: bool  # False: no sweep ran on the backend


def measure_coverage(request: CoverageRequest) -> CoverageResult:
    """Count the calls of a model whose configuration passed in the newest sweep on a backend.

    The answer is kept until the file of the database changes: opening it takes three times as long as all the rest.
    Raises InputError for a model that the database does not have.
    """
    from torchstone.record.config import KeptCoverage
    from torchstone.workflows.capture_cache import keep_answer, kept_answer, state_of_file, state_of_sources

    address = database_address(request.database)
    path = Path(address).absolute()
    question = repr(("coverage", str(path), request.backend, request.model, state_of_sources("configs", "record")))
    state = None if "://" in address else state_of_file(path)
    kept = None if state is None else kept_answer(question, state, KeptCoverage)
    if kept is None:
        result = _measured_coverage(request)
        if state is not None:
            keep_answer(question, state, KeptCoverage(coverage=result.coverage, has_results=result.has_results))
        return result
    return CoverageResult(coverage=kept.coverage, has_results=kept.has_results)


def _measured_coverage(request: CoverageRequest) -> CoverageResult:
    from torchstone.configs.families import coverage_of
    from torchstone.store.sweeps import newest_statuses

    with open_store(request.database) as store:
        query = query_of(store, ConfigurationFilter(model=request.model))
        statuses = newest_statuses(store, request.backend)
        models = tuple(store.models()) if query.models is None else query.models
        coverage = coverage_of(store.configurations(query), statuses, models=models, backend=request.backend)
    return CoverageResult(coverage=coverage, has_results=bool(statuses))
