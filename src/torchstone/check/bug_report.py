"""A finding as the text of a bug report, under the headings that the tracker of its backend asks for."""

import platform
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import msgspec

from torchstone.check.known_findings import finding_kinds
from torchstone.check.summary import forms_in_words, twin_in_words
from torchstone.record.base import Record
from torchstone.record.check import Finding, Outcome

SCRIPT = "repro.py"
_TRACKERS = Path(__file__).with_name("trackers.toml")
_ANY = "any"
_COMPILING = (Outcome.UNSUPPORTED, Outcome.COMPILE_ERROR)


class ScriptRun(Record, frozen=True, kw_only=True, omit_defaults=False):
    """How a script ended: the words of a verdict, and what a later run is compared with."""

    state: str  # passes, fails, hangs, could not run
    exit_code: int | None = None  # negative: a signal; None: it was ended at its deadline
    last_lines: str = ""


class Reported(Record, frozen=True, kw_only=True, omit_defaults=False):
    """What a report is about."""

    model: str
    backend: str
    backend_version: str
    backend_options: dict[str, str]
    python: str  # version
    platform: str
    finding: Finding
    run: ScriptRun | None = None  # of the script, when the bundle was written; None: there is no script
    variants: dict[str, ScriptRun] = {}  # the script under other settings of the compiler, where the backend lists some


class Tracker(Record, frozen=True, kw_only=True):
    """A tracker: which of its forms the text is for, and the headings of that form with what stands under them."""

    tracker: str
    form: str
    sections: tuple[tuple[str, ...], ...]


@cache
def trackers() -> Mapping[str, Tracker]:
    """The known trackers, by backend."""
    return msgspec.convert(tomllib.loads(_TRACKERS.read_text(encoding="utf-8")), dict[str, Tracker])


def tracker_of(backend: str) -> Tracker:
    """The tracker of a backend; a form of our own where none is known."""
    return trackers().get(backend, trackers()[_ANY])


def report_text(about: Reported, irs: Sequence[str]) -> str:
    """The report: what, how to reproduce it, what was expected and what happened, versions."""
    known = tracker_of(about.backend)
    parts = _parts(about, irs)
    lines = [f"# {about.finding.subject}: {about.finding.outcome.value} ({about.backend})"]
    if known.tracker:
        lines.append(f"<!-- for https://github.com/{known.tracker}/issues/new/choose, form: {known.form} -->")
    for heading, *names in known.sections:
        texts = [parts.get(name, name) for name in names]
        if any(texts):
            lines += [f"### {heading}", *filter(None, texts)]
    return "\n\n".join(lines) + "\n"


def _parts(about: Reported, irs: Sequence[str]) -> dict[str, str]:
    """Every part of a report by its name; "" where there is nothing to say."""
    finding, run = about.finding, about.run
    kind = finding_kinds().get(finding.code)
    what = "Unknown kind" if kind is None else f"{kind.title} ({finding.code})"
    unknown = "it was not run again" if finding.repro else "there is no script"
    ran = unknown if run is None else f"{run.state} (exit code {run.exit_code})"
    options = ", ".join(f"{name}={value}" for name, value in about.backend_options.items()) or "none"
    last = "" if run is None else run.last_lines
    rows = "\n".join(f"- {name}: {variant.state}" for name, variant in about.variants.items())
    forms, twin = forms_in_words(finding), twin_in_words(finding)
    return {
        "what": f"`{finding.subject}`: {what}. {finding.reason}",
        "steps": f"```\npython {SCRIPT}\n```\n\nExit code 0: passes, 1: fails, 2: could not try. "
        f"When this was written: {ran}. It needs {finding.needs or 'torch only'}.",
        "expected": "Expected: the outputs of eager PyTorch, within the noise of the number format.",
        "output": f"```\n{last or finding.reason}\n```",
        "where": f"Found in {about.model}, {finding.module_path or 'the whole model'}; arguments: "
        f"{finding.arguments or 'see the script'}." + (f" Proof: {'; '.join(finding.proof)}." if finding.proof else ""),
        "forms": f"The same case in other forms: {forms}." if forms else "",
        "twin": f"What makes it pass: it {twin}." if finding.twin and finding.twin.change else twin.capitalize(),
        "variants": f"With other settings of the compiler:\n\n{rows}" if rows else "",
        "irs": "IR:\n\n" + "\n".join(f"- `{file}`" for file in irs) if irs else "",
        "looks_like": finding.looks_like,
        "environment": f"- backend: {about.backend} {about.backend_version}\n- options: {options}\n"
        f"- Python {about.python}, {about.platform}",
        "collect_env": "(paste the output of `python -m torch.utils.collect_env` here)",
        "version": about.backend_version or "unknown",
        "platform": about.platform,
        "system": {"Darwin": "Mac"}.get(platform.system(), platform.system()),
        "machine": {"x86_64": "X64", "AMD64": "X64", "aarch64": "ARM64", "arm64": "ARM64"}.get(
            platform.machine(), "Other / Unknown"
        ),
        "component": "Compiler" if finding.outcome in _COMPILING else "Compiler, Runtime",
    }  # fmt: skip
