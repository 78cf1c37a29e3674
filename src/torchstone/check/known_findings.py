"""Kinds of findings by their stable ids, and known error texts: both are data files beside this one."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import msgspec

from torchstone.errors import InputError
from torchstone.record.base import Record
from torchstone.record.check import Blame, CheckResult, DriftKind, Outcome, UnitResult

_FOLDER = Path(__file__).parent
_CODE_OF_OUTCOME = {
    Outcome.UNSUPPORTED: "TS-CHK-004",
    Outcome.REFUSED: "TS-CHK-004",
    Outcome.COMPILE_ERROR: "TS-CHK-005",
    Outcome.RAISED: "TS-CHK-006",
    Outcome.CRASHED: "TS-CHK-007",
    Outcome.TIMED_OUT: "TS-CHK-008",
    Outcome.OUT_OF_MEMORY: "TS-CHK-009",
    Outcome.VARIES: "TS-CHK-011",
}
_CODE_OF_WRONG = {Blame.OP: "TS-CHK-001", Blame.OPS_TOGETHER: "TS-CHK-002", Blame.MODULE: "TS-CHK-003"}
_CODE_OF_DRIFT = {
    DriftKind.UNIFORM: "TS-CHK-020",
    DriftKind.SINGLE_SOURCE: "TS-CHK-021",
    DriftKind.SEVERAL_SOURCES: "TS-CHK-022",
    DriftKind.AMPLIFIER: "TS-CHK-023",
    DriftKind.OUTSIDE_LAYERS: "TS-CHK-024",
}
_WRONG_NON_FINITE = "TS-CHK-010"


class FindingKind(Record, frozen=True, kw_only=True):
    """One kind of finding: what it means, how it was proven, what to try."""

    title: str
    means: str
    proof: str
    try_: tuple[str, ...] = msgspec.field(name="try")


class Pattern(Record, frozen=True, kw_only=True):
    """A known error text."""

    text: str
    looks_like: str
    backend: str = "*"
    try_: str = msgspec.field(name="try", default="")


@cache
def finding_kinds() -> Mapping[str, FindingKind]:
    """Every kind by its id."""
    document = tomllib.loads((_FOLDER / "findings.toml").read_text(encoding="utf-8"))
    return msgspec.convert(document, dict[str, FindingKind])


@cache
def patterns() -> tuple[Pattern, ...]:
    """The known error texts, the first that fits counts."""
    document = tomllib.loads((_FOLDER / "patterns.toml").read_text(encoding="utf-8"))
    return msgspec.convert(document["pattern"], tuple[Pattern, ...])


def code_of(blame: Blame, result: UnitResult) -> str:
    """The id of the kind that a failure is of."""
    if result.outcome is not Outcome.WRONG:
        return _CODE_OF_OUTCOME.get(result.outcome, "")
    misplaced = result.numbers is not None and bool(result.numbers.misplaced)
    return _WRONG_NON_FINITE if misplaced else _CODE_OF_WRONG[blame]


def code_of_drift(kind: DriftKind) -> str:
    """The id of a kind of drift; "" for none."""
    return _CODE_OF_DRIFT.get(kind, "")


def looks_like(result: UnitResult, backend: str) -> str:
    """What a known error text usually is, with the way out; "" for an unknown one."""
    proof = result.proof
    text = "\n".join((result.reason, *((proof.error, proof.traceback, proof.last_output) if proof is not None else ())))
    for one in patterns():
        if fnmatchcase(backend, one.backend) and re.search(one.text, text):
            return f"{one.looks_like}; {one.try_}" if one.try_ else one.looks_like
    return ""


def with_kinds(result: CheckResult, causes: Sequence[UnitResult]) -> CheckResult:
    """A check whose findings have their ids, what they look like, and when the results ran that they rest on."""
    findings = tuple(
        msgspec.structs.replace(
            finding,
            code=code_of(finding.blame, cause),
            looks_like=looks_like(cause, result.backend),
            ran_at=cause.ran_at,
            reused=cause.reused,
        )
        for finding, cause in zip(result.findings, causes, strict=True)
    )
    return msgspec.structs.replace(result, findings=findings)


def explanation(code: str) -> str:
    """What is known about a kind of finding, as the text of its page."""
    kind = finding_kinds().get(code.upper())
    if kind is None:
        msg = f"there is no finding {code!r}; known are {', '.join(finding_kinds())}"
        raise InputError(msg)
    ways = "\n".join(f"- {way}" for way in kind.try_)
    parts = (
        f"# {code.upper()}: {kind.title}", "## What it means", kind.means, "## How it was proven", kind.proof,
        "## What to try", ways,
    )  # fmt: skip
    return "\n\n".join(parts) + "\n"
