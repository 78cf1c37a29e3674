"""Check a model on a backend: capture it, run its modules and ops in separate processes, weigh failures by FLOPs."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import msgspec

from torchstone.check.check_model import Observer, OtherStages, Subject, run_check
from torchstone.check.settings import Folder, Settings
from torchstone.errors import InputError
from torchstone.record.check import CheckComparison, CheckResult, UnitResult
from torchstone.record.folder_lock import exclusive
from torchstone.record.trace import Trace
from torchstone.temporary import temporary_folder
from torchstone.workflows.model_source import ModelRequest, name_code, require_values
from torchstone.workflows.progress import SILENT, Progress
from torchstone.workflows.result_folder import write_result, writing_to

if TYPE_CHECKING:
    from torch import nn

ANALYSIS_PAGE = "analysis_report.html"
COMPARISON_FILE = "check_comparison.json"
_FEWEST_CHECKS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRequest:
    """A model, the backend with the settings of the check, and the folder for the results."""

    model: ModelRequest
    settings: Settings
    folder: Path | None = None  # None: only the result is returned, and its files are deleted
    resume: bool = False  # continue the interrupted check in `folder`
    captured: bool = False  # `folder` has the trace of this model and these inputs already


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """A module of an earlier check whose IR is exported again."""

    modules_json: Path  # the unique_modules.json of the check
    module_id: str  # or its beginning: mod_004
    settings: Settings  # backend "": the backend of the check


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedIr:
    """How the export of one module's IR ended."""

    module: str  # its whole id
    backend: str
    result: UnitResult

    @property
    def failed(self) -> bool:
        """Whether the IR is missing or incomplete."""
        return bool(self.result.ir_error) or self.result.failed


def run_requested_check(
    request: CheckRequest, progress: Progress = SILENT, *, watching: Observer | None = None
) -> CheckResult:
    """Run a check; with a folder, write its documents, scripts and the report there.

    `watching` receives every step and every result as it arrives. Modules and ops that fail, hang or crash are results.
    Raises InputError for a request that a check cannot use (a saved trace, a mode without values, --resume without a
    folder), a backend that cannot run here or has no gradients where those are asked for, and a folder that cannot be
    written.
    """
    if request.resume and request.folder is None:
        msg = "--resume needs the --dir of the interrupted run"
        raise InputError(msg)
    subject, settings = _asked(request)
    name_code(request.model, progress, request.settings.backend)
    with _result_folder(request.folder) as folder:
        result = run_check(subject, settings, folder, stages=STAGES, resume=request.resume, observer=watching)
        if request.folder is not None:
            _write_pages(request.folder, progress)
    if request.folder is None and result.findings:
        progress.note("add --dir D to keep the repro script of each failure, the IR and the report")
    return result


def _asked(request: CheckRequest) -> tuple[Subject, Settings]:
    subject = replace(_subject(replace(request.model, backward=False)), captured=request.captured)
    return subject, msgspec.structs.replace(request.settings, backward=request.model.backward)


@contextmanager
def preparing_check(request: CheckRequest) -> Iterator[None]:
    """Load the model and the backend of a check in its own process, while this one does something else."""
    from torchstone.check.check_model import first_environment
    from torchstone.workers.launcher import started_early

    with started_early(first_environment(*_asked(request))):
        yield


def check_model(
    subject: "str | nn.Module | Trace",
    inputs: object = None,
    backend: str = "inductor",
    folder: Path | str | None = None,
    *,
    model: "nn.Module | None" = None,
    settings: Settings | None = None,
) -> CheckResult:
    """Find which modules and ops of a model run on a backend, each in a process of its own.

    `subject` is a model name as `models.load` takes it, a module with its example `inputs`, or a trace together with
    the `model` that it was captured from. A module in memory is checked by its recorded ops, a named model by its own
    code. The model is not changed. Results are written to `folder` where one is given. `settings` replaces `backend`
    where more than its name matters. Raises InputError for a trace without its model, and ModelError for a model whose
    forward pass fails on the CPU.
    """
    chosen = settings or Settings(backend=backend)
    checked = _live_subject(subject, inputs, model)
    with _result_folder(None if folder is None else Path(folder)) as opened:
        result = run_check(checked, chosen, opened, stages=STAGES)
        if folder is not None:
            _write_pages(Path(folder), SILENT)
    return result


def compare_checks(folders: Sequence[Path], folder: Path | None = None, progress: Progress = SILENT) -> CheckComparison:
    """Compare the checks in two or more folders; written to `folder` with a report where one is given.

    Raises InputError for fewer folders, UnreadableFileError for a folder without a check.
    """
    from torchstone.check.summary import compare_folders

    if len(folders) < _FEWEST_CHECKS:
        msg = "give two or more folders that `torchstone check --dir` wrote"
        raise InputError(msg)
    found = compare_folders(folders)
    if folder is not None:
        write_result(folder / COMPARISON_FILE, found, progress)
    return found


def export_module_ir(request: ExportRequest) -> ExportedIr:
    """Export the IR of one module of an earlier check to irs/ beside its unique_modules.json.

    An export that fails is a result (`failed`). Raises InputError for an unknown module id or a damaged check.
    """
    from torchstone.check.export_ir import export_ir, read_about, settings_with

    about = read_about(Folder(path=request.modules_json.resolve().parent))
    settings = settings_with(request.settings, about)
    module, result = export_ir(request.modules_json, request.module_id, settings)
    return ExportedIr(module=module, backend=settings.backend, result=result)


def capture_held_model(payload: Mapping[str, str]) -> dict[str, object]:
    """The capture task of a check: runs in the process with the loaded model, saves the trace, returns its failure.

    The payload has the path of the `trace` to write and the `command` for its provenance.
    """
    from torchstone.capture.capture_model import About, capture
    from torchstone.check.child.model import loaded_model
    from torchstone.record.codec import save

    loaded = loaded_model()
    about = About(command=payload["command"], **loaded.about)
    trace = capture(loaded.model, (loaded.args, loaded.kwargs), "cpu", reuse=False, about=about)
    save(Path(payload["trace"]), trace)
    failure = trace.failure
    return {"failure": None if failure is None else {"module": failure.module, "error": failure.error}}


def prices_of(trace: Trace) -> Sequence[int | None]:
    """FLOPs of one call of each op signature; None where there is no price."""
    from torchstone.cost.price_trace import price
    from torchstone.record.cost import Kind

    return [None if cost.kind is Kind.UNPRICED else cost.flops for cost in price(trace).signatures]


STAGES = OtherStages(capture_entry="torchstone.workflows.check:capture_held_model", prices=prices_of)


def _subject(request: ModelRequest) -> Subject:
    require_values(request, "a check")
    return Subject(model=request.model, inputs=request.inputs, options=request.options, command=request.command)


def _live_subject(subject: "str | nn.Module | Trace", inputs: object, model: "nn.Module | None") -> Subject:
    if isinstance(subject, str):
        return Subject(model=subject, inputs=inputs)
    if isinstance(subject, Trace):
        if model is None:
            msg = "a trace has no values; give its module, too: check_model(trace, inputs, model=module)"
            raise InputError(msg)
        return Subject(model=model, inputs=inputs, trace=subject)
    from torchstone.capture.capture_model import About, capture
    from torchstone.check.record_values import refuse_failure
    from torchstone.models.load_model import describe_source, load
    from torchstone.models.prepare import check_inputs_match

    loaded = load(subject, inputs=inputs, device="cpu")
    check_inputs_match(loaded.model, loaded.inputs)
    about = About(model=describe_source(subject), inputs=loaded.inputs.origin, notes=loaded.inputs.notes)
    trace = capture(loaded.model, loaded.inputs, "cpu", reuse=False, about=about)
    if trace.failure is not None:
        refuse_failure(trace.failure.module, trace.failure.error)
    return Subject(model=loaded.model, inputs=loaded.inputs, trace=trace)


@contextmanager
def _result_folder(path: Path | None) -> Iterator[Folder]:
    if path is not None:
        with exclusive(path):
            yield Folder(path=Path(os.path.realpath(path)))
        return
    with temporary_folder("check") as temporary:
        yield Folder(path=temporary)


def _write_pages(folder: Path, progress: Progress) -> None:
    from torchstone.record.codec import write_atomically
    from torchstone.report.render import write_report

    with writing_to(folder):
        page = write_report(folder)
        write_atomically(folder / ANALYSIS_PAGE, page.read_bytes())
    progress.note(f"wrote {folder}: summary.md, unique_modules.json, check.json, {ANALYSIS_PAGE}")
    progress.note(f"next: torchstone serve {quote(str(folder))}")
