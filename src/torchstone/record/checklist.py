"""The checklist of a reference: each box is ticked by checks that ran, never by hand."""

from torchstone.record.base import Record

CHECKLIST_FILE = "checklist.json"
DELIVERABLES = {
    "golden_data": "Golden data",
    "graph": "Model graph",
    "summary": "Model summary",
    "operators": "Operators",
    "shapes": "Intermediate shapes and hierarchy",
    "parameters": "Parameters",
}  # the boxes by name, with their titles


class Check(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One thing that was looked at."""

    title: str
    passed: bool
    detail: str = ""  # what was found


class Box(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One deliverable."""

    name: str
    title: str
    files: tuple[str, ...]
    checks: tuple[Check, ...]

    @property
    def ticked(self) -> bool:
        """Every check passed, and there was at least one."""
        return bool(self.checks) and all(check.passed for check in self.checks)


class Checklist(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The document checklist.json."""

    model: str
    complete: bool  # every box is ticked
    boxes: tuple[Box, ...]
    seals: dict[str, str] = {}  # SHA-256 of each file when it was checked
