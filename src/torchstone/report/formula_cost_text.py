"""The cost of a model by formulas, beside its traced cost, as text."""

import re
from collections.abc import Mapping, Sequence

from torchstone.record.formula import Coverage, FormulaCost, FormulaModule
from torchstone.report.text import Paint, aligned, plain
from torchstone.units import many, show_bytes, show_count, show_flops

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)|^\d+(?=\.|$)")


def formula_cost_text(
    result: FormulaCost, *, depth: int | None = 4, text: str = "", fold: bool = True, paint: Paint = plain
) -> str:
    """The table of modules, what disagrees, and how much is covered by formulas."""
    wanted = text.lower()
    shown = [
        module
        for module in result.modules
        if (depth is None or _depth(module.path) <= depth)
        and (wanted in module.path.lower() or wanted in module.class_name.lower())
    ]
    groups = _folded(shown) if fold else [[module] for module in shown]
    header = ("module", "class", "from", "FLOPs by formula", "FLOPs traced", "read", "written", "")
    table = aligned([header, *(_row(group) for group in groups)], right=(3, 4, 5, 6), paint=paint)
    return "\n\n".join(part for part in (table, _differences(result), _optimizer(result), _coverage(result)) if part)


def _optimizer(result: FormulaCost) -> str:
    """The step of an optimizer is linear in the number of trainable parameters."""
    step = result.optimizer
    if step is None:
        return ""
    each = step.flops // step.parameters if step.parameters else 0
    return (
        f"optimizer: one step of {step.name} is {each} FLOPs for each of {many(step.parameters, 'parameter')}, "
        f"{show_flops(step.flops)}; {show_bytes(step.bytes_read)} read, {show_bytes(step.bytes_written)} written"
    )


def _depth(path: str) -> int:
    return path.count(".") + 1 if path else 0


def _folded(modules: Sequence[FormulaModule]) -> list[list[FormulaModule]]:
    """Layers of a list that cost the same as one row."""
    groups: dict[tuple[object, ...], list[FormulaModule]] = {}
    for module in modules:
        key = (_NUMBER.sub("*", module.path), module.class_name, module.coverage, module.traced_flops, module.flops)
        groups.setdefault(key, []).append(module)
    return list(groups.values())


def _row(group: Sequence[FormulaModule]) -> tuple[str, ...]:
    first, many = group[0], len(group) > 1
    path = _NUMBER.sub("*", first.path) if many else first.path
    name = first.class_name.rpartition(".")[2]
    by_formula = None if first.flops is None else sum(module.flops or 0 for module in group)
    return (
        path or "(root)",
        f"{len(group)} x {name}" if many else name,
        first.coverage.value,
        "-" if by_formula is None else show_count(by_formula),
        show_count(sum(module.traced_flops for module in group)),
        show_bytes(sum(module.traced_bytes_read for module in group)),
        show_bytes(sum(module.traced_bytes_written for module in group)),
        "" if all(module.agrees for module in group) else "differs",
    )


def _differences(result: FormulaCost) -> str:
    lines = []
    for module in result.disagreeing[:5]:
        pairs = (
            ("FLOPs", module.flops, module.traced_flops),
            ("bytes read", module.bytes_read, module.traced_bytes_read),
            ("bytes written", module.bytes_written, module.traced_bytes_written),
        )
        parts = [f"{what} {formula:,} by formula, {traced:,} traced" for what, formula, traced in pairs
                 if formula is not None and formula != traced]  # fmt: skip
        lines.append(f"differs: {module.path or '(root)'} ({module.class_name}): {'; '.join(parts)}")
    left = len(result.disagreeing) - len(lines)
    return "\n".join([*lines, *([f"and {many(left, 'more module differs', 'more modules differ')}"] if left else [])])


def _coverage(result: FormulaCost) -> str:
    listed = [one for one in Coverage if one is not Coverage.PENDING or result.count(one)]
    counts = ", ".join(f"{result.count(one)} {one.value}" for one in listed)
    agree = len(result.modules) - len(result.disagreeing) - result.count(Coverage.TRACED)
    reasons = dict.fromkeys(
        f"{module.class_name}: {module.reason}" for module in result.modules if module.coverage is Coverage.TRACED
    )
    lines = [
        f"coverage: {counts} of {many(len(result.modules), 'module')}",
        f"agreement: {agree} of {many(agree + len(result.disagreeing), 'module')} with a formula "
        f"match the trace exactly",
        f"all formulas were evaluated in {result.evaluation_s * 1000:.0f} ms",
    ]
    return "\n".join([*lines, *(f"traced only: {reason}" for reason in reasons)])


def estimate_text(model: str, class_path: str, parameters: Mapping[str, int], costs: Mapping[str, int]) -> str:
    """The cost of a whole model by one formula, which no trace was compared with."""
    at = ", ".join(f"{name}={value}" for name, value in parameters.items())
    rows = [(name, show_count(cost) if name == "FLOPs" else show_bytes(cost)) for name, cost in costs.items()]
    return "\n".join(
        [f"{model} by the formula of {class_path}", f"at {at}", aligned(rows, right=(1,)), "not compared with a trace"]
    )
