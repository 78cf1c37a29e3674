"""Terminal output of `torchstone reference`: the checklist, and a line per compared tensor with the verdict."""

from collections import Counter
from collections.abc import Sequence

from torchstone.numerics.profiles import GUIDE
from torchstone.record.reference import (
    RANDOM_WEIGHTS,
    WRONG,
    Box,
    Checklist,
    Comparison,
    Errors,
    MatchedBy,
    Status,
    TensorVerdict,
    Tolerance,
)
from torchstone.report.text import Paint, aligned, plain

# --- Checklist ---


def checklist_markdown(checklist: Checklist) -> str:
    """The checklist as a page."""
    ticked = sum(box.ticked for box in checklist.boxes)
    banner = [f"**{checklist.banner}**", ""] if checklist.banner else []
    lines = [
        *banner,
        f"# Reference of {checklist.model}",
        "",
        f"{ticked} of {len(checklist.boxes)} boxes are ticked. A box is ticked by checks that ran, never by hand.",
        "",
    ]
    for box in checklist.boxes:
        lines += _box(box)
    return "\n".join(lines)


def _box(box: Box) -> list[str]:
    files = ", ".join(f"`{name}`" for name in box.files)
    lines = [f"- [{'x' if box.ticked else ' '}] **{box.title}** ({files})"]
    for check in box.checks:
        detail = f": {check.detail}" if check.detail else ""
        lines.append(f"  - {'passed' if check.passed else '**failed**'}: {check.title}{detail}")
    if not box.checks:
        lines.append("  - **no check ran**")
    return [*lines, ""]


def checklist_text(checklist: Checklist, paint: Paint = plain) -> str:
    """The checklist on a terminal: the weights, then one line per box, and one per check that failed."""
    lines = [_banner(checklist.banner, paint)] if checklist.banner else []
    for box in checklist.boxes:
        mark = paint("[x]", "green") if box.ticked else paint("[ ]", "red")
        lines.append(f"{mark} {box.title}: {sum(check.passed for check in box.checks)} of {len(box.checks)} checks")
        lines += [f"      {check.title}: {check.detail}" for check in box.checks if not check.passed]
    return "\n".join(lines)


def _banner(banner: str, paint: Paint) -> str:
    return paint(banner, "red" if banner.startswith(RANDOM_WEIGHTS) else "bold")


# --- Comparison (verify, compare): a line per tensor in order of execution, then the verdict ---

_HEADER = ("tensor", "verdict", "x noise", "PCC", "cosine", "max abs", "max rel", "rel L2", "allclose", "NaN/Inf",
           "details")  # fmt: skip
_NOT_LISTED = frozenset({Status.NOT_GIVEN})
_UNKNOWN_SHOWN = 5
_MATCHED_SHOWN = 3


def comparison_text(found: Comparison, *, only_wrong: bool = False, paint: Paint = plain) -> str:
    """The whole result."""
    listed = [verdict for verdict in found.verdicts if verdict.status not in _NOT_LISTED]
    if only_wrong:
        listed = [verdict for verdict in listed if verdict.status in WRONG]
    table = aligned([_HEADER, *map(_line, listed)], right=(2, 3, 4, 5, 6, 7), paint=paint) if listed else ""
    return "\n\n".join(part for part in (setup_text(found, paint), table, _summary(found, paint)) if part)


def setup_text(found: Comparison, paint: Paint = plain) -> str:
    """The aspects of the set-up that differ, and those that are unknown; "" where nothing was stated."""
    if all(one.same is None and "the port does not" in one.detail for one in found.setup):
        return ""
    rows = [("set-up", one.aspect, one.detail) for one in found.setup if one.same is not None]
    differs = [
        (paint("differs", "red") if one.decisive else "differs") if one.same is False else "same"
        for one in found.setup
        if one.same is not None
    ]
    stated = [one for one in found.setup if one.same is None and "the port does not" not in one.detail]
    unknown = ", ".join(one.aspect for one in found.setup if one.same is None and one not in stated)
    lines = [(first, aspect, word, detail) for (first, aspect, detail), word in zip(rows, differs, strict=True)]
    lines += [("set-up", one.aspect, "unknown", one.detail) for one in stated]
    if unknown:
        lines.append(("set-up", unknown, "unknown", "the port does not state it"))
    return aligned(lines, header=False)


def _line(verdict: TensorVerdict) -> tuple[str, ...]:
    errors = verdict.errors
    if errors is None:
        return (verdict.name, verdict.status.value, *("-",) * 8, verdict.detail)
    return (
        verdict.name,
        verdict.status.value,
        _number(verdict.noise_multiple, "-"),
        f"{errors.pcc:.6f}" if errors.pcc is not None else "none",
        f"{errors.cosine:.6f}" if errors.cosine is not None else "none",
        _number(errors.max_abs),
        _number(errors.max_rel),
        _number(errors.relative_l2),
        "equal" if errors.equal else "yes" if errors.allclose else "no",
        _non_finite(errors),
        verdict.detail,
    )


def _number(value: float | None, unknown: str = "none") -> str:
    return unknown if value is None else f"{value:.3g}"


def _non_finite(errors: Errors) -> str:
    golden, candidate = (errors.nan[side] + errors.inf[side] for side in (0, 1))
    return f"{golden}, {candidate}" if golden or candidate else "-"


def _summary(found: Comparison, paint: Paint) -> str:
    counts = ", ".join(f"{count} {status}" for status, count in found.counts.items())
    rows = [("tensors", counts), ("judged by", judged_by_text(found.verdicts)), ("see", GUIDE)]
    if found.unknown:
        more = len(found.unknown) - _UNKNOWN_SHOWN
        names = ", ".join(found.unknown[:_UNKNOWN_SHOWN]) + (f" and {more} more" if more > 0 else "")
        rows.append(("unmatched", f"{names}: not in the golden data"))
    matched = _matched_otherwise(found)
    if matched:
        rows.append(("matched", matched))
    rows.extend(("note", note) for note in found.notes)
    if found.spread:
        rows.append(("spread", found.spread))
    rows.append(("verdict", _verdict(found, paint)))
    if found.next_step:
        rows.append(("next", found.next_step))
    return aligned(rows, header=False)


def _matched_otherwise(found: Comparison) -> str:
    """How tensors were recognised whose names are not golden ones."""
    other = [one for one in found.verdicts if one.matched_by not in (None, MatchedBy.NAME)]
    counts = Counter(one.matched_by.value for one in other if one.matched_by is not None)
    if not counts:
        return ""
    kinds = ", ".join(f"{count} by {kind}" for kind, count in counts.items())
    shown = ", ".join(f"{one.port_name} is {one.name}" for one in other[:_MATCHED_SHOWN])
    return f"{kinds} ({shown}{', ...' if len(other) > _MATCHED_SHOWN else ''})"


def _verdict(found: Comparison, paint: Paint) -> str:
    if found.passed:
        part = f", as far as it was given: {found.incomplete}" if found.incomplete else ""
        return paint(f"passed{part}", "green")
    if found.first_wrong is None and found.incomplete:
        return paint(f"not passed: {found.incomplete}; what was given passes", "red")
    if found.first_wrong is None:
        return paint("not passed; see the notes", "red")
    return paint(f"wrong, first at {found.first_wrong} ({found.first_wrong_module or 'the model itself'})", "red")


def judged_by_text(verdicts: Sequence[TensorVerdict]) -> str:
    """What decided: the noise of each number format, and the tolerances that the user or the kind of number sets."""
    noises = Counter(
        f"the noise of {one.noise.format} ({one.noise.basis})"
        for one in verdicts
        if one.noise is not None and one.tolerance is None
    )
    parts = [f"{count} by {words}" for words, count in noises.items() if "equal bits" not in words]
    equal = sum(count for words, count in noises.items() if "equal bits" in words)
    if equal:
        parts.append(f"{equal} equal bit for bit")
    used = Counter(one.tolerance for one in verdicts if one.tolerance is not None)
    parts += [f"{count} by tolerance: {_tolerance(one)}" for one, count in used.items()]
    return "; ".join(parts) or "nothing was compared"


def _tolerance(tolerance: Tolerance) -> str:
    if tolerance.exact:
        return "integers must be equal"
    close = f"allclose reported at rtol {tolerance.rtol:g}, atol {tolerance.atol:g}"
    return f"PCC >= {tolerance.pcc:g} and relative L2 <= {tolerance.relative_l2:.3g} ({close})"
