"""One model -> one folder with the answers of all stages: structure, cost, formulas, check, golden data, op calls."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from shlex import quote
from time import perf_counter
from typing import TYPE_CHECKING

from torchstone.errors import InputError, TorchstoneError, refused_by_system
from torchstone.foreign import foreign_code
from torchstone.record import codec
from torchstone.record.analysis import UNKNOWN, Analysis, AnalysisStage, StageState
from torchstone.record.check import CheckResult
from torchstone.record.cost import CostTable
from torchstone.record.folder_lock import exclusive
from torchstone.record.formula import Coverage
from torchstone.record.trace import Trace
from torchstone.units import many, show_bytes, show_count, show_seconds
from torchstone.workflows.model_source import TRACE_FILE, ModelRequest, as_arguments, load_trace, saved_trace
from torchstone.workflows.progress import SILENT, NotesOnce, Progress
from torchstone.workflows.result_folder import COST_FILE, write_result, write_trace, writing_to

if TYPE_CHECKING:
    from torch import nn

    from torchstone.check.check_model import Observer
    from torchstone.workflows.check import CheckRequest

ANALYSIS_FILE = "analysis.json"
OPS_DATABASE = "ops.db"
_QUICK_BACKENDS = ("aot_eager",)
_USUAL_BACKENDS = ("aot_eager", "onnxruntime")
_TINY = "tiny:"
_FLOAT_BYTES = 4
_CAPTURE = "capture"
_REFERENCE = "reference"
_USUAL_S = {
    _CAPTURE: 5.0, "structure": 0.1, "cost": 0.2, "fits": 0.2, "check": 7.0, "formula": 4.0, "operators": 2.0,
    "reference": 6.0,
}  # fmt: skip
_MOST_WEIGHTS_BYTES = 4 << 30  # with values: a check holds the model several times


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzeRequest:
    """A model, the folder for the answers, and what to try it on."""

    model: ModelRequest
    folder: Path
    backends: tuple[str, ...] = ()  # (): those that are installed and fast
    hardware: tuple[str, ...] = ()  # presets or FILE.toml
    python: str = ""  # an environment with ttnn: the model's ops are executed on the mock boards among the hardware
    quick: bool = False  # without golden data, formulas that must be derived, and slow backends
    resume: bool = False  # keep the answers of an interrupted analysis in the folder


@dataclass(frozen=True, slots=True)
class _Answer:
    sentences: tuple[str, ...]
    good: bool | None = None
    short: str = ""
    next_step: str = ""


class _SkippedError(Exception):
    """A stage that does not apply; the message says why."""


@dataclass
class _Plan:
    """Which stages an analysis has, which are over, and about how long the others will take."""

    names: tuple[str, ...] = ()
    over: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    left_out: tuple[str, ...] = ()  # they take no time
    began_s: float = field(default_factory=perf_counter)

    def end(self, name: str, *, kept: bool = False) -> None:
        (self.kept if kept else self.over).append(name)

    def line(self, name: str, question: str) -> str:
        """Which stage begins, and the time left: usual times, scaled by how long the stages so far took."""
        usual_s = sum(_usual_s(one) for one in self.over if one not in self.left_out)
        scale = (perf_counter() - self.began_s) / usual_s if usual_s else 1.0
        gone = {*self.over, *self.kept, *self.left_out}
        left_s = scale * sum(_usual_s(one) for one in self.names if one not in gone)
        number = self.names.index(name)  # the capture is the first
        return f"{number} of {len(self.names) - 1}: {question} (about {max(round(left_s), 1)} s left)"


def _usual_s(name: str) -> float:
    """Seconds of a stage for a small model, by its first word; only their proportions matter."""
    return _USUAL_S.get(name.partition(" ")[0], 1.0)


def _names(request: "AnalyzeRequest", backends: tuple[str, ...]) -> tuple[str, ...]:
    """The stages in order, the capture first."""
    devices = [f"fits {one}" for one in request.hardware]
    checks = [f"check {one}" for one in backends]
    return (_CAPTURE, "structure", "cost", *devices, *checks, "formula", "operators", "reference")


@dataclass
class _Run:
    """An analysis in progress: each finished stage is on disk before the next one begins."""

    request: AnalyzeRequest
    progress: Progress
    watching: "Observer | None"
    model: "nn.Module | None" = None  # in memory, where it has no name
    inputs: object = None
    trace: Trace | None = None  # of the module in memory
    kept: dict[str, AnalysisStage] = field(default_factory=dict)
    stages: list[AnalysisStage] = field(default_factory=list)
    plan: _Plan = field(default_factory=_Plan)

    def stage(self, name: str, question: str, work: Callable[[], _Answer]) -> None:
        """Answer one question; what fails is an answer, too."""
        if name in self.kept:
            self.progress.note(f"{name}: kept from the interrupted analysis")
            self.plan.end(name, kept=True)
            self.stages.append(self.kept[name])
            return
        begun_s = perf_counter()
        self.progress.note(self.plan.line(name, question))
        with foreign_code(stage=True) as ran:  # a stage runs code of the user, of backends and of libraries
            answer = work()
            state = StageState.DONE
        error = refused_by_system(ran.error) if isinstance(ran.error, OSError | MemoryError) else ran.error
        if isinstance(error, _SkippedError):
            answer, state = _Answer((str(error),)), StageState.SKIPPED
        elif isinstance(error, TorchstoneError):
            answer, state = _Answer((str(error),)), StageState.FAILED
        elif error is not None:
            said = " ".join(f"{type(error).__name__}: {error}".split())
            answer, state = _Answer((f"internal error: {said}; run this stage alone with --debug",)), StageState.FAILED
        self.plan.end(name)
        self.stages.append(
            AnalysisStage(
                name=name, question=question, state=state, answers=answer.sentences, short=answer.short,
                good=answer.good, next_step=answer.next_step, seconds=perf_counter() - begun_s,
            )
        )  # fmt: skip
        self.save(finished=False)

    def save(self, *, finished: bool) -> Analysis:
        named = self.request.model
        analysis = Analysis(
            model=named.model, request=_identity(self.request), stages=tuple(self.stages), finished=finished
        )
        with writing_to(self.request.folder):
            self.request.folder.mkdir(parents=True, exist_ok=True)
            codec.save(self.request.folder / ANALYSIS_FILE, analysis)
        return analysis


def analyze(request: AnalyzeRequest, progress: Progress = SILENT, *, watching: "Observer | None" = None) -> Analysis:
    """Answer every question about a named model into one folder; stages that fail do not stop the others.

    Raises ModelError for a model that cannot be loaded, and InputError for a folder that cannot be written, a device
    or a backend that does not exist.
    """
    if saved_trace(request.model.model) is not None:
        msg = f"{request.model.model} is a finished run, which has no values; give the model itself"
        raise InputError(msg)
    return _analyzed(_Run(request, NotesOnce(progress), watching, kept=_kept(request)))


def analyze_module(model: "nn.Module", inputs: object, trace: Trace, request: AnalyzeRequest) -> Analysis:
    """The same for a module in memory, its example inputs and its capture."""
    return _analyzed(_Run(request, SILENT, None, model=model, inputs=inputs, trace=trace))


def _analyzed(run: _Run) -> Analysis:
    _require_known(run.request)
    with exclusive(run.request.folder):
        return _answered(run)


def _answered(run: _Run) -> Analysis:
    with ExitStack() as opened:
        if _is_small(run):
            backend = next(_backends(run.request), None)
            if backend is not None and f"check {backend}" not in run.kept:
                from torchstone.workflows.check import preparing_check

                opened.enter_context(preparing_check(_check_request(run, backend, run.request.folder)))
        return _all_answers(run)


def _is_small(run: _Run) -> bool:
    """Whether the model is known to fit with its values before it is captured: only then a check is sure to follow."""
    from torchstone.models.zoo.catalogue import find_entry

    named = run.request.model
    if run.model is not None or named.options.pretrained or named.inputs is not None:
        return False
    entry = find_entry(named.model)
    known = entry is not None and entry.parameters * _FLOAT_BYTES <= _MOST_WEIGHTS_BYTES
    return named.model.startswith(_TINY) or (known and not Path(named.model).exists())


def _all_answers(run: _Run) -> Analysis:
    trace = _capture(run)
    backends = tuple(_backends(run.request))
    run.plan.names = _names(run.request, backends)
    run.plan.left_out = ("formula", "reference") if run.request.quick else ()
    run.plan.end(_CAPTURE)
    run.stage("structure", "What is it made of", lambda: _structure(run, trace))
    run.stage("cost", "What does it cost", lambda: _cost(run, trace))
    for device in run.request.hardware:
        run.stage(f"fits {device}", f"Does it fit on {device}, and how fast", partial(_fits, run, trace, device))
    for place, backend in enumerate(backends):
        folder = run.request.folder if place == 0 else run.request.folder / f"check-{backend.replace('/', '_')}"
        run.stage(
            f"check {backend}",
            f"Does it run on {backend}",
            partial(_check, run, trace, backend, folder),
        )
    run.stage("formula", "What does it cost as a formula", lambda: _formula(run, trace))
    run.stage("operators", "Which op calls to keep working", lambda: _operators(run, trace))
    run.stage(_REFERENCE, "What is the correct output", lambda: _reference(run, trace))
    analysis = run.save(finished=True)
    write_result(run.request.folder / ANALYSIS_FILE, analysis, run.progress)
    return analysis


def _identity(request: AnalyzeRequest) -> str:
    """What makes two requests the same, apart from the command line and from resuming."""
    plain = replace(request, resume=False, folder=Path(), model=replace(request.model, command=""))
    return repr(plain)


def _kept(request: AnalyzeRequest) -> dict[str, AnalysisStage]:
    if not request.resume:
        return {}
    path = request.folder / ANALYSIS_FILE
    if not path.is_file():
        return {}
    before = codec.load(path, Analysis)
    if before.request != _identity(request):
        msg = f"{path} has another model or other options; drop --resume to begin again"
        raise InputError(msg)
    return {one.name: one for one in before.stages if one.state is StageState.DONE and not _was_disturbed(one)}


def _was_disturbed(stage: AnalysisStage) -> bool:
    """Whether the machine may be why an answer is bad: a part of it is not known, or golden data failed its checks."""
    is_unsure = stage.name == _REFERENCE or any(text.startswith(UNKNOWN) for text in stage.answers)
    return stage.good is False and is_unsure


# --- The stages ---


def _capture(run: _Run) -> Trace:
    found = run.trace or load_trace(run.request.model, run.progress)
    backend = next(_backends(run.request), None)
    if backend is not None and f"check {backend}" in run.kept:  # it has written its verdicts to the unique modules
        write_result(run.request.folder / TRACE_FILE, found)
    else:
        write_trace(run.request.folder, found)
    return found


def _structure(run: _Run, trace: Trace) -> _Answer:
    from torchstone.report.view.overview import overview

    totals = overview(trace).totals
    sentence = (
        f"{show_count(totals.parameters)} parameters ({show_bytes(totals.parameter_bytes)}), "
        f"{many(totals.modules, 'module')} ({totals.unique_modules:,} distinct), {many(totals.ops, 'call')} of "
        f"{many(totals.distinct_ops, 'operator')}."
    )
    if trace.failure is None:
        return _Answer((sentence,), short=f"{show_count(totals.parameters)} parameters")
    where = trace.failure.module or "the model itself"
    return _Answer(
        (f"The forward pass fails in {where}: {trace.failure.error}.", sentence), good=False, short="fails in eager",
        next_step=f"torchstone inspect {quote(str(run.request.folder))}",
    )  # fmt: skip


def _cost(run: _Run, trace: Trace) -> _Answer:
    from torchstone.workflows.cost import DEFAULT_PRICING, as_shipped, price_trace, with_batches_of_one_capture

    first = run.request.hardware[0] if run.request.hardware else None
    table = price_trace(trace, as_shipped(trace, replace(DEFAULT_PRICING, hardware=first)))
    table = with_batches_of_one_capture(table, "an analysis makes one; `torchstone cost --hardware` makes more")
    with writing_to(run.request.folder):
        codec.save(run.request.folder / COST_FILE, table)
    totals = table.totals
    padding, side = sum(table.peak.padding.values()), table.conventions.tile
    tiles = f"; whole tiles of {side} x {side} add {show_bytes(padding)} of it" if side and padding > 0 else ""
    until = "Up to the failure: " if trace.failure is not None else ""
    sentences = [
        f"{until}{show_count(totals.flops)} FLOPs, {show_bytes(totals.bytes_read + totals.bytes_written)} moved, "
        f"{show_bytes(totals.peak_bytes)} at the peak, of which {show_bytes(table.peak.weights_bytes)} are weights"
        f"{tiles}."
    ]
    if table.unpriced:
        names = ", ".join(list(table.unpriced)[:3])
        sentences.append(f"{UNKNOWN} {many(totals.unpriced_calls, 'op call has', 'op calls have')} no price ({names}).")
    short = f"{show_count(totals.flops)} FLOPs"
    return _Answer(tuple(sentences), short=short, next_step=f"torchstone cost {quote(str(run.request.folder))}")


def _fits(run: _Run, trace: Trace, device: str) -> _Answer:
    from torchstone.record.cost import Fits
    from torchstone.report.cost_text import needed_memory
    from torchstone.workflows.cost import DEFAULT_PRICING, as_shipped, price_trace

    _require_whole(trace)
    table: CostTable = price_trace(trace, as_shipped(trace, replace(DEFAULT_PRICING, hardware=device)))
    found = table.prediction
    if found is None:
        msg = f"there is no prediction for {device}"
        raise _SkippedError(msg)
    room = show_bytes(found.hardware.memory_bytes)
    size = f"{needed_memory(found)} of {room}"
    executed, accepted = _executed(run, trace, device)
    too_large = found.verdict is Fits.NO
    if too_large or not accepted:
        sentences = (f"It does not fit on {device}: {size}." if too_large else f"{size} by estimate.", *executed)
        short = f"does not fit on {device}" if too_large else f"does not run on a mock {device}"
        return _Answer(sentences, good=False, short=short)
    if found.verdict is Fits.BETWEEN:
        answer = f"It fits on {device} only if less is held at a time than eager PyTorch holds: {size}."
        return _Answer((answer, *executed), good=False, short=f"may not fit on {device}")
    if found.verdict is Fits.UNKNOWN:
        answer = f"Whether it fits on {device} is not known: it takes {size}."
        return _Answer((answer, *executed), good=False, short=f"may not fit on {device}")
    times = f"at least {show_seconds(found.ideal_s)}, {show_seconds(found.total_s)} op by op (roofline, not measured)"
    answer = f"It fits on {device} ({size}); {times}."
    return _Answer((answer, *executed), good=True, short=f"fits on {device}")


def _executed(run: _Run, trace: Trace, device: str) -> tuple[tuple[str, ...], bool]:
    """What executing the mapped ops on a mock board gave, where an environment was named; no value is compared."""
    from torchstone.backends.ttnn.boards import BOARDS

    if not run.request.python or device not in BOARDS:
        return (), True
    from torchstone.record.mapping import ACCEPTED
    from torchstone.report.map_text import plan_sentence
    from torchstone.workflows.memory_plan import plan_for_hardware

    mapping = plan_for_hardware(trace, device, run.request.python, run.progress)
    if mapping.plan is None:
        return (), True
    kind = "mock " if mapping.mock else ""
    return (f"Executed on a {kind}{device} ({mapping.version}): {plan_sentence(mapping.plan)}.",), (
        mapping.plan.outcome == ACCEPTED
    )


def _require_known(request: AnalyzeRequest) -> None:
    """Raise InputError for devices and backends that nobody knows: a misspelled name is no answer about a model."""
    from torchstone.backends.registry import describe
    from torchstone.backends.ttnn.boards import BOARDS
    from torchstone.cost.roofline import find_hardware

    for device in request.hardware:
        find_hardware(device)
    if request.python and not BOARDS.keys() & set(request.hardware):
        msg = f"--python executes the model on a mock board; give one with --hardware ({', '.join(BOARDS)}) or drop it"
        raise InputError(msg)
    for backend in request.backends:
        facts = describe(backend, options={}, python=None)
        if not facts.opened:
            raise InputError(facts.reason)


def _backends(request: AnalyzeRequest) -> Iterator[str]:
    if request.backends:
        yield from request.backends
        return
    from torchstone.backends.registry import describe

    for name in _QUICK_BACKENDS if request.quick else _USUAL_BACKENDS:
        if describe(name, options={}, python=None).usable:
            yield name


def _require_whole(trace: Trace) -> None:
    """Nothing is judged from a part: what fits, runs or is correct is only known of a forward pass that ends."""
    if trace.failure is not None:
        msg = "the forward pass ends early in eager PyTorch, so this is not known; repair that first"
        raise _SkippedError(msg)


def _require_small(trace: Trace, command: str) -> None:
    from torchstone.report.view.overview import overview

    weights = overview(trace).totals.parameter_bytes
    if weights > _MOST_WEIGHTS_BYTES:
        msg = f"the weights take {show_bytes(weights)}; run it where they fit: {command} (--layers 2 for a part)"
        raise _SkippedError(msg)


def _check(run: _Run, trace: Trace, backend: str, folder: Path) -> _Answer:
    from torchstone.check.summary import verdict_sentence
    from torchstone.workflows.check import check_model, run_requested_check

    named = run.request.model
    _require_whole(trace)
    _require_small(trace, f"torchstone check {as_arguments(named)} --backend {backend}")
    if run.model is not None:
        result: CheckResult = check_model(run.model, run.inputs, backend, folder)
    else:
        result = run_requested_check(_check_request(run, backend, folder), run.progress, watching=run.watching)
    sentences = [f"{backend}: {verdict_sentence(result)}"]
    if result.unjudged:
        sentences.append(f"{UNKNOWN} whether {many(len(result.unjudged), 'module runs', 'modules run')} on {backend}.")
    if result.findings:
        first = result.findings[0]
        proof = "proven" if first.proven else "not proven"
        sentences.append(f"First: {first.op or first.module_path or 'the model'}, {first.outcome.value} ({proof}).")
    step = f"torchstone check explain {result.findings[0].code}" if result.findings and result.findings[0].code else ""
    short = f"runs on {backend}" if result.passed else f"fails on {backend}"
    return _Answer(tuple(sentences), good=result.passed, short=short, next_step=step)


def _check_request(run: _Run, backend: str, folder: Path) -> "CheckRequest":
    from torchstone.check.settings import Settings
    from torchstone.workflows.check import CheckRequest

    captured = folder == run.request.folder
    return CheckRequest(model=run.request.model, settings=Settings(backend=backend), folder=folder, captured=captured)


def _formula(run: _Run, trace: Trace) -> _Answer:
    from torchstone.workflows.cost import CostRequest
    from torchstone.workflows.cost_by_formula import FormulaCostRequest, cost_by_formula

    _require_whole(trace)
    if run.model is not None:
        msg = "formulas are derived for models that have a name; see `torchstone formula derive --recipe`"
        raise _SkippedError(msg)
    if run.request.quick:
        msg = f"omitted by --quick; run: torchstone cost {quote(str(run.request.folder))} --by formula"
        raise _SkippedError(msg)
    saved = _saved_capture(run.request)
    result = cost_by_formula(FormulaCostRequest(cost=CostRequest(model=saved)), run.progress).result
    counted = ", ".join(f"{count} {name}" for name, count in result.document.coverage.items() if count)
    if result.disagreeing:
        wrong = f"{many(len(result.disagreeing), 'formula contradicts', 'formulas contradict')} the trace ({counted})."
        return _Answer((wrong,), good=False, short="has formulas that the trace contradicts")
    step = f"torchstone cost {quote(str(run.request.folder))} --by formula"
    traced = result.count(Coverage.TRACED)
    missing = (f"{UNKNOWN} the formula of {many(traced, 'module')}.",) if traced else ()
    short = f"{len(result.modules) - traced} of {many(len(result.modules), 'module')}"
    return _Answer((f"{counted}; no formula contradicts the trace.", *missing), short=short, next_step=step)


def _saved_capture(request: AnalyzeRequest) -> ModelRequest:
    """The saved capture in the folder as a model: nothing is captured twice."""
    return ModelRequest(model=str(request.folder), command=request.model.command)


def _operators(run: _Run, trace: Trace) -> _Answer:
    from torchstone.workflows.trace_ops import TraceRequest, trace_ops

    if run.model is not None:
        msg = "op calls are recorded from models that have a name; see `torchstone trace`"
        raise _SkippedError(msg)
    _require_whole(trace)
    _require_small(trace, f"torchstone trace {quote(run.request.model.model)}")
    database = str(run.request.folder / OPS_DATABASE)
    found = trace_ops(TraceRequest(model=run.request.model, ttnn=False, database=database), run.progress).summary
    return _Answer(
        (
            f"{many(found.calls, 'call')} of {many(found.operations, 'op')} in "
            f"{many(found.configurations, 'configuration')}.",
        ),
        short=f"{found.configurations:,} distinct",
        next_step=f"torchstone sweep generate --all --db {quote(str(database))}",
    )


def _reference(run: _Run, trace: Trace) -> _Answer:
    from torchstone.workflows.reference import ReferenceRequest, make_reference, write_reference

    named, folder = run.request.model, run.request.folder / "reference"
    _require_whole(trace)
    if run.request.quick:
        msg = f"omitted by --quick; run: torchstone reference {as_arguments(named)} --dir {folder}"
        raise _SkippedError(msg)
    _require_small(trace, f"torchstone reference {as_arguments(named)} --dir {quote(str(folder))}")
    if run.model is not None:
        made = make_reference(run.model, run.inputs, folder)
    else:
        made = write_reference(ReferenceRequest(model=named, folder=folder), run.progress)
    ticked = sum(one.ticked for one in made.checklist.boxes)
    sentence = f"{ticked} of {len(made.checklist.boxes)} deliverables pass their checks; {made.checklist.banner}."
    step = f"torchstone reference compare {quote(str(folder))} YOUR_OUTPUTS.safetensors"
    if made.complete:
        return _Answer((sentence,), short="golden data", next_step=step)
    return _Answer((sentence,), good=False, short="has no complete golden data", next_step=step)
