"""Two folders of results side by side: structure, cost and golden data; checks and memory have records of their own."""

from enum import StrEnum
from typing import ClassVar

from torchstone.record.base import Document, Record, Schema
from torchstone.units import many


class Change(StrEnum):
    """What became of something from the first folder to the second."""

    SAME = "same"
    CHANGED = "changed"
    ADDED = "added"
    REMOVED = "removed"


class Quantity(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One number of both sides; None where a side does not have it."""

    name: str
    unit: str  # count, bytes, seconds or text
    before: int | float | str | None
    after: int | float | str | None

    @property
    def change(self) -> Change:
        """Whether it is the same, and if not, on which side it is."""
        if self.before == self.after:
            return Change.SAME
        if self.before is None:
            return Change.ADDED
        return Change.REMOVED if self.after is None else Change.CHANGED

    @property
    def ratio(self) -> float | None:
        """After over before; None where that says nothing."""
        before, after = self.before, self.after
        if isinstance(before, str) or isinstance(after, str) or not before or after is None:
            return None
        return after / before


class ModuleDiff(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One path of the module tree on both sides; None where a side does not have it, or was not priced."""

    path: str
    change: Change
    classes: tuple[str | None, str | None]
    shapes: tuple[str | None, str | None]  # of the first call: float32[1, 8] -> float32[1, 8]
    parameters: tuple[int | None, int | None]
    flops: tuple[int | None, int | None]
    moved_bytes: tuple[int | None, int | None]
    peak_bytes: tuple[int | None, int | None] = (None, None)  # live memory of the model while it runs; no change of it
    statuses: tuple[str | None, str | None] = (None, None)  # on the backend
    tensors: int = 0  # golden tensors and weights of its own that differ


class OpDiff(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One op overload on both sides: how often it is called, and its FLOPs."""

    op: str
    calls: tuple[int, int]
    flops: tuple[int | None, int | None]


class TensorDiff(Record, frozen=True, kw_only=True, omit_defaults=False):
    """A golden tensor or a weight that differs."""

    name: str
    kind: str  # golden, or weight
    change: Change
    detail: str
    verdict: str = ""  # on values of equal shape and dtype: suspicious or wrong; "" where they were not compared
    noise_multiple: float | None = None  # the difference over the noise of a correct implementation; None: not known


class FolderDiff(Document, frozen=True, kw_only=True, omit_defaults=False):
    """The document diff.json."""

    schema: ClassVar[Schema] = Schema(kind="diff", version=1)
    sides: tuple[str, str]  # folders as given
    models: tuple[str, str]
    quantities: tuple[Quantity, ...]
    modules: tuple[ModuleDiff, ...]  # in the order of the second side; removed ones where they stood
    ops: tuple[OpDiff, ...]  # those that differ
    tensors: tuple[TensorDiff, ...]
    compared: tuple[str, ...]  # structure, cost, check, memory, golden data
    check_change: str = ""  # in words; "" where there is no check on both sides
    memory_change: str = ""
    notes: tuple[str, ...] = ()  # what only one side has

    @property
    def differs(self) -> bool:
        """Whether anything that was compared is not the same."""
        changes = {one.change for one in self.quantities} | {one.change for one in self.modules}
        return bool(changes - {Change.SAME}) or bool(
            self.ops or self.tensors or self.check_change or self.memory_change
        )

    def _repr_html_(self) -> str:
        """The totals that differ, for a notebook."""
        from torchstone.record.notebook import html_table

        changed = [one for one in self.quantities if one.change is not Change.SAME]
        rows = [(one.name, str(one.before), str(one.after)) for one in changed]
        modules = sum(one.change is not Change.SAME for one in self.modules)
        title = f"{many(modules, 'module')} and {many(len(self.ops), 'op')} differ" if self.differs else "no difference"
        return html_table(title, ("", *self.sides), rows, notes=self.notes)
