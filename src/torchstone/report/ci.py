"""Results for continuous integration: JUnit XML, and a summary and annotations for GitHub Actions."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

MOST_ANNOTATIONS = 10  # GitHub shows ten of a step
_MOST_ROWS = 50
_NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MARKDOWN = str.maketrans({"|": "\\|", "\n": " ", "<": "&lt;", "`": "'"})
_KINDS = ("failure", "error", "skipped")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One test case; `kind` is failure, error or skipped, and "" for one that passed."""

    suite: str
    name: str
    kind: str = ""
    message: str = ""
    text: str = ""  # a traceback, or the last output
    elapsed_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """The table of failures in a summary: its columns, those with numbers, and the rows, the most important first."""

    columns: tuple[str, ...]
    numbers: frozenset[str] = frozenset()
    rows: Sequence[tuple[str, ...]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CiResults:
    """What a command found, as test cases, as a summary, and as annotations of a title and a text each.

    `failed` is what the exit code says. Where no case failed all the same (nothing could be judged, --strict, a run
    that did not finish), one more case does: a dashboard must not show green for a job that is red.
    """

    failed: bool
    program: str  # what was tested, such as a backend; the class name of a test case begins with it
    cases: Sequence[Case]
    subject: str  # what the summary is about, such as "Check of net on inductor"
    lines: Sequence[str] = ()  # below the heading
    failures: Failures
    annotations: Sequence[tuple[str, str]] = ()

    @property
    def heading(self) -> str:
        """The subject, and how it ended."""
        return f"{self.subject}: {'failed' if self.failed else 'passed'}"


def _all_cases(results: CiResults) -> list[Case]:
    if not results.failed or any(case.kind in ("failure", "error") for case in results.cases):
        return list(results.cases)
    why = "; ".join([results.heading, *results.lines])
    return [*results.cases, Case(suite="torchstone", name="exit code", kind="failure", message=why)]


def junit_xml(results: CiResults) -> str:
    """One test suite for each suite of the cases, in their order."""
    suites: dict[str, list[Case]] = {}
    for case in _all_cases(results):
        suites.setdefault(case.suite, []).append(case)
    name = _attribute(f"torchstone {results.program}")
    lines = ['<?xml version="1.0" encoding="utf-8"?>', f"<testsuites name={name}>"]
    for suite, group in suites.items():
        failures, errors, skipped = (sum(case.kind == kind for case in group) for kind in _KINDS)
        lines.append(
            f'  <testsuite name={_attribute(suite)} tests="{len(group)}" failures="{failures}" errors="{errors}" '
            f'skipped="{skipped}" time="{sum(case.elapsed_s for case in group):.3f}">'
        )
        lines += [f"    {line}" for case in group for line in _case(results.program, case)]
        lines.append("  </testsuite>")
    return "\n".join([*lines, "</testsuites>", ""])


def _case(program: str, case: Case) -> Iterator[str]:
    classname = _attribute(f"{program}.{case.suite}")
    opening = f'<testcase classname={classname} name={_attribute(case.name)} time="{case.elapsed_s:.3f}"'
    if not case.kind:
        yield f"{opening}/>"
        return
    yield f"{opening}>"
    message = _attribute(case.message)
    if case.kind == "skipped":
        yield f"  <skipped message={message}/>"
    else:
        yield f"  <{case.kind} message={message}>{escape(_xml_text(case.text))}</{case.kind}>"
    yield "</testcase>"


def _attribute(text: str) -> str:
    return quoteattr(_xml_text(text))


def _xml_text(text: str) -> str:
    """Without characters that XML cannot hold."""
    return _NOT_XML.sub("\ufffd", text)


def github_summary(results: CiResults) -> str:
    """Markdown for $GITHUB_STEP_SUMMARY: the heading, its lines, and the first failures."""
    table = results.failures
    lines = [f"### {_cell(results.heading)}", ""]
    for line in results.lines:
        lines += [_cell(line), ""]
    if table.rows:
        ruler = ("---:" if column in table.numbers else "---" for column in table.columns)
        lines += [f"| {' | '.join(table.columns)} |", f"|{'|'.join(ruler)}|"]
        lines += [f"| {' | '.join(map(_cell, row))} |" for row in table.rows[:_MOST_ROWS]]
        more = len(table.rows) - _MOST_ROWS
        lines += ["", f"{more:,} more failures."] if more > 0 else []
    return "\n".join([*lines, ""])


def github_annotations(results: CiResults) -> Iterator[str]:
    """Workflow commands: GitHub shows only the first ten of a step."""
    for title, text in results.annotations[:MOST_ANNOTATIONS]:
        yield f"::error title={_command(title, in_property=True)}::{_command(text)}"


def _cell(text: str) -> str:
    return text.translate(_MARKDOWN)


def _command(text: str, *, in_property: bool = False) -> str:
    """Text as workflow commands escape it: no text of a run can become a command of its own."""
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return text.replace(":", "%3A").replace(",", "%2C") if in_property else text
