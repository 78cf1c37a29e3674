"""Terminal output of `torchstone check`: the verdict, findings, failing modules; several backends side by side."""

from torchstone.check.known_findings import finding_kinds
from torchstone.check.summary import forms_in_words, twin_in_words, verdict_sentence
from torchstone.numerics.profiles import rule_in_words
from torchstone.record.check import FAILED_STATUSES, CheckComparison, CheckedModule, CheckResult, Numbers
from torchstone.report.text import Paint, aligned
from torchstone.units import many, show_count, show_seconds

# --- One check ---

_MOST_ROWS = 30
_LONGEST_REASON = 70


def check_text(result: CheckResult, paint: Paint, *, with_repros: bool) -> str:
    """What is printed after a check."""
    version = result.backend_version or "unknown version"
    parts = [
        paint(f"{result.model} on {result.backend} ({version})", "bold"),
        paint(verdict_sentence(result), "green" if result.passed else "red"),
        _drift(result, paint),
        _findings(result, paint, with_repros=with_repros),
        _forms(result, with_repros=with_repros),
        _kinds(result, paint),
        _modules(result, paint),
        _suspicious(result, paint),
        _footer(result, paint),
    ]
    return "\n\n".join(part for part in parts if part)


def _findings(result: CheckResult, paint: Paint, *, with_repros: bool) -> str:
    if not result.findings:
        return ""
    head = ["#", "op or module", "outcome", "proven", "reason", "calls", "FLOPs", *(["repro"] if with_repros else [])]
    dated = result.reused_tasks > 0
    rows = [[*head, "ran"] if dated else head]
    for number, finding in enumerate(result.findings[:_MOST_ROWS], start=1):
        flops = "unknown" if finding.flops is None else show_count(finding.flops)
        row = [
            str(number),
            _short(finding.subject),
            finding.outcome.value,
            "yes" if finding.proven else "no",
            _short(finding.reason if finding.proven else finding.note or finding.reason),
            str(finding.calls),
            flops,
        ]
        row += [finding.repro or "none"] if with_repros else []
        rows.append([*row, _ran(reused=finding.reused, at=finding.ran_at)] if dated else row)
    more = len(result.findings) - _MOST_ROWS
    table = aligned(rows, right=(5, 6), paint=paint)
    return table + (f"\nand {more} more, in check.json" if more > 0 else "")


def _forms(result: CheckResult, *, with_repros: bool) -> str:
    """The other forms of each failure, and the smallest change with which it passes."""
    lines = []
    for number, one in enumerate(result.findings[:_MOST_ROWS] if with_repros else (), start=1):
        lines += [f"{number} {text}" for text in (forms_in_words(one), twin_in_words(one)) if text]
    return "\n".join(lines)


def _drift(result: CheckResult, paint: Paint) -> str:
    """The verdict on drift, and a line for each layer: the largest contributions where there are many."""
    found = result.drift
    if found is None:
        return ""
    rows = [["layer", "class", "adds", "x noise", "inherits", "amplifies", "total", "x noise", "share"]]
    shown = found.layers
    if len(shown) > _MOST_ROWS:
        largest = sorted(found.layers, key=lambda one: -(one.share or 0.0))[:_MOST_ROWS]
        shown = tuple(one for one in found.layers if one in largest)
    for one in shown:
        rows.append([
            one.path, one.class_name, _small(one.added), _small(one.added_noise_multiple), _small(one.inherited),
            "" if one.amplification is None else f"{one.amplification:.2g}x", _small(one.total),
            _small(one.total_noise_multiple), "" if one.share is None else f"{one.share:.0%}",
        ])  # fmt: skip
    more = len(found.layers) - len(shown)
    table = aligned(rows, right=(2, 3, 4, 5, 6, 7, 8), paint=paint)
    code = f" ({found.code})" if found.code else ""
    return f"drift{code}: {found.verdict}\n{table}" + (
        f"\nand {many(more, 'more layer')}, in check.json" if more else ""
    )


def _kinds(result: CheckResult, paint: Paint) -> str:
    """The ids of the findings with their numbers, what known errors look like, and where the ids are explained."""
    shown = result.findings[:_MOST_ROWS]
    numbers: dict[str, list[str]] = {}
    for number, one in enumerate(shown, start=1):
        numbers.setdefault(one.code, []).append(str(number))
    lines = [f"{', '.join(found)}: {code}, {finding_kinds()[code].title}" for code, found in numbers.items() if code]
    lines += [f"{number} looks like {one.looks_like}" for number, one in enumerate(shown, start=1) if one.looks_like]
    codes = sorted(code for code in numbers if code)
    if codes:
        lines.append(paint(f"what it means and what to try: torchstone check explain {codes[0]}", "dim"))
    return "\n".join(lines)


def _small(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2g}"


def _modules(result: CheckResult, paint: Paint) -> str:
    failed = [module for module in result.modules if module.status in FAILED_STATUSES]
    if not failed:
        return ""
    dated = ["ran"] if result.reused_tasks else []
    rows = [["failing module", "class", "count", "status", "outcome", *dated]]
    for module in failed[:_MOST_ROWS]:
        name = first_failing(module) or "(the model)"
        kind = module.class_name.rpartition(".")[2]
        failing = [one for one in module.occurrence_results if one.status in FAILED_STATUSES]
        row = [name, kind, str(len(failing or module.occurrences)), str(module.status), str(module.outcome)]
        rows.append([*row, _module_ran(module)] if dated else row)
    more = len(failed) - _MOST_ROWS
    return aligned(rows, right=(2,), paint=paint) + (f"\nand {more} more, in check.json" if more > 0 else "")


def _suspicious(result: CheckResult, paint: Paint) -> str:
    found = result.suspicious
    if not found:
        return ""
    rows = [["suspicious module", "class", "times the noise", "PCC", "details"]]
    for module in found[:_MOST_ROWS]:
        numbers = module.numbers
        times = "unknown" if numbers is None or numbers.noise_multiple is None else f"{numbers.noise_multiple:.3g}"
        pcc = "none" if numbers is None or numbers.pcc is None else f"{numbers.pcc:.6f}"
        name, kind = module.module_path or "(the model)", module.class_name.rpartition(".")[2]
        rows.append([name, kind, times, pcc, _short(noise_words(numbers))])
    more = len(found) - _MOST_ROWS
    return aligned(rows, right=(2, 3), paint=paint) + (f"\nand {more} more, in check.json" if more > 0 else "")


def noise_words(numbers: Numbers | None) -> str:
    """The error of an output and what it was compared with, in words."""
    if numbers is None or numbers.noise_multiple is None:
        return ""
    size = "" if numbers.relative_error is None else f"relative error {numbers.relative_error:.2g}, "
    where = f" in {numbers.output}" if numbers.output else ""
    by = f"by its {numbers.noise_measure}, noise {numbers.noise_basis}"
    return f"{size}{numbers.noise_multiple:.3g} times what {numbers.noise_format} explains{where} ({by})"


def first_failing(module: CheckedModule) -> str:
    """The path of the first occurrence that fails."""
    failing = [one.path for one in module.occurrence_results if one.status in FAILED_STATUSES]
    return failing[0] if failing else module.module_path


def _footer(result: CheckResult, paint: Paint) -> str:
    counts = ", ".join(f"{count} {status}" for status, count in sorted(result.counts.items()))
    took = show_seconds(result.elapsed_s)
    runs = many(result.tasks, "run")
    rule = rule_in_words(result.profile, asked=bool(result.tolerance))
    ran = f"{runs} on the backend, {took} in total; {_origins(result)}"
    return paint(f"unique modules: {counts}; {ran}\n{rule}", "dim")


def _origins(result: CheckResult) -> str:
    """Which of the results are new, and how old the others are."""
    if not result.reused_tasks:
        return "all run now"
    now = result.tasks - result.reused_tasks
    since = " to ".join(dict.fromkeys(map(_time, result.reused_from)))
    return f"{now or 'none'} run now, {result.reused_tasks} reused from {since}"


def _ran(*, reused: bool, at: str) -> str:
    return f"reused from {_time(at)}" if reused else "now"


def _module_ran(module: CheckedModule) -> str:
    results = [call.result for call in module.checked_calls if call.result is not None]
    old = [result for result in results if result.reused]
    return _ran(reused=True, at=min(result.ran_at for result in old)) if old else "now"


def _time(at: str) -> str:
    """2026-11-17T02:40:00Z as 2026-11-17 02:40 UTC."""
    return f"{at[:10]} {at[11:16]} UTC" if at else "an unknown time"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_REASON else f"{line[: _LONGEST_REASON - 3]}..."


# --- Several backends side by side ---

_MOST_MODULES = 60


def comparison_text(found: CheckComparison, paint: Paint, *, only_differences: bool) -> str:
    """A line for each unique module, a column for each check."""
    head = ["module", "class", *found.sides]
    shown = [module for module in found.modules if not only_differences or module.differs]
    rows = [
        [module.module_path or "(the model)", module.class_name.rpartition(".")[2], *map(_word, module.statuses)]
        for module in shown[:_MOST_MODULES]
    ]
    more = len(shown) - _MOST_MODULES
    parts = [
        aligned([head, *rows], paint=paint) if rows else "no module differs",
        f"and {more} more, in check_comparison.json" if more > 0 else "",
        *(_side(found, side) for side in range(len(found.sides))),
        *found.notes,
    ]
    return "\n\n".join(part for part in parts if part)


def _word(status: str | None) -> str:
    if status is None:
        return "absent"
    return f"✗ {status}" if status in FAILED_STATUSES else f"✓ {status}" if "success" in status else f"- {status}"


def _side(found: CheckComparison, side: int) -> str:
    share = f"{found.working_calls[side]:,} of {many(found.op_calls[side], 'op call passes', 'op calls pass')}"
    to_fix = ", ".join(dict.fromkeys(found.findings[side])) or "no failures"
    return f"{found.sides[side]}: {share}; {to_fix}"
