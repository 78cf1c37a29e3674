"""The text of a check: what to fix first and how much of the model runs then; and several backends side by side."""

from collections.abc import Sequence
from pathlib import Path

from torchstone.check.known_findings import explanation
from torchstone.check.settings import Folder
from torchstone.errors import InputError, UnreadableFileError
from torchstone.numerics.profiles import rule_in_words
from torchstone.record.check import (
    FAILED_STATUSES,
    CheckComparison,
    CheckedModule,
    CheckResult,
    ComparedModule,
    DriftKind,
    Finding,
    Outcome,
    Rung,
)
from torchstone.record.codec import load
from torchstone.units import many, show_count

# --- summary.md ---


_MOST_NAMED = 3
_MOST_MODULES = 200
_ENOUGH_SHARED = 0.5  # of the modules of the smaller model
_NO_SINGLE_OP = (DriftKind.UNIFORM, DriftKind.AMPLIFIER)  # drift that fixing one op does not end


def summary_text(result: CheckResult) -> str:
    """summary.md."""
    parts = [
        f"# {_plain(result.model)} on {_plain(result.backend)}",
        verdict_sentence(result),
        _counts(result),
        _drift(result),
        _fix_first(result),
        _how_proven(result),
        _forms_and_twins(result),
        _failed_modules(result),
        _suspicious_modules(result),
        _notes(result),
        rule_in_words(result.profile, asked=bool(result.tolerance)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def verdict_sentence(result: CheckResult) -> str:
    """The one sentence to begin with: fix these 3 ops and 97 % of the model runs."""
    if result.passed:
        checked = [module for module in result.modules if module.status == "success"]
        if not checked:
            return "Nothing was judged."
        doubt = f" {_count_suspicious(len(result.suspicious))}" if result.suspicious else ""
        return (
            f"All of it works: {many(result.totals.op_calls, 'op call')} in "
            f"{many(len(result.modules), 'unique module')}.{doubt}"
        )
    if not result.findings and result.unjudged:
        first = result.unjudged[0]
        where = first.module_path or "the model itself"
        return f"{many(len(result.unjudged), 'module')} could not be judged; {where}: {first.reason}."
    return f"{_passing_whole(result)}{_findings_sentence(result)}"


def _passing_whole(result: CheckResult) -> str:
    root = next((module for module in result.modules if not module.module_path), None)
    passes = root is not None and root.outcome == Outcome.PASSED
    return "The whole model passes, but its error is suspicious, and a part of it fails. " if passes else ""


def _findings_sentence(result: CheckResult) -> str:
    proven = proven_findings(result)
    if not proven and result.drift is not None and result.drift.kind in _NO_SINGLE_OP:
        return f"The error builds up over the layers: {result.drift.verdict}."
    if not proven:
        return f"{_modules(_failed_leaves(result))}, but no cause was proven."
    before, after = share(result, ()), 1.0 if result.fixed else share(result, proven)
    rest = len(result.findings) - len(proven)
    return (
        f"Fix {_what(proven)} and {_percent(after)} of the model runs "
        f"({_percent(before)} does today, by {_measure(result)}): {_names(proven)}."
        f"{_not_all(result)}{_not_proven(rest)}"
    )


def _count_suspicious(count: int) -> str:
    return f"{many(count, 'module is', 'modules are')} suspicious: noise explains the error only in part."


def proven_findings(result: CheckResult) -> list[Finding]:
    """The findings that the headline may name: fails alone, and what fails passes without it."""
    return [finding for finding in result.findings if finding.ops and finding.proven]


def _failed_leaves(result: CheckResult) -> int:
    """The modules that the findings are about; all that failed where there is no finding."""
    failed = sum(module.status in FAILED_STATUSES for module in result.modules)
    return len({finding.module_path for finding in result.findings}) or failed


def _not_all(result: CheckResult) -> str:
    return "" if result.fixed else " With this computed by eager the model still fails: something else is wrong, too."


def _not_proven(count: int) -> str:
    return f" {count} more {'finding is' if count == 1 else 'findings are'} not proven." if count else ""


def _modules(count: int) -> str:
    return many(count, "module fails", "modules fail")


def _what(findings: Sequence[Finding]) -> str:
    different = {finding.ops for finding in findings}
    if len(different) > 1:
        return f"these {len(different)} {'groups of ops' if any(len(ops) > 1 for ops in different) else 'ops'}"
    what = "this group of ops" if len(findings[0].ops) > 1 else "this op"
    count = len({text for finding in findings for text in finding.configurations})
    return f"{what} in {many(count, 'configuration')}" if count > 1 else what


def share(result: CheckResult, fixed: Sequence[Finding]) -> float:
    """How much of the model runs once these are fixed, by FLOPs where they are known, else by op calls."""
    totals = result.totals
    if totals.flops and totals.working_flops is not None:
        return min(1.0, (totals.working_flops + sum(finding.flops or 0 for finding in fixed)) / totals.flops)
    if not totals.op_calls:
        return 1.0
    return min(1.0, (totals.working_calls + sum(finding.op_calls for finding in fixed)) / totals.op_calls)


def _measure(result: CheckResult) -> str:
    return "FLOPs" if result.totals.flops else "op calls"


def _percent(part: float) -> str:
    """Rounded so that 100 % is only said when it is all."""
    return f"{min(part * 100, 99.9) if part < 1 else 100:.3g} %"


def _names(findings: Sequence[Finding]) -> str:
    names = list(dict.fromkeys(" + ".join(finding.ops) for finding in findings))
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _counts(result: CheckResult) -> str:
    counts = ", ".join(f"{count} {status}" for status, count in sorted(result.counts.items()))
    return f"Unique modules: {counts}. Backend: {result.backend} ({result.backend_version or 'version not known'})."


def _fix_first(result: CheckResult) -> str:
    if not result.findings:
        return ""
    rows = ["## Failing ops, largest impact first", "",
            "| # | what | proven | outcome | why | calls | FLOPs | in | repro |",
            "|---|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for number, finding in enumerate(result.findings, start=1):
        flops = "unknown" if finding.flops is None else show_count(finding.flops)
        repro = f"[{finding.repro}]({finding.repro})" if finding.repro else "none"
        if finding.repro and not finding.confirmed:
            repro += " (not confirmed)"
        cells = (
            number,
            finding.subject,
            "yes" if finding.proven else f"no: {finding.note}" if finding.note else "no",
            finding.outcome.value,
            finding.reason,
            finding.calls,
            flops,
            finding.module_path,
            repro,
        )
        rows.append("| " + " | ".join(_cell(str(cell)) for cell in cells) + " |")
    return "\n".join(rows)


def _how_proven(result: CheckResult) -> str:
    lines = [
        f"- {number}. {_plain(finding.subject)}: {_plain('; '.join(finding.proof))}"
        for number, finding in enumerate(result.findings, start=1)
        if finding.proof
    ]
    return "\n".join(["## How this was proven", "", *lines]) if lines else ""


def _forms_and_twins(result: CheckResult) -> str:
    lines = [
        f"- {number}. {_plain(finding.subject)}: {_plain('; '.join(words))}"
        for number, finding in enumerate(result.findings, start=1)
        if (words := [text for text in (forms_in_words(finding), twin_in_words(finding)) if text])
    ]
    return "\n".join(["## In other forms, and what makes it pass", "", *lines]) if lines else ""


def forms_in_words(finding: Finding) -> str:
    """The forms beside torch in which a failure was tried, with their scripts; "" where there are none."""
    return ", ".join(_form_in_words(rung) for rung in finding.ladder[1:])


def finding_text(folder: Path, name: str) -> str:
    """One finding of the check in a folder: how it was proven, its scripts, and what its kind means."""
    finding = find_finding(read_result(folder), name)
    lines = [f"# {finding.subject}: {finding.outcome.value}", finding.reason]
    lines += ["; ".join(finding.proof), finding.note, finding.looks_like and f"It looks like {finding.looks_like}."]
    lines += [finding.repro and f"Script: {folder / finding.repro}", forms_in_words(finding), twin_in_words(finding)]
    still = finding.twin.fails_with if finding.twin is not None and finding.twin.change else ()
    lines += [f"It still fails {', '.join(still)}." if still else ""]
    return "\n\n".join([*filter(None, lines), explanation(finding.code) if finding.code else ""])


def find_finding(result: CheckResult, name: str) -> Finding:
    """A finding by its id (finding_001) or number."""
    wanted = f"finding_{int(name):03}" if name.isdecimal() and len(name) < 10 else name  # noqa: PLR2004 - not a number of a finding
    found = next((one for one in result.findings if one.id == wanted), None)
    if found is None:
        known = ", ".join(one.id for one in result.findings) or "none"
        msg = f"there is no finding {name!r} in this check; it has {known}"
        raise InputError(msg)
    return found


def _form_in_words(rung: Rung) -> str:
    if rung.file:
        more = f"; {rung.reason}" if rung.reason else ""
        return f"{rung.outcome} as {rung.form} ({rung.file}{more})"
    return f"passes as {rung.form}" if rung.outcome else f"no {rung.form}: {rung.reason}"


def twin_in_words(finding: Finding) -> str:
    """The smallest change with which a script passes; "" where none was looked for."""
    twin = finding.twin
    if twin is None:
        return ""
    if twin.why:
        return f"what makes it pass is unknown: {twin.why}"
    if twin.change:
        return f"passes {twin.change} ({twin.file})"
    if not twin.fails_with:
        return "no change was found that could be tried"
    return f"none of {len(twin.fails_with)} changes that were tried makes it pass: {', '.join(twin.fails_with)}"


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


def _suspicious_modules(result: CheckResult) -> str:
    if not result.suspicious:
        return ""
    rows = ["## Suspicious modules", "", "| module | class | times the noise | note |", "|---|---|---:|---|"]
    for module in result.suspicious[:_MOST_MODULES]:
        times = "unknown" if module.numbers is None else f"{module.numbers.noise_multiple or 0:.3g}"
        cells = (module.module_path or "(the model)", module.class_name.rpartition(".")[2], times, module.notes)
        rows.append("| " + " | ".join(_cell("; ".join(one) if isinstance(one, tuple) else one) for one in cells) + " |")
    return "\n".join(rows)


def _notes(result: CheckResult) -> str:
    lines = [f"- {_plain(note)}" for note in result.notes]
    if result.totals.unknown_calls:
        lines.append(
            f"- {many(result.totals.unknown_calls, 'op call is', 'op calls are')} in modules "
            f"that fail without a known failing op"
        )
    return "\n".join(["## Notes", "", *lines]) if lines else ""


def _cell(text: str) -> str:
    return _plain(text).replace("|", "\\|")[:300]


def _plain(text: str) -> str:
    """Nothing in a name may become markup."""
    return " ".join(text.replace("<", "&lt;").replace("`", "'").split())


# --- Comparison of several checks ---


def compare_folders(folders: Sequence[Path]) -> CheckComparison:
    """The checks that these folders hold, side by side."""
    return compare([read_result(folder) for folder in folders], [str(folder) for folder in folders])


def compare(results: Sequence[CheckResult], folders: Sequence[str]) -> CheckComparison:
    """Modules are the same when their path and class are."""
    rows: dict[tuple[str, str], dict[int, CheckedModule]] = {}
    for side, result in enumerate(results):
        for module in result.modules:
            rows.setdefault((module.module_path, module.class_name), {})[side] = module
    sides = range(len(results))
    models = tuple(result.model for result in results)
    _refuse_unrelated(results, folders)
    return CheckComparison(
        models=models,
        sides=tuple(_side(result, folder) for result, folder in zip(results, _short_names(folders), strict=True)),
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


def _refuse_unrelated(results: Sequence[CheckResult], folders: Sequence[str]) -> None:
    """Refuse checks of models that have little in common: a table of them would say nothing."""
    first = _named_modules(results[0])
    for result, folder in zip(results[1:], folders[1:], strict=True):
        other = _named_modules(result)
        shared = len(first & other)
        if result.model != results[0].model and shared < _ENOUGH_SHARED * min(len(first), len(other)):
            msg = (
                f"{folders[0]} is a check of {results[0].model} and {folder} one of {result.model}, which share "
                f"{shared} of {many(len(first | other), 'module')}; compare checks of one model"
            )
            raise InputError(msg)


def _named_modules(result: CheckResult) -> set[tuple[str, str]]:
    """All modules by path and class."""
    return {(path, module.class_name) for module in result.modules for path in module.occurrences}


def _short_names(folders: Sequence[str]) -> list[str]:
    """The names of folders, as much of their paths as tells them apart."""
    parts = [Path(folder).resolve().parts for folder in folders]
    length = 1
    while length < max(map(len, parts)) and len({part[-length:] for part in parts}) < len(set(parts)):
        length += 1
    return [str(Path(*part[-length:])) for part in parts]


def _side(result: CheckResult, folder: str) -> str:
    options = ", ".join(f"{name}={value}" for name, value in sorted(result.backend_options.items()))
    about = "; ".join(part for part in (result.backend_version, options) if part)
    return f"{folder}: {result.backend} ({about})" if about else f"{folder}: {result.backend}"


def read_result(path: Path) -> CheckResult:
    """The finished check in a folder."""
    file = Folder(path=path).result
    if not file.is_file():
        msg = f"{path} has no finished check: {file.name} is missing; run `torchstone check MODEL --dir {path}` first"
        raise UnreadableFileError(msg)
    return load(file, CheckResult)
