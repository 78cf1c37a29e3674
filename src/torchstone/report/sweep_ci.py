"""A sweep run for continuous integration: JUnit XML, SARIF, a summary and annotations for GitHub."""

import json
import re
from collections.abc import Iterator
from urllib.parse import quote
from xml.sax.saxutils import escape, quoteattr

from torchstone.record.vector import FAILED, Status, SweepRun, VectorResult
from torchstone.report.sweep_text import short_id

MOST_ANNOTATIONS = 10  # GitHub shows ten of a step
_MOST_ROWS = 50
_NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MARKDOWN = str.maketrans({"|": "\\|", "\n": " ", "<": "&lt;", "`": "'"})


def junit_xml(run: SweepRun) -> str:
    """One test suite for each op or sweep module, one test case for each vector."""
    suites: dict[str, list[VectorResult]] = {}
    for result in run.results:
        suites.setdefault(result.module, []).append(result)
    lines = ['<?xml version="1.0" encoding="utf-8"?>', f"<testsuites name={_attribute(f'torchstone {run.backend}')}>"]
    for module in sorted(suites):
        group = suites[module]
        failures = sum(_kind(one) == "failure" for one in group)
        errors = sum(_kind(one) == "error" for one in group)
        skipped = sum(_kind(one) == "skipped" for one in group)
        lines.append(
            f'  <testsuite name={_attribute(module)} tests="{len(group)}" failures="{failures}" errors="{errors}" '
            f'skipped="{skipped}" time="{sum(one.elapsed_s for one in group):.3f}">'
        )
        lines += [f"    {line}" for one in group for line in _case(run, one)]
        lines.append("  </testsuite>")
    return "\n".join([*lines, "</testsuites>", ""])


def _kind(result: VectorResult) -> str:
    if result.status in FAILED and not result.quarantined:
        return "error" if result.status is Status.FAIL_CRASH_HANG else "failure"
    return "" if result.status is Status.PASS else "skipped"


def _case(run: SweepRun, result: VectorResult) -> Iterator[str]:
    name = f"{result.suite}[{result.id}]"
    classname = f"{run.backend}.{result.module}"
    opening = f'<testcase classname={_attribute(classname)} name={_attribute(name)} time="{result.elapsed_s:.3f}"'
    kind = _kind(result)
    if not kind:
        yield f"{opening}/>"
        return
    yield f"{opening}>"
    message = _attribute(f"{result.outcome.value}: {result.detail}" + _why_quarantined(result))
    text = escape(_xml_text(result.traceback or result.last_output))
    yield f"  <{kind} message={message}>{text}</{kind}>" if kind != "skipped" else f"  <skipped message={message}/>"
    yield "</testcase>"


def _why_quarantined(result: VectorResult) -> str:
    return f" (quarantined: {result.quarantined})" if result.quarantined else ""


def _attribute(text: str) -> str:
    return quoteattr(_xml_text(text))


def _xml_text(text: str) -> str:
    """Without characters that XML cannot hold."""
    return _NOT_XML.sub("\ufffd", text)


def sarif_json(run: SweepRun) -> str:
    """The failures as SARIF 2.1.0: a rule for each op, a result for each vector, at the file that holds the vector.

    Quarantined failures are suppressed results, so that code scanning shows them as dismissed.
    """
    failed = [one for one in run.results if one.status in FAILED]
    rules = [
        {"id": op, "shortDescription": {"text": f"{op} on {run.backend}"}} for op in sorted({one.op for one in failed})
    ]
    tool = {"driver": {"name": "torchstone sweep", "rules": rules}}
    document = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": tool, "results": [_sarif_result(run, one) for one in failed]}],
    }
    return json.dumps(document, indent=1)


def _sarif_result(run: SweepRun, result: VectorResult) -> dict[str, object]:
    found: dict[str, object] = {
        "ruleId": result.op,
        "level": "error",
        "message": {"text": f"{result.outcome.value} on {run.backend}: {result.detail or 'no detail'}"},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": f"vectors/{quote(result.module)}.json"},
                    "region": {"startLine": 1},
                },
                "logicalLocations": [{"name": result.id, "kind": "member"}],
            }
        ],
        "partialFingerprints": {"vector": f"{run.backend} {result.id}"},
    }
    if result.quarantined:
        found["suppressions"] = [{"kind": "external", "justification": result.quarantined}]
    return found


def github_summary(run: SweepRun) -> str:
    """Markdown for $GITHUB_STEP_SUMMARY: the counts, and the failures with the most calls."""
    failed = [one for one in run.results if one.status in FAILED and not one.quarantined]
    failed.sort(key=lambda one: (-one.calls, one.op, one.id))
    counts = ", ".join(f"{count:,} {status}" for status, count in run.counts.items())
    state = "" if run.finished else " (interrupted)"
    lines = [f"### Sweep on {_cell(run.backend)}: {'failed' if failed else 'passed'}{state}", "", counts, ""]
    held = sum(bool(one.quarantined) and one.status in FAILED for one in run.results)
    lines += [f"{held:,} failures are quarantined.", ""] if held else []
    lines += [f"> {_cell(note)}" for note in run.notes]
    if failed:
        lines += ["| op | vector | outcome | calls | detail |", "|---|---|---|---:|---|"]
        lines += [
            f"| {_cell(one.op)} | `{short_id(one.id)}` | {one.outcome.value} | {one.calls:,} | {_cell(one.detail)} |"
            for one in failed[:_MOST_ROWS]
        ]
        lines += ["", f"{len(failed) - _MOST_ROWS:,} more failures."] if len(failed) > _MOST_ROWS else []
    return "\n".join([*lines, ""])


def github_annotations(run: SweepRun) -> Iterator[str]:
    """Workflow commands, one for each op that fails: GitHub shows only the first ten of a step."""
    by_op: dict[str, list[VectorResult]] = {}
    for result in run.results:
        if result.status in FAILED and not result.quarantined:
            by_op.setdefault(result.op, []).append(result)
    ranked = sorted(by_op.values(), key=lambda group: (-sum(one.calls for one in group), group[0].op))
    for group in ranked[:MOST_ANNOTATIONS]:
        first = group[0]
        title = f"{first.op} on {run.backend}: {first.outcome.value}"
        more = f" (and {len(group) - 1} more vectors)" if len(group) > 1 else ""
        text = f"{short_id(first.id)} {first.detail}{more}"
        yield f"::error title={_command(title, in_property=True)}::{_command(text)}"


def _cell(text: str) -> str:
    return text.translate(_MARKDOWN)


def _command(text: str, *, in_property: bool = False) -> str:
    """Text as workflow commands escape it: no text of a run can become a command of its own."""
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return text.replace(":", "%3A").replace(",", "%2C") if in_property else text
