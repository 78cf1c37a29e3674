"""Results of a check: one per unique module and op configuration, and findings with the ops at fault."""

from collections import Counter
from enum import StrEnum
from typing import ClassVar

from torchstone.record.base import Count, Document, Record, Schema
from torchstone.record.consistency import distinct, inside, known, same_length
from torchstone.record.unique import UniqueModule, check_unique


class Status(StrEnum):
    """The status of a module after the walk through the module tree."""

    SUCCESS = "success"
    INHERITED_SUCCESS = "inherited_success"  # a module around it passed
    FAILED = "failed"
    IR_EXPORT_FAILED = "ir_export_failed"
    SKIPPED = "skipped"


class Outcome(StrEnum):
    """How one run on the backend ended."""

    PASSED = "passed"
    WRONG = "wrong"
    VARIES = "varies"  # called again with the same inputs it gives other values
    UNSUPPORTED = "unsupported"
    COMPILE_ERROR = "compile error"
    RAISED = "raised"
    CRASHED = "crashed"
    TIMED_OUT = "timed out"
    OUT_OF_MEMORY = "out of memory"
    TOO_BUSY = "machine too busy"  # it was not given the CPU time of its deadline: nothing is known about it
    NOT_RUN = "not run"
    ACCEPTED = "accepted"  # a device library took the call; no values were compared
    REFUSED = "refused"  # a device library rejected the call before it ran


UNJUDGED = frozenset({Outcome.NOT_RUN, Outcome.TOO_BUSY})
FAILURES = frozenset(Outcome) - UNJUDGED - {Outcome.PASSED, Outcome.ACCEPTED}
FAILED_STATUSES = frozenset({Status.FAILED, Status.IR_EXPORT_FAILED})
WORKING_STATUSES = frozenset({Status.SUCCESS, Status.INHERITED_SUCCESS})


class Blame(StrEnum):
    """How narrow a finding is."""

    OP = "op"  # one op fails alone
    OPS_TOGETHER = "ops together"  # every op passes alone, these fail as one graph
    MODULE = "module"  # the module fails, no part of its graph does: the way the backend reads its code, or the whole


class Numbers(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The error, at the output with the largest one; None where a metric is not defined."""

    output: str = ""  # the name of that output; "" when there is only one
    state: str = ""  # passed, suspicious or wrong
    noise_multiple: float | None = None  # the error over the noise of a correct implementation
    noise_format: str = ""  # the number format that it was judged in
    noise_basis: str = ""  # measured, scaled from another format, or assumed
    noise_measure: str = ""  # which measure of the error is the largest multiple
    pcc: float | None = None
    relative_l2: float | None = None
    cosine: float | None = None
    max_abs: float | None = None
    max_rel: float | None = None
    max_ulp: float | None = None
    allclose: bool | None = None
    equal: bool | None = None
    misplaced: Count | None = None  # elements that are NaN or infinite in one and not the same in the other
    nan: tuple[int, int] | None = None  # in eager's output, in the backend's
    inf: tuple[int, int] | None = None
    worst_at: tuple[int, ...] | None = None  # the first misplaced element, or the one with the largest error
    ulp_histogram: dict[str, int] | None = None  # ULP "0", "1", "2-3", "4-7", ... -> elements
    relative_error: float | None = None  # RMS of the error over RMS of the float64 values
    relative_noise: float | None = None  # the same of a correct implementation


class Proof(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The evidence of a run that did not pass."""

    error: str = ""
    traceback: str = ""
    signal: str | None = None
    exit_code: int | None = None
    last_output: str = ""


class UnitResult(Record, frozen=True, kw_only=True, omit_defaults=False):
    """How one module call, op or group of ops ended on the backend."""

    outcome: Outcome
    reason: str = ""  # one line; "" when it passed
    stage: str = ""  # export, compile or run: how far it came; "" when it passed
    numbers: Numbers | None = None
    tolerance: dict[str, float | bool] = {}
    proof: Proof | None = None
    irs: tuple[str, ...] = ()  # files, relative to the folder of results
    ir_error: str = ""  # why there is no IR; "" when there is or none was asked for
    notes: tuple[str, ...] = ()
    named_ops: tuple[str, ...] = ()  # that the backend named when it refused: a hypothesis, not a result
    elapsed_s: float = 0.0
    ran_at: str = ""  # UTC, ISO 8601; "" where it is unknown
    reused: bool = False  # True: it ran in an earlier check, or before this one was interrupted

    @property
    def failed(self) -> bool:
        """Whether it ran and did not pass."""
        return self.outcome in FAILURES

    @property
    def suspicious(self) -> bool:
        """Whether it passed with an error that noise explains only in part."""
        return self.outcome is Outcome.PASSED and self.numbers is not None and self.numbers.state == "suspicious"


class CheckedCall(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One kind of call of a unique module: the same module called with other shapes is another."""

    id: str
    call: int  # row of the trace's module calls that stands for it
    calls: Count
    inputs: tuple[str, ...]  # float32[1, 8]
    result: UnitResult | None = None  # None: it was not run


class Standing(StrEnum):
    """What is known of one occurrence of a unique module."""

    TESTED = "tested"  # it ran, with its own values
    ASSUMED = "assumed"  # an identical one ran, with other values
    REFUTED = "refuted"  # it ran, and ended in another way than the one that stood for it


class Occurrence(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One occurrence of a unique module: whether it ran itself, and how that ended."""

    path: str
    standing: Standing
    status: str
    outcome: str | None = None  # of its own run; None: it did not run
    reason: str = ""


class CheckedModule(UniqueModule, frozen=True, kw_only=True, omit_defaults=False):
    """A unique module with what the check found; status and outcome as in UniqueModule."""

    reason: str = ""
    children_status: str | None = None  # of a skipped one: the worst below it
    numbers: Numbers | None = None
    evidence: Proof | None = None
    irs: tuple[str, ...] = ()
    ir_error: str = ""
    checked_calls: tuple[CheckedCall, ...] = ()
    occurrence_results: tuple[Occurrence, ...] = ()  # in the order of `occurrences`; none for what never ran
    findings: tuple[str, ...] = ()  # ids
    notes: tuple[str, ...] = ()
    flops: Count | None = None  # of all its occurrences
    elapsed_s: float = 0.0


class CheckedModules(Document, frozen=True, kw_only=True, omit_defaults=False):
    """The document unique_modules.json after a check."""

    schema: ClassVar[Schema] = Schema(kind="unique_modules", version=1)
    model: str
    backend: str
    modules: tuple[CheckedModule, ...]

    def check(self) -> None:
        """Parents are modules that are there."""
        check_unique(self.modules)


class CheckedOp(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One op configuration that was run alone."""

    id: str
    op: str
    arguments: str
    output: str
    module: str  # id of the unique module it was first tried for
    calls: Count  # in the whole model
    flops: Count | None = None
    result: UnitResult


class Rung(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The failure in one of the forms that a backend takes."""

    form: str  # torch, exported program, ONNX, MLIR
    file: str = ""  # script, relative to the folder of results; "" where there is none
    outcome: str = ""  # of its run; "" where there was none
    reason: str = ""  # why there is no script, or what its run showed


class Twin(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The smallest change with which a script passes, as it was found by running changes one after the other."""

    change: str = ""  # in words; "" where none of those tried makes it pass
    file: str = ""  # the script that passes, relative to the folder of results
    fails_with: tuple[str, ...] = ()  # changes with which it still fails
    why: str = ""  # nothing was tried; "" where something was


class Finding(Record, frozen=True, kw_only=True, omit_defaults=False):
    """A failure to fix, localized as far as possible."""

    id: str
    blame: Blame
    op: str = ""  # the op, or the ops that fail together, joined by +; "" for a module
    ops: tuple[str, ...]  # the same, one by one
    arguments: str  # of the configuration that the repro has
    configurations: tuple[str, ...] = ()  # all arguments with which it fails
    proven: bool = False  # alone it fails, and computed by eager inside what fails, that passes
    proof: tuple[str, ...] = ()  # how: what was run, a sentence each
    source: str = ""  # file:line: code that calls it, where the graph knows it
    modules: tuple[str, ...]  # ids of the unique modules it was found in
    module_path: str
    outcome: Outcome
    reason: str
    note: str = ""  # why nothing narrower was found, or why it is not proven
    numbers: Numbers | None = None
    evidence: Proof | None = None
    calls: Count  # of the op, or of the group, in the model
    op_calls: Count = 0  # kernel calls that these come down to
    flops: Count | None = None
    repro: str = ""  # file, relative to the folder of results
    confirmed: bool = False  # the repro was run and failed the same way
    nodes: Count = 0  # calls in the repro; 0: there is none, or it runs the module
    shapes: str = ""  # of the repro, after shrinking
    needs: str = ""  # what the repro needs beside torch
    ladder: tuple[Rung, ...] = ()  # the failure in the forms that the backend takes, the repro first
    twin: Twin | None = None  # what to change for the repro to pass; None: there is no script to change
    code: str = ""  # the stable id of its kind: TS-CHK-001
    looks_like: str = ""  # what an error with this text usually is; "" for an unknown one
    ran_at: str = ""  # of the result that it rests on; UTC, ISO 8601
    reused: bool = False  # that result is of an earlier run

    @property
    def files(self) -> tuple[str, ...]:
        """The scripts: the repro, its other forms, and the one that passes."""
        others = [rung.file for rung in self.ladder[1:]] + ([] if self.twin is None else [self.twin.file])
        return tuple(file for file in (self.repro, *others) if file)

    @property
    def subject(self) -> str:
        """What fails: an op, ops that fail only together, or the code of a module."""
        if not self.ops:
            return f"the code of {self.module_path or 'the model itself'}"
        names = " + ".join(self.ops)
        return f"{names} together" if self.blame is Blame.OPS_TOGETHER else names


class Totals(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The passing part of the model: op calls and their FLOPs, where those are known."""

    op_calls: Count
    working_calls: Count
    unknown_calls: Count  # in modules that fail although no single op fails
    flops: Count | None = None
    working_flops: Count | None = None


class DriftKind(StrEnum):
    """How an error came about over the depth of a model."""

    NONE = "none"  # every layer is within noise
    UNIFORM = "uniform"  # many layers add about equally
    SINGLE_SOURCE = "single source"
    SEVERAL_SOURCES = "several sources"
    AMPLIFIER = "amplifier"  # a layer multiplies what it inherits
    OUTSIDE_LAYERS = "outside layers"  # the model's own code between the layers adds it


class DriftLayer(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The error at one layer; errors are relative to the float64 values, None where one is unknown."""

    path: str
    class_name: str
    added: float | None = None  # what the layer adds in the run of the whole model
    added_noise_multiple: float | None = None
    added_alone: float | None = None  # what it adds when it runs alone, on the inputs of eager
    added_alone_noise_multiple: float | None = None
    inherited: float | None = None  # at its inputs
    amplification: float | None = None  # of what it inherits; None where it inherits nothing
    total: float | None = None  # at its outputs
    total_noise_multiple: float | None = None
    share: float | None = None  # of the variance of the model's error that began here
    note: str = ""


class PreciseSet(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The smallest set of operators that brings the model within noise when eager computes them; it was run."""

    ops: tuple[str, ...]  # functions as the model's code calls them: linear, softmax
    layers: tuple[str, ...] = ()  # only in these; empty: everywhere
    calls: Count
    noise_multiple_before: float
    noise_multiple_after: float


class Drift(Record, frozen=True, kw_only=True, omit_defaults=False):
    """How the error of a model grows over its depth."""

    kind: DriftKind
    code: str = ""  # the stable id of the kind: TS-CHK-020; "" for no drift
    verdict: str  # one sentence
    layers: tuple[DriftLayer, ...]
    culprits: tuple[str, ...] = ()  # the layers that the verdict names
    first_beyond_noise: str | None = None  # the first layer whose outputs are
    relative_error: float | None = None  # of the model's outputs
    noise_multiple: float | None = None
    observed: str = ""  # one run, or layer by layer with the reason
    precise_set: PreciseSet | None = None
    why_no_precise_set: str = ""


class ComparedModule(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One unique module on several backends."""

    module_path: str
    class_name: str
    statuses: tuple[str | None, ...]  # in the order of the sides; None: that check does not have it
    outcomes: tuple[str | None, ...]

    @property
    def differs(self) -> bool:
        """Whether it ended differently on two sides; inherited from a module around it or not does not count."""
        words = {"success" if status in WORKING_STATUSES else status for status in self.statuses}
        failures = {outcome for outcome in self.outcomes if outcome not in (None, Outcome.PASSED)}
        return len(words) > 1 or len(failures) > 1


class CheckComparison(Document, frozen=True, kw_only=True, omit_defaults=False):
    """The document check_comparison.json: the checks of several backends, or of one at several times, side by side."""

    schema: ClassVar[Schema] = Schema(kind="check_comparison", version=1)
    models: tuple[str, ...]
    sides: tuple[str, ...]  # folder, backend, version and options
    folders: tuple[str, ...]
    passed: tuple[bool, ...]
    working_calls: tuple[Count, ...]
    op_calls: tuple[Count, ...]
    findings: tuple[tuple[str, ...], ...]  # for each side, what is to fix
    modules: tuple[ComparedModule, ...]
    notes: tuple[str, ...] = ()

    def check(self) -> None:
        """Every list has an entry for each side."""
        same_length(
            sides=self.sides, models=self.models, folders=self.folders, passed=self.passed,
            working_calls=self.working_calls, op_calls=self.op_calls, findings=self.findings,
        )  # fmt: skip
        for module in self.modules:
            same_length(sides=self.sides, statuses=module.statuses, outcomes=module.outcomes)

    @property
    def worse(self) -> bool:
        """Whether something that works on the first side fails on another."""
        return any(
            module.statuses[0] in WORKING_STATUSES and any(status in FAILED_STATUSES for status in module.statuses)
            for module in self.modules
        )


class CheckResult(Document, frozen=True, kw_only=True, omit_defaults=False):
    """The document check.json: one model on one backend."""

    schema: ClassVar[Schema] = Schema(kind="check", version=1)
    model: str
    backend: str
    backend_version: str
    backend_options: dict[str, str] = {}
    form: str = "module"  # module: the real code ran; program: the recorded ops did
    python: str = ""
    tolerance: dict[str, float] = {}  # what the user asked for; empty: the noise of the profile decides
    profile: str = "default"
    modules: tuple[CheckedModule, ...]
    ops: tuple[CheckedOp, ...] = ()
    findings: tuple[Finding, ...] = ()
    totals: Totals
    fixed: bool | None = None  # the model passed with exactly the proven findings computed by eager; None: not tried
    graph: str = ""  # what was localized on: the graph of dynamo or of export, the backend's own, or recorded ops
    drift: Drift | None = None  # None: not asked for, and no sign of it
    notes: tuple[str, ...] = ()
    tasks: Count = 0  # runs on the backend, those of an earlier run included
    reused_tasks: int = 0  # of these, results that were reused
    reused_from: tuple[str, ...] = ()  # the times of the oldest and the newest of them
    elapsed_s: float = 0.0

    def check(self) -> None:
        """Findings and ops are of modules that are there, and modules name findings that are there."""
        check_unique(self.modules)
        modules = {module.id for module in self.modules}
        findings = [finding.id for finding in self.findings]
        distinct("findings", findings)
        for finding in self.findings:
            known(f"finding {finding.id}", finding.modules, modules)
            inside(f"finding {finding.id}", finding.files)
        for module in self.modules:
            known(f"module {module.id}", module.findings, findings)
            inside(f"module {module.id}", module.irs)

    @property
    def counts(self) -> dict[str, int]:
        """How many unique modules have which status."""
        return dict(Counter(str(module.status) for module in self.modules))

    @property
    def suspicious(self) -> tuple[CheckedModule, ...]:
        """The modules that passed with an error that noise explains only in part."""
        return tuple(
            module
            for module in self.modules
            if module.outcome == Outcome.PASSED and module.numbers is not None and module.numbers.state == "suspicious"
        )

    @property
    def unjudged(self) -> tuple[CheckedModule, ...]:
        """The modules that were tried, and could not be judged."""
        return tuple(module for module in self.modules if module.outcome in UNJUDGED)

    @property
    def passed(self) -> bool:
        """Whether nothing failed, and whatever was tried was judged."""
        failed = any(module.status in FAILED_STATUSES for module in self.modules)
        return not self.findings and not failed and not self.unjudged

    def _repr_html_(self) -> str:
        """The counts by status, and the findings in the order to fix them, for a notebook."""
        from torchstone.record.notebook import html_table

        counts = ", ".join(f"{number} {status}" for status, number in sorted(self.counts.items()))
        rows = [
            (", ".join(finding.ops) or "module", finding.module_path or "(root)", str(finding.outcome), finding.reason)
            for finding in self.findings
        ]
        title = f"{self.model} on {self.backend}: {counts}"
        return html_table(title, ("op", "module", "outcome", "reason"), rows, notes=self.notes)
