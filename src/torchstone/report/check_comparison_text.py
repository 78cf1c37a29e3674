"""Checks of several backends on the terminal."""

from torchstone.record.check import FAILED_STATUSES, CheckComparison
from torchstone.report.text import Paint, aligned

_MOST_ROWS = 60


def comparison_text(found: CheckComparison, paint: Paint, *, only_differences: bool) -> str:
    """A line for each unique module, a column for each check."""
    head = ["module", "class", *found.sides]
    shown = [module for module in found.modules if not only_differences or len(set(module.statuses)) > 1]
    rows = [
        [module.module_path or "(the model)", module.class_name.rpartition(".")[2], *map(_word, module.statuses)]
        for module in shown[:_MOST_ROWS]
    ]
    more = len(shown) - _MOST_ROWS
    parts = [
        aligned([head, *rows], paint=paint) if rows else "no difference in any module",
        f"and {more} more, in the JSON document" if more > 0 else "",
        *(_side(found, side) for side in range(len(found.sides))),
        *found.notes,
    ]
    return "\n\n".join(part for part in parts if part)


def _word(status: str | None) -> str:
    if status is None:
        return "not there"
    return f"✗ {status}" if status in FAILED_STATUSES else f"✓ {status}" if "success" in status else f"- {status}"


def _side(found: CheckComparison, side: int) -> str:
    share = f"{found.working_calls[side]:,} of {found.op_calls[side]:,} op calls work"
    to_fix = ", ".join(dict.fromkeys(found.findings[side])) or "nothing to fix"
    return f"{found.sides[side]}: {share}; {to_fix}"
