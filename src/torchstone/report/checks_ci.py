"""A check, a comparison with golden data and a memory budget for continuous integration."""

from collections.abc import Sequence

from torchstone.record.check import FAILED_STATUSES, WORKING_STATUSES, CheckedModule, CheckResult, Finding, Outcome
from torchstone.record.reference import WRONG, Comparison, TensorVerdict
from torchstone.record.reference import Status as TensorStatus
from torchstone.report.ci import Case, CiResults, Failures

_ENDED = frozenset({Outcome.CRASHED, Outcome.TIMED_OUT, Outcome.OUT_OF_MEMORY})  # an error in terms of JUnit
_MODEL = "(the model)"

# --- check ---


def check_for_ci(result: CheckResult, *, failed: bool) -> CiResults:
    """One case for each unique module; the findings, proven ones first, are the table and the annotations."""
    findings = sorted(result.findings, key=lambda one: not one.proven)
    counts = ", ".join(f"{number:,} {status}" for status, number in sorted(result.counts.items()))
    unsure = [f"{len(result.suspicious)} suspicious"] if result.suspicious else []
    unsure += [f"{len(result.unjudged)} could not be judged"] if result.unjudged else []
    return CiResults(
        failed=failed,
        program=result.backend,
        cases=[_module_case(result.model, module) for module in result.modules],
        subject=f"Check of {result.model} on {result.backend}",
        lines=[
            f"unique modules: {', '.join([counts, *unsure])}",
            *([result.drift.verdict] if result.drift else []),
            *result.notes,
        ],
        failures=Failures(
            columns=("finding", "op or module", "outcome", "proven", "calls", "reason", "repro"),
            numbers=frozenset({"calls"}),
            rows=[_finding_row(one) for one in findings],
        ),
        annotations=[
            (f"{one.subject} on {result.backend}: {one.outcome.value}", f"{one.module_path or _MODEL}: {one.reason}")
            for one in findings
        ],
    )


def _module_case(model: str, module: CheckedModule) -> Case:
    outcome = module.outcome or module.status or "not run"
    evidence = module.evidence
    return Case(
        suite=model,
        name=module.module_path or _MODEL,
        kind=_module_kind(module),
        message=f"{outcome}: {module.reason}" if module.reason else str(outcome),
        text=(evidence.traceback or evidence.last_output) if evidence is not None else "",
        elapsed_s=module.elapsed_s,
    )


def _module_kind(module: CheckedModule) -> str:
    if module.status in FAILED_STATUSES:
        return "error" if module.outcome in _ENDED else "failure"
    return "" if module.status in WORKING_STATUSES else "skipped"


def _finding_row(finding: Finding) -> tuple[str, ...]:
    return (
        finding.code or finding.id, finding.subject, finding.outcome.value, "yes" if finding.proven else "no",
        f"{finding.calls:,}", finding.reason, finding.repro,
    )  # fmt: skip


# --- reference compare ---


def comparison_for_ci(found: Comparison, *, failed: bool) -> CiResults:
    """One case for each golden tensor, in order of execution; what the port did not give is skipped."""
    wrong = [one for one in found.verdicts if one.status in WRONG]
    counts = ", ".join(f"{number:,} {status}" for status, number in found.counts.items())
    return CiResults(
        failed=failed,
        program=found.candidate,
        cases=[_tensor_case(found.model, one) for one in found.verdicts] + _setup_cases(found),
        subject=f"{found.candidate} against {found.model}",
        lines=[text for text in (counts, found.incomplete, found.spread, found.next_step) if text],
        failures=Failures(
            columns=("tensor", "module", "status", "x noise", "detail"),
            numbers=frozenset({"x noise"}),
            rows=[(one.name, one.module or "", one.status.value, _multiple(one), one.detail) for one in wrong],
        ),
        annotations=[(f"{one.name}: {one.status.value}", one.detail or one.status.value) for one in wrong],
    )


def _tensor_case(model: str, verdict: TensorVerdict) -> Case:
    kind = "failure" if verdict.status in WRONG else ""
    if verdict.status in (TensorStatus.NOT_GIVEN, TensorStatus.NOT_KEPT):
        kind = "skipped"
    return Case(suite=model, name=verdict.name, kind=kind, message=f"{verdict.status.value}: {verdict.detail}")


def _setup_cases(found: Comparison) -> list[Case]:
    """What is compared before any number; a difference fails only where it makes all values wrong."""
    cases = []
    for one in found.setup:
        kind = "skipped" if one.same is None else ""
        if one.same is False and one.decisive:
            kind = "failure"
        cases.append(Case(suite="setup", name=one.aspect, kind=kind, message=one.detail))
    if found.incomplete:
        cases.append(Case(suite="setup", name="complete", kind="failure", message=found.incomplete))
    return cases


def _multiple(verdict: TensorVerdict) -> str:
    return "" if verdict.noise_multiple is None else f"{verdict.noise_multiple:.3g}"


# --- memory check ---


def budget_for_ci(source: str, checks: Sequence[tuple[str, Sequence[str]]]) -> CiResults:
    """One case for each limit, with the sentences that say how it is exceeded."""
    broken = [(name, "; ".join(said)) for name, said in checks if said]
    return CiResults(
        failed=bool(broken),
        program=source,
        cases=[
            Case(suite="memory", name=name, kind="failure" if said else "", message="; ".join(said))
            for name, said in checks
        ],
        subject=f"Memory budget of {source}",
        failures=Failures(columns=("limit", "detail"), rows=broken),
        annotations=broken,
    )
