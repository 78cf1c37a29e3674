"""run_check(): find which modules and ops of a model run on a backend, and write the findings to a folder."""

import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from torchstone.backends.registry import describe
from torchstone.check import known_findings
from torchstone.check.dependencies import (
    Dependencies,
    ask_dependencies,
    ask_facts,
    change_since_interruption,
    dependencies_of,
    read_dependencies,
    write_dependencies,
)
from torchstone.check.drift import is_unexplained, measure_drift
from torchstone.check.findings import Conclusion
from torchstone.check.ladder import write_scripts
from torchstone.check.localize import RecordRows, Search
from torchstone.check.model_setup import refuse_sparse
from torchstone.check.plan import plan
from torchstone.check.record_values import (
    captured_trace,
    mark_recorded,
    read_unserializable,
    record_more,
    record_values,
    wanted_values,
)
from torchstone.check.repro import ModelSource, Repros, write_rerun
from torchstone.check.requests import Requests
from torchstone.check.runner import OnAnswer, Runner
from torchstone.check.settings import Folder, Settings, with_facts
from torchstone.check.summary import summary_text
from torchstone.errors import InputError, WorkerError
from torchstone.models.inputs import InputOptions
from torchstone.record.check import CheckedModules, CheckResult, Drift, Outcome, UnitResult
from torchstone.record.codec import save, write_atomically
from torchstone.record.files import read_json
from torchstone.record.task import Environment
from torchstone.record.trace import Trace
from torchstone.temporary import remove_unfinished
from torchstone.workers.local_pool import LocalPool

if TYPE_CHECKING:
    from torch import nn

    from torchstone.check.child.model import LoadedModel

_OWN_ERROR = re.compile(r"torchstone\.errors\.\w+: (?P<message>[^\n]*)")
_EARLIER = ("trace.json", "unique_modules.json", "check.json", "summary.md", "repros/[0-9][0-9][0-9]_*.py",
            "repros/[0-9][0-9][0-9]_*.safetensors", "repros/[0-9][0-9][0-9]_*/*.py",
            "tests/test_failures.py", "irs/mod_*/*.txt")  # fmt: skip
_FILLED = ("repros", "tests", "irs")  # the folders that a check writes files to, beside its own
_PRELOADED = (  # what every task would import: torch itself loads half of its compiler at the first dispatch mode
    "torch", "torch._dynamo", "torchstone.check.child.repro", "torchstone.check.child.recording",
)  # fmt: skip
_WORDS = {  # parts of a fingerprint as users know them
    "backend_options": "set of backend options",
    "python": "--python", "exports_ir": "--no-ir", "ir_of_passing": "--ir",
    "tolerances": "set of tolerances", "deadline_s": "--timeout",
    "profile": "--profile", "backward": "--backward",
    "inputs": "set of inputs", "options": "set of input options",
}  # fmt: skip
_FILES_OF_MODELS = (".py", ".pt2")
_EXPORTERS = ("torch.export", "torchstone.backends.export")  # only where IR is asked for

Prices = Callable[[Trace], Sequence[int | None]]  # FLOPs of one call of each op signature; None: unpriced


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherStages:
    """What a check needs of other stages; the workflow that composes them provides it."""

    capture_entry: str  # "package.module:function", called in the process that holds the model; see captured_trace
    prices: Prices | None = None  # None: findings are not weighted by FLOPs


@dataclass(frozen=True, slots=True, kw_only=True)
class Observer:
    """Receives the progress of a check: each step as it begins, each answer as it arrives."""

    step: Callable[[str], None] = lambda _: None
    note: Callable[[str], None] = lambda _: None  # what the user should know, in one sentence
    on_answer: OnAnswer | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A model: by its name, or the trace of one with the module itself."""

    model: "str | nn.Module"
    inputs: Any = None
    options: InputOptions = field(default_factory=InputOptions)
    trace: Trace | None = None
    command: str = ""
    captured: bool = False  # the folder has its trace, written by the command that this check is a part of


def run_check(
    subject: Subject, settings: Settings, folder: Folder, *, stages: OtherStages, resume: bool = False,
    observer: Observer | None = None,
) -> CheckResult:  # fmt: skip
    """Check a subject and write the findings to the folder."""
    observer = observer or Observer()
    _refuse_missing_files(subject)
    observer.step(f"looking for backend {settings.backend}")
    settings = settings if _describes_itself(subject, settings) else described(settings)
    _open_folder(folder, _fingerprint(subject, settings), resume=resume, has_trace=subject.captured)
    with _recorded_model(subject, settings, folder, stages.capture_entry, observer) as (pool, trace, known):
        settings = known
        found = plan(trace)
        requests = Requests(
            trace, folder, settings, read_unserializable(folder), runs_code=runs_code(subject, settings),
            dependencies=read_dependencies(folder),
        )  # fmt: skip
        reuse = Path(settings.reuse) if settings.reuse else None
        with Runner(pool, folder.journal, reuse=reuse, on_answer=observer.on_answer) as runner:
            search = Search(
                trace, found, requests, runner, settings, _row_recorder(subject, settings, folder, pool, trace)
            )
            observer.step("running modules")
            search.run()
            observer.step("writing repro scripts")
            conclusion = Conclusion(
                trace, found, search, requests, None if stages.prices is None else stages.prices(trace)
            )
            weighted = conclusion.weighted()
            repros = Repros(trace, search, runner, folder=folder, settings=settings, source=_source(subject))
            scripts = write_scripts(repros, [one.cause for one in weighted])
            findings = conclusion.findings(weighted, scripts)
            modules = conclusion.modules(findings)
            result = CheckResult(
                model=trace.provenance.model,
                backend=settings.backend,
                backend_version=settings.version,
                backend_options={name: json.dumps(value) for name, value in settings.options.items()},
                form="module" if runs_code(subject, settings) else "program",
                python=settings.python or "",
                tolerance={name: float(value) for name, value in settings.tolerances.for_names(()).items()
                           if isinstance(value, int | float)},
                profile=settings.profile,
                modules=modules,
                ops=conclusion.ops(),
                findings=findings,
                totals=conclusion.totals(weighted),
                fixed=search.top_passes,
                graph=search.graphs.kind,
                notes=trace.notes,
                tasks=runner.asked,
                elapsed_s=runner.elapsed_s,
                **runner.reuse(),
            )  # fmt: skip
            result = known_findings.with_kinds(result, [one.cause.result for one in weighted])
            root = next((search.results.get(unit) for unit in found.nodes[found.root].units), None)
            if settings.drift or (settings.max_depth is None and is_unexplained(root, result.findings)):
                result = _with_drift(result, root, trace, runner, settings, observer)
    write_result(folder, result, settings)
    return result


def _row_recorder(subject: Subject, settings: Settings, folder: Folder, pool: LocalPool, trace: Trace) -> RecordRows:
    """Records the values of further module calls, where the model is at hand."""
    known = {unit.row for unit in plan(trace).units.values()}

    def record(rows: Sequence[int]) -> Mapping[str, str] | None:
        missing = [row for row in rows if not folder.values_of(row).is_file()]
        if not missing:
            return {}
        known.update(missing)
        if subject.trace is not None:  # its weights are in one file: written again, for all rows
            return _keep_here(subject, wanted_values(trace, known, weights=True), folder)
        if settings.python is not None:
            return None
        return record_more(pool, folder, wanted_values(trace, missing, weights=False))

    return record


def _with_drift(
    result: CheckResult, root: UnitResult | None, trace: Trace, runner: Runner, settings: Settings, observer: Observer
) -> CheckResult:
    """The result with the drift of the model, or with a note why that is unknown."""
    if result.form != "module":
        found: Drift | str = "drift was not measured: it needs the model's own code, and only recorded ops run here"
    elif root is None or root.outcome not in (Outcome.PASSED, Outcome.WRONG):
        why = "the whole model was not run" if root is None else f"the model does not run ({root.outcome.value})"
        found = f"drift was not measured: {why}"
    else:
        observer.step("measuring the error over depth")
        found = measure_drift(trace, runner, settings)
    if isinstance(found, str):
        observer.note(found)
        return msgspec.structs.replace(result, notes=(*result.notes, found))
    return msgspec.structs.replace(result, drift=found)


def write_result(folder: Folder, result: CheckResult, settings: Settings) -> None:
    """Write all documents of a finished check."""
    save(folder.unique_modules, CheckedModules(model=result.model, backend=result.backend, modules=result.modules))
    save(folder.result, result)
    write_atomically(folder.summary, summary_text(result).encode())
    if result.findings:
        write_rerun(folder, deadline_s=settings.limits.deadline_s)


@contextmanager
def opened_pool(settings: Settings, subject: Subject | None) -> Iterator[LocalPool]:
    """A pool that can run the backend, with the model of the subject where one is given."""
    with _pool(environment_of(described(settings), subject), settings, jobs=1) as pool:
        yield pool


def described(settings: Settings) -> Settings:
    """The settings with what the backend says of itself."""
    return with_facts(settings, describe(settings.backend, options=settings.options, python=settings.python))


def first_environment(subject: Subject, settings: Settings) -> Environment:
    """What a check of a named model in this environment starts first: it may be started before the check."""
    return environment_of(settings if _describes_itself(subject, settings) else described(settings), subject)


@contextmanager
def _recorded_model(
    subject: Subject, settings: Settings, folder: Folder, capture_entry: str, observer: Observer
) -> Iterator[tuple[LocalPool, Trace, Settings]]:
    """The trace, the values on disk, a pool that can run the backend, and the settings with its facts."""
    if subject.trace is not None:
        _record_here(subject, subject.trace, settings, folder)
        with _pool(environment_of(settings, None), settings, jobs=settings.jobs) as pool:
            yield pool, subject.trace, settings
        return
    together = settings.python is None
    observer.step(f"loading {subject.model}")
    with _described_pool(subject, settings, alone=not together) as (pool, described_by):
        observer.step("running the model on real tensors")
        _drop_stale(pool, folder, ask_dependencies(pool, described_by, _files(subject)), observer)
        trace = captured_trace(pool, folder, capture_entry, subject.command)
        record_values(pool, folder, trace, plan(trace), weights=not together)
        if together:
            yield pool, trace, described_by
            return
    observer.step(f"starting {settings.python}")
    with _pool(environment_of(settings, None), settings, jobs=settings.jobs) as pool:
        yield pool, trace, settings


def _describes_itself(subject: Subject, settings: Settings) -> bool:
    """Whether the process with the model asks the backend what it is: to open a user's file is to import torch."""
    return subject.trace is None and settings.python is None and ":" in settings.backend


@contextmanager
def _described_pool(subject: Subject, settings: Settings, *, alone: bool) -> Iterator[tuple[LocalPool, Settings]]:
    """A pool with the model, and the settings with what the backend says of itself."""
    if not settings.digest:  # nobody has asked it yet
        with _pool(environment_of(settings, subject), settings, jobs=settings.jobs) as pool:
            settings = with_facts(settings, ask_facts(pool))
            if settings.forks:
                yield pool, settings
                return
    with _pool(environment_of(settings, subject, alone=alone), settings, jobs=settings.jobs) as pool:
        yield pool, settings


def _drop_stale(pool: LocalPool, folder: Folder, now: Dependencies, observer: Observer) -> None:
    """Drop the answers of an interrupted run that another backend, model, input or environment has given."""
    changed = change_since_interruption(pool, folder, now)
    if changed:
        observer.note(f"{changed} changed since the interrupted run in {folder.path}: everything runs again")
        about = folder.about.read_bytes()
        _remove_earlier(folder)
        write_atomically(folder.about, about)
    write_dependencies(folder, now)


def _files(subject: Subject) -> list[str]:
    """The files that the user named, of the model and of its inputs."""
    names = [name.partition("::")[0] for name in (subject.model, subject.inputs) if isinstance(name, str)]
    return [name for name in names if Path(name).suffix in _FILES_OF_MODELS and Path(name).is_file()]


def _record_here(subject: Subject, trace: Trace, settings: Settings, folder: Folder) -> None:
    """Keep the values of a module that lives in this process."""
    from torchstone.check.child.fingerprint import fingerprint

    save(folder.trace, trace)
    rows = {unit.row for unit in plan(trace).units.values()}
    write_dependencies(folder, dependencies_of(settings, fingerprint(_loaded(subject), [])))
    mark_recorded(folder, _keep_here(subject, wanted_values(trace, rows, weights=True), folder))


def _keep_here(subject: Subject, wanted: dict[str, object], folder: Folder) -> dict[str, str]:
    from torchstone.check.child.recording import keep

    return keep(_loaded(subject), wanted, folder.values)["unwritten"]


def _loaded(subject: Subject) -> "LoadedModel":
    from torchstone.check.child.model import LoadedModel
    from torchstone.models.inputs import inputs_from_value

    assert not isinstance(subject.model, str)  # noqa: S101 - a trace comes with its module
    inputs = inputs_from_value(subject.inputs, origin="the given inputs")
    refuse_sparse(inputs.args, inputs.kwargs)
    return LoadedModel(subject.model, inputs.args, inputs.kwargs, {})


def environment_of(settings: Settings, subject: Subject | None, *, alone: bool = False) -> Environment:
    """Where tasks run; with a subject its model is loaded there, alone without the backend."""
    variables = {"OMP_NUM_THREADS": "1"}
    if subject is None:
        return Environment(
            python=settings.python or sys.executable,
            variables=variables,
            preload=(*_PRELOADED, *(_EXPORTERS if settings.exports_ir else ())),
            setup="torchstone.check.child.model:set_up_backend",
            setup_payload=settings.backend_payload,
            forks=settings.forks,
        )
    payload = {"model": subject.model, "inputs": subject.inputs, "options": asdict(subject.options)}
    return Environment(
        python=sys.executable,
        variables=variables,
        preload=(*_PRELOADED, *(_EXPORTERS if settings.exports_ir else ())),
        setup="torchstone.check.model_setup:set_up",
        setup_payload=payload
        if alone
        else {**payload, "backend": settings.backend_payload, "describes": not settings.digest},
        forks=alone or settings.forks,
    )


@contextmanager
def _pool(environment: Environment, settings: Settings, *, jobs: int) -> Iterator[LocalPool]:
    """A pool; what the user's model or backend raised while it was set up is raised as its one sentence."""
    try:
        with LocalPool(environment, jobs=jobs, limits=settings.limits) as pool:
            pool.wait_until_ready()
            yield pool
    except WorkerError as error:
        own = _OWN_ERROR.search(str(error))
        if own is None:
            raise
        raise InputError(own["message"]) from error


def runs_code(subject: Subject, settings: Settings) -> bool:
    """Whether the model's own code runs on the backend; recorded ops do otherwise."""
    return subject.trace is None and settings.python is None


def _refuse_missing_files(subject: Subject) -> None:
    """At once: the processes that would say so must load torch first."""
    for name in (subject.model, subject.inputs):
        file = Path(name.partition("::")[0]) if isinstance(name, str) else Path()
        if file.suffix in _FILES_OF_MODELS and not file.is_file():
            msg = f"the file {file} does not exist; give it as path/to/file.py::function, or a .pt2 file"
            raise InputError(msg)


def _source(subject: Subject) -> ModelSource:
    if not isinstance(subject.model, str):
        return ModelSource()
    return ModelSource(model=subject.model, inputs=subject.inputs, options=asdict(subject.options))


def _fingerprint(subject: Subject, settings: Settings) -> dict[str, object]:
    """The settings that an interrupted run must share with the one that resumes it."""
    return {
        "model": subject.model if isinstance(subject.model, str) else "",
        "inputs": subject.inputs if isinstance(subject.inputs, str) else None,
        "options": asdict(subject.options),
        "backend": settings.backend,
        "backend_options": settings.options,
        "python": settings.python,
        "exports_ir": settings.exports_ir,
        "ir_of_passing": settings.ir_of_passing,
        "tolerances": msgspec.to_builtins(settings.tolerances),
        "profile": settings.profile,
        "backward": settings.backward,
        "deadline_s": settings.limits.deadline_s,
    }


def _open_folder(folder: Folder, fingerprint: dict[str, object], *, resume: bool, has_trace: bool = False) -> None:
    """Go on where an interrupted run of the same check ended, or begin anew.

    A trace that another command left in the folder is not of this check: model or inputs may be others.
    """
    for place in (folder.work, *(folder.path / name for name in _FILLED)):
        remove_unfinished(place, below=True)
    try:
        if resume and folder.about.is_file():
            before = read_json(folder.about)
            now = json.loads(json.dumps(fingerprint))  # as it reads back: tuples are lists
            known = before if isinstance(before, dict) else {}
            changed = [name for name, value in now.items() if known.get(name) != value]
            if not changed:
                return
            msg = f"{folder.path} was created with a different {_WORDS.get(changed[0], changed[0])}; drop --resume"
            raise InputError(msg)
        if folder.about.is_file():
            _remove_earlier(folder, _EARLIER[1:] if has_trace else _EARLIER)
        elif not has_trace:
            folder.trace.unlink(missing_ok=True)
        write_atomically(folder.about, json.dumps(fingerprint, sort_keys=True).encode())
    except OSError as error:
        msg = f"cannot write to {folder.path}: {error.strerror or error}; choose another --dir"
        raise InputError(msg) from error


def _remove_earlier(folder: Folder, patterns: Sequence[str] = _EARLIER) -> None:
    """Remove what an earlier check wrote, and nothing else: the folder may be anybody's."""
    # In this order, so that a run which resumes after a part of it finds nothing that claims to be complete: the marker
    # of the recorded values first, and last the file by which the folder is known as one of a check.
    folder.recorded_marker.unlink(missing_ok=True)
    for pattern in patterns:
        for path in folder.path.glob(pattern):
            path.unlink()
    for path in folder.work.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path != folder.about:
            path.unlink()
    shutil.rmtree(folder.work)
