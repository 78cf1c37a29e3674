"""What works on a backend: the module tree by status, and what to fix first."""

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from torchstone.check.known_findings import finding_kinds
from torchstone.check.summary import share, twin_in_words, verdict_sentence
from torchstone.numerics.profiles import rule_in_words
from torchstone.record import codec
from torchstone.record.check import (
    FAILED_STATUSES,
    CheckedModule,
    CheckResult,
    Finding,
    Occurrence,
    Standing,
    UnitResult,
)
from torchstone.record.trace import Trace
from torchstone.report.check_text import noise_words
from torchstone.report.section import (
    FOLD,
    Card,
    Column,
    ModuleColumn,
    ReportFolder,
    RollUp,
    SectionView,
    Shown,
    Table,
    Tone,
    TreeLayout,
    spread,
)
from torchstone.report.sections.modules import module_layout
from torchstone.report.view.drift import drift_chart, drift_table
from torchstone.units import many, show_seconds

NAME = "check"
FILE = "check.json"
_TREE = "check.tree"
_LONGEST_FILE = 40_000  # characters of a script or an IR that the page carries
_MOST_CARRIED = 2_000_000  # of all of them together

Word = Callable[[CheckedModule], str]


def build(folder: ReportFolder) -> SectionView:
    """The view of a check."""
    result = codec.load(folder.path / FILE, CheckResult)
    if not _is_of(result, folder.trace):
        words = f"{FILE} is of another model than the capture in this folder; run `torchstone check` again"
        return SectionView(name=NAME, title="Check", document={}, notes=(words,))
    drift = result.drift
    return SectionView(
        name=NAME,
        title="Check",
        document=_document(result),
        cards=_cards(result),
        charts=() if drift is None else (drift_chart(drift),),
        tables=(
            _findings_table(result),
            *_forms_table(result),
            *(() if drift is None else (drift_table(drift),)),
            *_suspicious_table(result),
            _ops_table(result),
            _tree_table(result, folder),
        ),
        module_columns=(_status_column(result, folder.trace),),
        notes=(*_notes(result), rule_in_words(result.profile, asked=bool(result.tolerance))),
        settings={
            "files": _files(result, folder.path),
            "forms": any(finding.ladder for finding in result.findings),
            "sentence": verdict_sentence(result),
            "meaning": list(_explained(result)),
        },
        script="check.js",
    )


def _document(result: CheckResult) -> dict[str, object]:
    whole = msgspec.to_builtins(result)
    wanted = ("model", "backend", "backend_version", "form", "tolerance", "findings", "totals", "drift")
    modules = ("id", "class_name", "module_path", "status", "outcome", "reason", "numbers", "occurrences")
    kept = [{name: module[name] for name in modules} for module in whole["modules"]]
    return {name: whole[name] for name in wanted} | {"counts": result.counts, "modules": kept}


def _cards(result: CheckResult) -> tuple[Card, ...]:
    counts = ", ".join(f"{count} {status}" for status, count in sorted(result.counts.items()))
    by = "FLOPs" if result.totals.flops else "op calls"
    works = share(result, ())
    backend = _backend_card(result)
    if result.suspicious:
        counts += f"; {len(result.suspicious)} suspicious"
    if result.passed:
        tone = Tone.WARNING if result.suspicious else Tone.GOOD
        verdict = Card(title="Check", value="passed", detail=counts, tone=tone)
        return verdict, backend
    verdict = Card(title=f"Passing, by {by}", value=f"{works:.1%}", detail=counts, tone=Tone.BAD)
    first = result.findings[0] if result.findings else None
    to_fix = Card(
        title="Findings",
        value=str(len(result.findings)),
        detail=f"first: {first.subject}" if first is not None else "no single op is at fault",
        tone=Tone.BAD,
    )
    return verdict, to_fix, backend


def _backend_card(result: CheckResult) -> Card:
    """A backend from a file by the name of its class: a path is too long for the head of a card."""
    place, _, name = result.backend.replace("::", ":").rpartition(":")
    home = Path(place).name if place else ""
    detail = "; ".join(part for part in (home, result.backend_version or "version not known") if part)
    return Card(title="Backend", value=name, detail=detail)


def _findings_table(result: CheckResult) -> Table:
    found = result.findings
    return Table(
        name="check.findings",
        title="Failing ops, largest impact first",
        empty="No failures.",
        columns=(
            Column(name="kind", title="Kind", values=[_kind(one.code) for one in found], shown=Shown.TEXT),
            Column(name="what", title="Op or module", values=[one.subject for one in found], shown=Shown.TEXT),
            Column(name="outcome", title="Outcome", values=[one.outcome.value for one in found], shown=Shown.STATUS),
            Column(name="proven", title="Proven", values=[_proven(one) for one in found], shown=Shown.TEXT),
            Column(name="why", title="Reason", values=[one.reason for one in found], shown=Shown.TEXT),
            Column(name="calls", title="Calls", values=[one.calls for one in found], shown=Shown.COUNT),
            Column(name="flops", title="FLOPs", values=[one.flops for one in found], shown=Shown.COUNT),
            Column(name="arguments", title="Arguments", values=[one.arguments for one in found], shown=Shown.TEXT),
            Column(
                name="module", title="Module", values=[one.module_path or "the model itself" for one in found],
                shown=Shown.TEXT,
            ),
            Column(name="source", title="Source line", values=[one.source for one in found], shown=Shown.TEXT),
            Column(name="repro", title="Repro script", values=[_repro(one) for one in found], shown=Shown.TEXT),
            Column(name="ran", title="Result", values=[_origin(one) for one in found], shown=Shown.TEXT),
            Column(name="looks", title="Looks like", values=[one.looks_like for one in found], shown=Shown.TEXT),
        ),
    )  # fmt: skip


def _forms_table(result: CheckResult) -> tuple[Table, ...]:
    """The forms in which each failure was tried, and the change with which it passes."""
    rows: list[tuple[str, str, str, str, str]] = []
    for number, one in enumerate(result.findings, start=1):
        name = f"{number}. {one.subject}"
        rows += [
            (name, rung.form, rung.outcome or "not run", _in_repros(rung.file), rung.reason) for rung in one.ladder
        ]
        if one.twin is not None:
            still = f"still fails {', '.join(one.twin.fails_with)}" if one.twin.change and one.twin.fails_with else ""
            outcome = "passed" if one.twin.change else "not run" if one.twin.why else one.outcome.value
            words = still if one.twin.change else twin_in_words(one)
            rows.append((name, one.twin.change or "any change", outcome, _in_repros(one.twin.file), words))
    if not rows:
        return ()
    titles = (
        ("what", "Finding", Shown.TEXT),
        ("form", "Form or change", Shown.TEXT),
        ("outcome", "Outcome", Shown.STATUS),
        ("file", "Script in repros/", Shown.TEXT),
        ("remark", "Remark", Shown.TEXT),
    )
    columns = tuple(
        Column(name=name, title=title, values=[row[place] for row in rows], shown=shown)
        for place, (name, title, shown) in enumerate(titles)
    )
    return (Table(name="check.forms", title="Each failure in other forms, and what makes it pass", columns=columns),)


def _in_repros(file: str) -> str:
    return file.removeprefix("repros/")


def _suspicious_table(result: CheckResult) -> tuple[Table, ...]:
    found = result.suspicious
    if not found:
        return ()
    return (
        Table(
            name="check.suspicious",
            title="Suspicious modules: noise explains their error only in part",
            columns=(
                Column(
                    name="module", title="Module", values=[one.module_path or "the model itself" for one in found],
                    shown=Shown.TEXT,
                ),
                Column(
                    name="noise", title="Times the noise",
                    values=[None if one.numbers is None else one.numbers.noise_multiple for one in found],
                    shown=Shown.NUMBER,
                ),
                Column(
                    name="detail", title="Details", values=[noise_words(one.numbers) for one in found],
                    shown=Shown.TEXT,
                ),
            ),
        ),
    )  # fmt: skip


def _ops_table(result: CheckResult) -> Table:
    ops = result.ops
    return Table(
        name="check.ops",
        title="Ops tested in isolation" if ops else "",
        columns=(
            Column(name="op", title="Operator", values=[one.op for one in ops], shown=Shown.OP),
            Column(
                name="outcome", title="Outcome", values=[one.result.outcome.value for one in ops], shown=Shown.STATUS
            ),
            Column(name="why", title="Reason", values=[one.result.reason for one in ops], shown=Shown.TEXT),
            Column(
                name="noise",
                title="Times the noise",
                values=[None if one.result.numbers is None else one.result.numbers.noise_multiple for one in ops],
                shown=Shown.NUMBER,
            ),
            Column(name="calls", title="Calls", values=[one.calls for one in ops], shown=Shown.COUNT),
            Column(name="arguments", title="Arguments", values=[one.arguments for one in ops], shown=Shown.TEXT),
            Column(name="ran", title="Result", values=[_origin(one.result) for one in ops], shown=Shown.TEXT),
        ),
    )


def _tree_table(result: CheckResult, folder: ReportFolder) -> Table:
    trace, layout = folder.trace, module_layout(folder)
    of_module = _by_number(result, trace)
    first = [
        members[0] if number == FOLD else number for number, members in zip(layout.modules, layout.members, strict=True)
    ]
    modules = trace.modules
    return Table(
        name=_TREE,
        columns=(
            Column(name="parent", values=layout.parents),
            Column(name="module", values=layout.modules),
            Column(name="members", values=[len(members) for members in layout.members]),
            Column(name="name", values=[_name(trace, number, layout, row) for row, number in enumerate(first)]),
            Column(name="class", values=[modules[number].class_name.rpartition(".")[2] for number in first]),
            Column(name="class_path", values=[modules[number].class_name for number in first]),
            *(spread(column, layout) for column in _tree_columns(of_module)),
        ),
    )


def _tree_columns(of_module: Sequence[CheckedModule]) -> list[ModuleColumn]:
    texts: dict[str, Word] = {
        "outcome": lambda module: module.outcome or "not run",
        "children": lambda module: module.children_status or "",
        "reason": lambda module: module.reason,
        "shapes": _shapes,
        "numbers": _numbers,
        "error": _error,
        "irs": lambda module: "\n".join(module.irs),
        "ir_error": lambda module: module.ir_error,
        "findings": lambda module: "\n".join(module.findings),
        "took": lambda module: show_seconds(module.elapsed_s) if module.outcome else "",
        "ran": _origin_of_module,
        "id": lambda module: module.id,
        "notes": lambda module: "\n".join(module.notes),
    }
    return [
        ModuleColumn(
            name="status", title="Status", values=[str(module.status) for module in of_module], shown=Shown.STATUS,
            roll_up=RollUp.WORST,
        ),
        ModuleColumn(
            name="noise", title="Times the noise",
            values=[None if one.numbers is None else one.numbers.noise_multiple for one in of_module],
            shown=Shown.NUMBER,
        ),
        ModuleColumn(
            name="pcc", title="PCC", values=[None if one.numbers is None else one.numbers.pcc for one in of_module],
            shown=Shown.NUMBER,
        ),
        *(
            ModuleColumn(
                name=name, title="", values=[word(module) for module in of_module],
                shown=Shown.STATUS if name == "outcome" else Shown.TEXT,
                roll_up=RollUp.WORST if name == "outcome" else RollUp.SAME,
            )
            for name, word in texts.items()
        ),
    ]  # fmt: skip


def _status_column(result: CheckResult, trace: Trace) -> ModuleColumn:
    """The status in the tree of all modules."""
    values = module_statuses(result, trace)
    return ModuleColumn(name="check", title="Check", values=values, shown=Shown.STATUS, roll_up=RollUp.WORST)


def module_statuses(result: CheckResult, trace: Trace) -> list[str]:
    """The status of each module of the trace, each occurrence with its own; empty for a check of another model."""
    return [str(module.status) for module in _by_number(result, trace)] if _is_of(result, trace) else []


def _is_of(result: CheckResult, trace: Trace) -> bool:
    return {path for one in result.modules for path in one.occurrences} == {one.path for one in trace.modules}


def _by_number(result: CheckResult, trace: Trace) -> list[CheckedModule]:
    """The unique module that each module of the trace is an occurrence of."""
    of_path = {path: module for module in result.modules for path in module.occurrences}
    of_path |= {one.path: _occurrence(module, one) for module in result.modules for one in module.occurrence_results}
    return [of_path[module.path] for module in trace.modules]


def _occurrence(module: CheckedModule, one: Occurrence) -> CheckedModule:
    """A module as one of its occurrences stands: what ran shows its own result."""
    if one.standing is Standing.ASSUMED:
        note = f"{module.occurrences[0]} stood for it: identical, with other values"
        return msgspec.structs.replace(module, status=one.status, notes=(*module.notes, note))
    return msgspec.structs.replace(module, status=one.status, outcome=one.outcome, reason=one.reason)


def _name(trace: Trace, number: int, layout: TreeLayout, row: int) -> str:
    names = [trace.modules[member].path.rpartition(".")[2] for member in layout.members[row]]
    return f"{names[0]} … {names[-1]}" if names else trace.modules[number].path.rpartition(".")[2]


def _shapes(module: CheckedModule) -> str:
    calls = [f"{call.calls} x ({', '.join(call.inputs)})" for call in module.checked_calls]
    return "\n".join(calls)


def _numbers(module: CheckedModule) -> str:
    if module.numbers is None:
        return ""
    known = msgspec.to_builtins(module.numbers)
    shown = [f"{name} {value:.6g}" if isinstance(value, float) else f"{name} {value}" for name, value in known.items()
             if value not in (None, "")]  # fmt: skip
    return ", ".join(shown)


def _error(module: CheckedModule) -> str:
    proof = module.evidence
    if proof is None:
        return ""
    ended = f"ended by {proof.signal}" if proof.signal else ""
    if not ended and proof.exit_code:
        ended = f"ended with exit code {proof.exit_code}"
    return "\n".join(part for part in (ended, proof.traceback or proof.error, proof.last_output) if part)


def _proven(finding: Finding) -> str:
    if finding.proven:
        return f"yes: {'; '.join(finding.proof)}"
    return f"no: {finding.note}" if finding.note else "no"


def _origin(result: UnitResult | Finding) -> str:
    """When it ran."""
    return f"reused from {result.ran_at or 'an unknown time'}" if result.reused else "run now"


def _origin_of_module(module: CheckedModule) -> str:
    results = [call.result for call in module.checked_calls if call.result is not None]
    return "\n".join(dict.fromkeys(map(_origin, results)))


def _kind(code: str) -> str:
    """The id of a kind of finding with its title."""
    known = finding_kinds().get(code)
    return f"{code}: {known.title}" if known is not None else code


def _explained(result: CheckResult) -> list[str]:
    """A note for each kind of finding on the page: what it means and what to try."""
    drift = [] if result.drift is None else [result.drift.code]
    kinds = finding_kinds()
    codes = dict.fromkeys(code for code in (*(one.code for one in result.findings), *drift) if code in kinds)
    return [f"{code}: {kinds[code].means} Try: {' '.join(kinds[code].try_)}" for code in codes]


def _repro(finding: Finding) -> str:
    if not finding.repro:
        return "none"
    return finding.repro if finding.confirmed else f"{finding.repro} (not confirmed)"


def _files(result: CheckResult, folder: Path) -> dict[str, str]:
    """Scripts and IR as texts, as far as they fit: the page must be whole without its folder."""
    wanted = [file for finding in result.findings for file in finding.files]
    failed_first = sorted(result.modules, key=lambda module: module.status not in FAILED_STATUSES)
    wanted += [file for module in failed_first for file in module.irs]
    files: dict[str, str] = {}
    left = _MOST_CARRIED
    for name in dict.fromkeys(wanted):
        path = folder / name
        if left <= 0 or not path.is_file() or not path.resolve().is_relative_to(folder.resolve()):
            continue  # a link may lead elsewhere, and the page may be sent to others
        text = path.read_text(encoding="utf-8", errors="replace")
        cut = len(text) > _LONGEST_FILE
        files[name] = f"{text[:_LONGEST_FILE]}\n... truncated; the whole file is {name}" if cut else text
        left -= len(files[name])
    return files


def _notes(result: CheckResult) -> tuple[str, ...]:
    notes: list[str] = []  # assumptions about the model are listed by the overview
    if result.form == "program":
        notes.append("The recorded ops ran on the backend, not the model's own code")
    unknown = result.totals.unknown_calls
    if unknown:
        notes.append(f"{many(unknown, 'op call is', 'op calls are')} in modules that fail although no single op fails")
    notes += [
        f"{finding.module_path or 'the model itself'}: {finding.note}" for finding in result.findings if finding.note
    ]
    return tuple(dict.fromkeys(notes))
