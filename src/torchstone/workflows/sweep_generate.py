"""Configurations of a database, or a sweep module -> vectors in a sweep folder: the tests that `sweep run` runs."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from torchstone.errors import InputError, require_package, unknown_name
from torchstone.record.folder_lock import SHORT_WRITE_S, exclusive
from torchstone.record.sweep_summary import GenerateSummary, Share
from torchstone.workflows.database import database_address, database_variable, existing_database, open_store
from torchstone.workflows.executors import ExecutorRequest, opened_executor
from torchstone.workflows.progress import SILENT, Progress
from torchstone.workflows.result_folder import writing_to

if TYPE_CHECKING:
    from torchstone.record.config import OpSummary, SeenConfiguration
    from torchstone.record.vector import Vector
    from torchstone.store.database import Store
    from torchstone.store.rows import Query
    from torchstone.sweep.generate import Choice

DEFAULT_FOLDER = Path("sweep")
CHAINS = "chains"  # the suite of ops that feed each other
OPINFO = "opinfo"  # the suite that comes from torch's own test database
DEFAULT_MODULES = Path("sweeps")
ROLES = ("compute", "view", "random", "factory")
DEFAULT_ROLES = ("compute", "view", "random")
_ONE_JOB = ExecutorRequest(jobs=1)
_DESCRIBE_S = 600.0


class _DescribedVector(TypedDict):
    """One vector of a sweep module, as the child process lists it."""

    id: str
    suite: str
    reason: str  # why it cannot run; "" for a valid one
    parameters: dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateRequest:
    """Where vectors come from: exactly one of `op`, `model`, `all_ops` and `module_name`."""

    op: str | None = None  # an op name, such as aten.mm.default
    model: str | None = None  # a model, test or script that the database has seen
    all_ops: bool = False
    module_name: str | None = None  # a sweep module: a file, or its dotted name below modules_folder
    modules_folder: Path = DEFAULT_MODULES
    python: str = ""  # the interpreter that imports the sweep module; "": this one
    suite: str | None = None  # only this suite of a sweep module; the name of the suite for traced vectors
    budget: str | None = None  # expected duration of all vectors together: 90s, 10m, 1h; None: no limit
    neighbours: bool = False  # also variations: other sizes, element types and strides
    roles: tuple[str, ...] = DEFAULT_ROLES
    folder: Path = DEFAULT_FOLDER
    database: str | None = None  # None: $TORCHSTONE_DB, or torchstone.db


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateResult:
    """The vectors that were generated, and the files that they are in."""

    vectors: "tuple[Vector, ...]"
    summary: GenerateSummary
    changed_files: tuple[Path, ...]  # files of vectors that are new or different


def generate_vectors(request: GenerateRequest, progress: Progress = SILENT) -> GenerateResult:
    """Generate vectors and write them to the folder, where they replace an earlier version of the same suites.

    A sweep module is executed in a process of its own. Raises InputError for an unknown op, model, suite or module, for
    a module that fails, and for a folder that cannot be written.
    """
    _check(request)
    from torchstone.sweep.generate import parse_duration

    budget_s = parse_duration(request.budget) if request.budget else None
    with progress.step("generating vectors"):
        vectors = _module_vectors(request, progress) if request.module_name else _traced_vectors(request)
        choice = _chosen(vectors, budget_s, request.folder)
    return GenerateResult(
        vectors=choice.vectors,
        summary=_summary(choice, left_out=len(vectors) - len(choice.vectors), budget=request.budget),
        changed_files=tuple(write_by_module(request.folder, choice.vectors)),
    )


def _check(request: GenerateRequest) -> None:
    sources = (request.op, request.model, request.all_ops, request.module_name)
    if sum(map(bool, sources)) != 1:
        msg = "give exactly one of --op, --model, --all and --module-name"
        raise InputError(msg)
    if not request.roles or set(request.roles) - set(ROLES):
        msg = f"--roles {','.join(request.roles)!r} is not a list of roles; give some of {', '.join(ROLES)}"
        raise InputError(msg)


def _traced_vectors(request: GenerateRequest) -> "list[Vector]":
    from torchstone.record.task import Limits
    from torchstone.sweep.generate import generate
    from torchstone.sweep.run import checking_environment
    from torchstone.sweep.vectors import TRACED

    seen = _opinfo_samples(request) if request.suite == OPINFO else _seen(request)
    if not seen:
        return []
    with opened_executor(checking_environment(), Limits(), _ONE_JOB) as executor:
        return generate(
            seen,
            executor,
            suite=request.suite or TRACED,
            neighbours=request.neighbours,
            roles=frozenset(request.roles),
        )


def _opinfo_samples(request: GenerateRequest) -> "list[SeenConfiguration]":
    """Configurations from torch's own test database: of one op, of the ops that a traced model calls, or of all.

    Each has the calls and models that the database knows of its op, so that results rank by what models use.
    """
    from torchstone.capture.trace_program import TraceRequest, trace_in_child
    from torchstone.record.config import SourceEnding, TargetKind

    require_package("expecttest", needed_for="--suite opinfo")
    used = _used_ops(request)
    names = (request.op,) if request.op else tuple(sorted(used)) if request.model else ()
    script = Path(__file__).parents[1] / "capture" / "opinfo_samples.py"
    asked = TraceRequest(kind=TargetKind.SCRIPT, target=str(script), arguments=names, run="opinfo", looks=1)
    log = trace_in_child(asked)
    if any(source.ending is SourceEnding.FAILED for source in log.sources):
        what = f"op {request.op}" if request.op else "these ops"
        why = log.sources[0].detail
        msg = f"torch's test database has no sample of {what} that runs here ({why}); see torch.testing._internal"
        raise InputError(msg)
    packets = {name.split(".")[1].rstrip("_") for name in names if name.startswith("aten.")}
    return [
        _with_use(one, used)
        for source in log.sources
        for one in source.configurations
        if not packets or one.configuration.op.split(".")[1].rstrip("_") in packets
    ]


def _used_ops(request: GenerateRequest) -> "dict[str, OpSummary]":
    """The ops that traced models call; none where there is no database, which only --model needs."""
    from torchstone.store.rows import Query

    address = existing_database(request.database)
    if address is None and not request.model:
        return {}
    with open_store(database_address(request.database)) as store:
        if request.model and request.model not in store.models():
            raise unknown_name("model", request.model, store.models(), database_address(request.database))
        return {one.op: one for one in store.operations(Query(model=request.model or None))}


def _with_use(seen: "SeenConfiguration", used: "dict[str, OpSummary]") -> "SeenConfiguration":
    from msgspec.structs import replace

    from torchstone.record.config import Occurrence

    op = used.get(seen.configuration.op)
    models = op.models if op is not None else ()
    calls = op.calls if op is not None else 0
    places = [Occurrence(source=name, run=OPINFO, model=name, count=0) for name in models]
    if places:
        places[0] = replace(places[0], count=calls)
    return replace(seen, occurrences=tuple(places))


def _seen(request: GenerateRequest) -> "list[SeenConfiguration]":
    from msgspec.structs import replace

    from torchstone.store.rows import Query

    database = database_address(request.database)
    chains = request.suite == CHAINS
    with open_store(database) as store:
        if request.op and request.op not in store.op_names():
            raise unknown_name("op", request.op, store.op_names(), database)
        if request.model:
            query = _query_of_model(store, request.model, database)
        else:
            query = Query(op=None if chains else request.op)
        found = list(store.configurations(replace(query, chains=chains)))
    return _chains_with(found, request, database) if chains else found


def _chains_with(
    found: "list[SeenConfiguration]", request: GenerateRequest, database: str
) -> "list[SeenConfiguration]":
    """The chains that contain the op of a request, or all."""
    from torchstone.record.chain import steps_of

    if not found:
        what = request.model or "MODEL"
        msg = f"{database} has no chains of ops; record them with `torchstone trace {what} --chains`"
        raise InputError(msg)
    return [one for one in found if not request.op or request.op in (step.op for step in steps_of(one.configuration))]


def _query_of_model(store: "Store", model: str, database: str) -> "Query":
    """The configurations of a model, or else those of a test or script of that name."""
    from torchstone.store.rows import Query

    if model in store.models():
        return Query(model=model)
    if model in store.sources():
        return Query(source=model)
    raise unknown_name("model", model, [*store.models(), *store.sources()], database)


def find_module(name: str, folder: Path) -> tuple[str, Path]:
    """The dotted name and the file of a sweep module, given as a file or as a.b for FOLDER/a/b.py.

    Raises InputError where there is no such module.
    """
    path = Path(name)
    if path.suffix == ".py":
        if not path.is_file():
            msg = f"there is no sweep module {path}; check the path"
            raise InputError(msg)
        inside = path.resolve().is_relative_to(folder.resolve())
        parts = path.resolve().relative_to(folder.resolve()).with_suffix("").parts if inside else (path.stem,)
        return ".".join(parts), path.resolve()
    below = folder.joinpath(*name.split(".")).with_suffix(".py")
    if below.is_file():
        return name, below.resolve()
    if not folder.is_dir():
        msg = f"there is no folder {folder} for the module {name!r}; name one with --modules, or give a file.py"
        raise InputError(msg)
    known = sorted(".".join(one.relative_to(folder).with_suffix("").parts) for one in folder.rglob("*.py"))
    raise unknown_name("module", name, known, str(folder))


def _module_vectors(request: GenerateRequest, progress: Progress) -> "list[Vector]":
    """All vectors of a sweep module, or those of one suite: the module is imported in a process of its own."""
    from torchstone.record.task import Ending, Limits, Task
    from torchstone.sweep.run import DESCRIBE_MODULE, module_environment

    assert request.module_name is not None  # noqa: S101 - _check
    name, path = find_module(request.module_name, request.modules_folder)
    progress.note(f"executing {path} ...")
    variables = dict(database_variable(request.database))
    if request.database:
        variables["TTNN_MASTER_JSON_PATH"] = ""  # the database that the user names comes first
    environment = module_environment(path, python=request.python, variables=variables)
    with opened_executor(environment, Limits(deadline_s=_DESCRIBE_S), _ONE_JOB) as executor:
        executor.submit(Task(id="describe", entry=DESCRIBE_MODULE))
        (result,) = executor.results()
    if result.ending is not Ending.ANSWERED or result.answer is None:
        msg = f"{path} could not list its vectors: {result.evidence.error or result.ending.value}"
        raise InputError(msg)
    for note in result.answer["notes"]:
        progress.note(f"note: {note}")
    described: list[_DescribedVector] = result.answer["vectors"]
    suites = {one["suite"] for one in described}
    if request.suite and request.suite not in suites:
        raise unknown_name("suite", request.suite, sorted(suites), str(path))
    timeout_s: float | None = result.answer["timeout_s"]
    wanted = [one for one in described if not request.suite or one["suite"] == request.suite]
    return [_vector_of(name, path, one, timeout_s) for one in wanted]


def _vector_of(name: str, path: Path, described: _DescribedVector, timeout_s: float | None) -> "Vector":
    from torchstone.record.vector import Validity, Vector

    parameters = described["parameters"]
    source = parameters.get("traced_source")
    models = [str(one) for one in source] if isinstance(source, list) else [str(source)] if source else []
    return Vector(
        id=described["id"],
        module=name,
        suite=described["suite"],
        op=name.rpartition(".")[2],
        path=str(path),
        validity=Validity.INVALID if described["reason"] else Validity.VALID,
        reason=described["reason"],
        parameters=parameters,
        cluster=f"{name}({', '.join(sorted(parameters))})",
        models=tuple(models),
        timeout_s=timeout_s,
    )


def _chosen(vectors: "list[Vector]", budget_s: float | None, folder: Path) -> "Choice":
    from torchstone.sweep.folder import runs_in
    from torchstone.sweep.generate import choose

    known_s: dict[str, float] = {}
    if budget_s is not None:
        for run in runs_in(folder):
            known_s |= {result.id: result.elapsed_s for result in run.results().values()}
    return choose(vectors, budget_s, known_s)


def write_by_module(folder: Path, vectors: "tuple[Vector, ...]") -> list[Path]:
    """Write vectors to a folder, one file for each module; the files that changed."""
    from torchstone.record.vector import Vector, VectorFile
    from torchstone.sweep.folder import write_vectors

    by_module: dict[str, list[Vector]] = {}
    for vector in vectors:
        by_module.setdefault(vector.module, []).append(vector)
    files = [VectorFile(module=name, vectors=tuple(group)) for name, group in by_module.items()]
    with exclusive(folder, wait_s=SHORT_WRITE_S), writing_to(folder):
        return write_vectors(folder, files)


def _summary(choice: "Choice", *, left_out: int, budget: str | None) -> GenerateSummary:
    reasons = Counter(vector.reason for vector in choice.vectors if vector.reason)
    return GenerateSummary(
        modules=len({vector.module for vector in choice.vectors}),
        vectors=len(choice.vectors),
        valid=sum(1 for vector in choice.vectors if not vector.reason),
        suites=dict(Counter(vector.suite for vector in choice.vectors)),
        left_out=left_out,
        expected_s=choice.expected_s,
        clusters=Share(covered=choice.clusters[0], all=choice.clusters[1]),
        calls=Share(covered=choice.calls[0], all=choice.calls[1]),
        invalid=dict(reasons.most_common()),
        budget=budget,
    )
