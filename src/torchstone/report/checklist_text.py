"""CHECKLIST.md: six deliverables, each box with the checks behind it."""

from torchstone.record.checklist import Box, Checklist
from torchstone.report.text import Paint, plain


def checklist_markdown(checklist: Checklist) -> str:
    """The checklist as a page."""
    ticked = sum(box.ticked for box in checklist.boxes)
    lines = [
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
    """The checklist on a terminal: one line per box, and one per check that failed."""
    lines = []
    for box in checklist.boxes:
        mark = paint("[x]", "green") if box.ticked else paint("[ ]", "red")
        lines.append(f"{mark} {box.title}: {sum(check.passed for check in box.checks)} of {len(box.checks)} checks")
        lines += [f"      {check.title}: {check.detail}" for check in box.checks if not check.passed]
    return "\n".join(lines)
