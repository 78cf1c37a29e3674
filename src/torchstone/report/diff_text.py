"""Terminal output of `torchstone diff`: totals, modules, ops and tensors of two folders side by side."""

from torchstone.record.diff import Change, FolderDiff, ModuleDiff, Quantity
from torchstone.report.text import Paint, aligned
from torchstone.units import many, show_bytes, show_count, show_seconds

_MOST_ROWS = 20
_LONGEST_SHAPES = 100


def diff_text(found: FolderDiff, paint: Paint, *, only_differences: bool = True) -> str:
    """What is printed for a diff: one line that says what differs, then the tables."""
    quantities = [one for one in found.quantities if not only_differences or one.change is not Change.SAME]
    rows = [["", found.sides[0], found.sides[1], "change"]]
    rows += [[one.name, value_text(one, 0), value_text(one, 1), ratio_text(one)] for one in quantities]
    parts = [
        paint(headline(found), "bold"),
        aligned(rows, right=(1, 2, 3), paint=paint) if quantities else "",
        _modules(found, paint),
        _ops(found, paint),
        _tensors(found, paint),
        f"check: {found.check_change}" if found.check_change else "",
        f"device memory: {found.memory_change}" if found.memory_change else "",
        *found.notes,
    ]
    return "\n\n".join(part for part in parts if part)


def headline(found: FolderDiff) -> str:
    """What differs, in one line."""
    compared = f"compared: {', '.join(found.compared)}"
    if not found.differs:
        return f"no difference ({compared})"
    counts = {change: sum(one.change is change for one in found.modules) for change in Change}
    order = (Change.CHANGED, Change.ADDED, Change.REMOVED, Change.SAME)  # what differs first
    said = [f"{many(counts[one], 'module')} {one.value}" for one in order if counts[one]]
    return f"{', '.join(said) or 'they differ'} ({compared})"


def _modules(found: FolderDiff, paint: Paint) -> str:
    changed = [one for one in found.modules if one.change is not Change.SAME]
    if not changed:
        return ""
    rows = [["module", "change", "what differs"]]
    rows += [[one.path or "(the model)", one.change.value, what_differs(one)] for one in changed[:_MOST_ROWS]]
    return aligned(rows, paint=paint) + _more(len(changed))


def what_differs(module: ModuleDiff) -> str:
    """The facts of a module that are not the same on both sides."""
    if module.change in (Change.ADDED, Change.REMOVED):
        return next(one for one in reversed(module.classes) if one is not None).rpartition(".")[2]
    said = []
    if module.classes[0] != module.classes[1]:
        said.append(" -> ".join((one or "").rpartition(".")[2] for one in module.classes))
    if module.shapes[0] != module.shapes[1]:
        shapes = f"shapes {module.shapes[0] or 'not called'}, now {module.shapes[1] or 'not called'}"
        said.append(shapes if len(shapes) <= _LONGEST_SHAPES else "shapes")
    for name, pair, shown in (
        ("parameters", module.parameters, show_count), ("FLOPs", module.flops, show_count),
        ("bytes", module.moved_bytes, show_bytes),
    ):  # fmt: skip
        if pair[0] != pair[1]:
            said.append(f"{name} {', now '.join('none' if one is None else shown(one) for one in pair)}")
    if module.statuses[0] != module.statuses[1]:
        said.append(f"status {', now '.join(one or 'none' for one in module.statuses)}")
    if module.tensors:
        said.append(many(module.tensors, "golden tensor or weight", "golden tensors or weights"))
    return "; ".join(said)


def _ops(found: FolderDiff, paint: Paint) -> str:
    if not found.ops:
        return ""
    rows = [["op", "calls before", "after", "FLOPs before", "after"]]
    for one in found.ops[:_MOST_ROWS]:
        flops = ["none" if count is None else show_count(count) for count in one.flops]
        rows.append([one.op, f"{one.calls[0]:,}", f"{one.calls[1]:,}", *flops])
    return aligned(rows, right=(1, 2, 3, 4), paint=paint) + _more(len(found.ops))


def _tensors(found: FolderDiff, paint: Paint) -> str:
    if not found.tensors:
        return ""
    rows = [["golden data", "kind", "change", "detail"]]
    rows += [[one.name, one.kind, one.change.value, one.detail] for one in found.tensors[:_MOST_ROWS]]
    return aligned(rows, paint=paint) + _more(len(found.tensors))


def _more(rows: int) -> str:
    return f"\nand {rows - _MOST_ROWS:,} more, in the report and in --json" if rows > _MOST_ROWS else ""


def value_text(quantity: Quantity, side: int) -> str:
    """One side of a quantity, as people write it."""
    value = (quantity.before, quantity.after)[side]
    if value is None:
        return "none"
    if isinstance(value, str):
        return value
    match quantity.unit:
        case "bytes":
            return show_bytes(int(value))
        case "seconds":
            return show_seconds(float(value))
        case _:
            return show_count(int(value))


def ratio_text(quantity: Quantity) -> str:
    """The change of a quantity in a few characters."""
    if quantity.change is Change.SAME:
        return "same"
    return quantity.change.value if quantity.ratio is None else f"{quantity.ratio:.3g}x"
