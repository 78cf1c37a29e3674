"""The text of a check: what to fix first and how much of the model runs then; and several backends side by side."""

from collections.abc import Sequence
from pathlib import Path

from torchstone.check.settings import Folder
from torchstone.errors import UnreadableFileError
from torchstone.record.check import (
    FAILED_STATUSES,
    CheckComparison,
    CheckedModule,
    CheckResult,
    ComparedModule,
    DriftKind,
    Finding,
)
from torchstone.record.codec import load
from torchstone.units import show_count

# --- summary.md ---


_MOST_NAMED = 3
_ENOUGH = 0.97
_MOST_MODULES = 200
_NO_SINGLE_OP = (DriftKind.UNIFORM, DriftKind.AMPLIFIER)  # drift that fixing one op does not end


def summary_text(result: CheckResult) -> str:
    """summary.md."""
    parts = [
        f"# {_plain(result.model)} on {_plain(result.backend)}",
        verdict_sentence(result),
        _counts(result),
        _drift(result),
        _fix_first(result),
        _failed_modules(result),
        _notes(result),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def verdict_sentence(result: CheckResult) -> str:
    """The one sentence to begin with: fix these 3 ops and 97 % of the model runs."""
    if result.passed:
        checked = [module for module in result.modules if module.status == "success"]
        if not checked:
            return "Nothing was judged."
        return f"All of it works: {result.totals.op_calls:,} op calls in {len(result.modules)} unique modules."
    if result.drift is not None and result.drift.kind in _NO_SINGLE_OP:
        return f"The error builds up over the layers: {result.drift.verdict}."
    with_ops = [finding for finding in result.findings if finding.ops]
    if not result.findings and result.unjudged:
        first = result.unjudged[0]
        where = first.module_path or "the model itself"
        return f"{len(result.unjudged)} modules could not be judged; {where}: {first.reason}."
    if not with_ops:
        return f"{_modules(len(result.findings))}, but no single failing op was found."
    before = share(result, ())
    enough = next((count for count in range(1, len(with_ops) + 1) if share(result, with_ops[:count]) >= _ENOUGH), 0)
    count = enough or len(with_ops)
    after = share(result, with_ops[:count])
    return (
        f"Fix {_what(with_ops[:count])} and {_percent(after)} of the model runs "
        f"({_percent(before)} does today, by {_measure(result)}): {_names(with_ops[:count])}."
        f"{_without_ops(len(result.findings) - len(with_ops))}"
    )


def _modules(count: int) -> str:
    return "1 module fails" if count == 1 else f"{count} modules fail"


def _without_ops(count: int) -> str:
    return f" {_modules(count)} as well, but no single failing op was found." if count else ""


def _what(findings: Sequence[Finding]) -> str:
    different = {finding.ops for finding in findings}
    if len(different) > 1:
        return f"these {len(different)} ops"
    what = "this group of ops" if len(findings[0].ops) > 1 else "this op"
    return what if len(findings) == 1 else f"{what} in {len(findings)} configurations"


def share(result: CheckResult, fixed: Sequence[Finding]) -> float:
    """How much of the model runs once these are fixed, by FLOPs where they are known, else by op calls."""
    totals = result.totals
    if totals.flops and totals.working_flops is not None:
        return min(1.0, (totals.working_flops + sum(finding.flops or 0 for finding in fixed)) / totals.flops)
    if not totals.op_calls:
        return 1.0
    return min(1.0, (totals.working_calls + sum(finding.calls for finding in fixed)) / totals.op_calls)


def _measure(result: CheckResult) -> str:
    return "FLOPs" if result.totals.flops else "op calls"


def _percent(part: float) -> str:
    """Rounded so that 100 % is only said when it is all."""
    return f"{min(part * 100, 99.9) if part < 1 else 100:.3g} %"


def _names(findings: Sequence[Finding]) -> str:
    names = list(dict.fromkeys(" + ".join(dict.fromkeys(finding.ops)) for finding in findings))
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _counts(result: CheckResult) -> str:
    counts = ", ".join(f"{count} {status}" for status, count in sorted(result.counts.items()))
    return f"Unique modules: {counts}. Backend: {result.backend} ({result.backend_version or 'version not known'})."


def _fix_first(result: CheckResult) -> str:
    if not result.findings:
        return ""
    rows = ["## Failing ops, largest impact first", "", "| # | what | outcome | why | op calls | FLOPs | in | repro |",
            "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for number, finding in enumerate(result.findings, start=1):
        flops = "unknown" if finding.flops is None else show_count(finding.flops)
        repro = f"[{finding.repro}]({finding.repro})" if finding.repro else "none"
        if finding.repro and not finding.confirmed:
            repro += " (not confirmed)"
        cells = (
            number,
            finding.subject,
            finding.outcome.value,
            finding.reason,
            finding.calls,
            flops,
            finding.module_path,
            repro,
        )
        rows.append("| " + " | ".join(_cell(str(cell)) for cell in cells) + " |")
    return "\n".join(rows)


def _drift(result: CheckResult) -> str:
    found = result.drift
    if found is None:
        return ""
    rows = ["## Drift", "", f"{found.verdict}.", "", "| layer | adds | x noise | amplifies | total | share |",
            "|---|---|---|---|---|---|"]  # fmt: skip
    for one in found.layers[:_MOST_MODULES]:
        numbers = (one.added, one.added_noise_multiple, one.amplification, one.total, one.share)
        cells = (one.path, *("unknown" if number is None else f"{number:.2g}" for number in numbers))
        rows.append("| " + " | ".join(_cell(str(cell)) for cell in cells) + " |")
    return "\n".join(rows)


def _failed_modules(result: CheckResult) -> str:
    failed = [module for module in result.modules if module.status in FAILED_STATUSES]
    if not failed:
        return ""
    rows = [
        "## Modules that fail",
        "",
        "| module | class | times | status | outcome | why |",
        "|---|---|---|---|---|---|",
    ]
    for module in failed[:_MOST_MODULES]:
        cells = (module.module_path or "(the model)", module.class_name.rpartition(".")[2], len(module.occurrences),
                 module.status, module.outcome, module.reason)  # fmt: skip
        rows.append("| " + " | ".join(_cell(str(cell)) for cell in cells) + " |")
    if len(failed) > _MOST_MODULES:
        rows.append(f"\nand {len(failed) - _MOST_MODULES} more, in check.json")
    return "\n".join(rows)


def _notes(result: CheckResult) -> str:
    lines = [f"- {_plain(note)}" for note in result.notes]
    if result.totals.unknown_calls:
        lines.append(f"- {result.totals.unknown_calls:,} op calls are in modules that fail without a known failing op")
    return "\n".join(["## Notes", "", *lines]) if lines else ""


def _cell(text: str) -> str:
    return _plain(text).replace("|", "\\|")[:300]


def _plain(text: str) -> str:
    """Nothing in a name may become markup."""
    return " ".join(text.replace("<", "&lt;").replace("`", "'").split())


# --- Comparison of several checks ---


def compare_folders(folders: Sequence[Path]) -> CheckComparison:
    """The checks that these folders hold, side by side."""
    return compare([_read(folder) for folder in folders], [str(folder) for folder in folders])


def compare(results: Sequence[CheckResult], folders: Sequence[str]) -> CheckComparison:
    """Modules are the same when their path and class are."""
    rows: dict[tuple[str, str], dict[int, CheckedModule]] = {}
    for side, result in enumerate(results):
        for module in result.modules:
            rows.setdefault((module.module_path, module.class_name), {})[side] = module
    sides = range(len(results))
    models = tuple(result.model for result in results)
    return CheckComparison(
        models=models,
        sides=tuple(_side(result) for result in results),
        folders=tuple(folders),
        passed=tuple(result.passed for result in results),
        working_calls=tuple(result.totals.working_calls for result in results),
        op_calls=tuple(result.totals.op_calls for result in results),
        findings=tuple(
            tuple(" + ".join(finding.ops) or f"code of {finding.module_path}" for finding in result.findings)
            for result in results
        ),
        modules=tuple(
            ComparedModule(
                module_path=path,
                class_name=class_name,
                statuses=tuple(found[side].status if side in found else None for side in sides),
                outcomes=tuple(found[side].outcome if side in found else None for side in sides),
            )
            for (path, class_name), found in rows.items()
        ),
        notes=() if len(set(models)) == 1 else (f"these are checks of different models: {', '.join(models)}",),
    )


def _side(result: CheckResult) -> str:
    return f"{result.backend} ({result.backend_version})" if result.backend_version else result.backend


def _read(path: Path) -> CheckResult:
    file = Folder(path=path).result
    if not file.is_file():
        msg = f"{path} has no finished check: {file.name} is missing; run `torchstone check MODEL --dir {path}` first"
        raise UnreadableFileError(msg)
    return load(file, CheckResult)
