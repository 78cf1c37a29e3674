"""Several models on several backends: a table of verdicts, what fails and why, and which op unlocks most models."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from torchstone.record.base import Record
from torchstone.record.check import WORKING_STATUSES, CheckResult, Finding
from torchstone.units import many

_LONGEST_REASON = 160
_CONTINUED = 30  # rows of the table of ops
_WORKS = "works"
_SUBJECT = re.compile(r"^- (?:`([^`]+)`|(the code of \S+)) in `")  # of a line of `_reasons`


class Cell(Record, frozen=True, kw_only=True):
    """One model on one backend."""

    model: str
    backend: str
    result: CheckResult | None = None
    refused: str = ""  # why the check could not be made; "" with no result: it was not run
    earlier: str = ""  # the cell as an earlier page has it, where there is no result
    earlier_reasons: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The verdict of the whole model."""
        if self.result is not None:
            return verdict(self.result)
        return "refused" if self.refused else self.earlier or "not run"

    @property
    def works(self) -> bool | None:
        """Whether the model passes; None: not known."""
        if self.result is not None:
            return self.result.passed
        return self.earlier == _WORKS if self.earlier and not self.refused else None

    @property
    def failing(self) -> list[str]:
        """What fails in the model, each once."""
        if self.result is not None:
            return list(dict.fromkeys(finding.subject for finding in self.result.findings))
        return list(
            dict.fromkeys(found[0] or found[1] for one in self.earlier_reasons for found in _SUBJECT.findall(one))
        )


def verdict(result: CheckResult) -> str:
    """Works, or how it fails, how many modules work all the same, and which op fails."""
    if result.passed:
        return _WORKS
    modules = [module for module in result.modules if not module.container]
    working = sum(module.status in WORKING_STATUSES for module in modules)
    blamed = list(dict.fromkeys(map(_blamed, result.findings)))
    more = f" and {len(blamed) - 1} more" if blamed[1:] else ""
    cause = f": {blamed[0]}{more}" if blamed else ""
    return (
        f"**{result.modules[0].outcome or 'fails inside'}**, {working} of "
        f"{many(len(modules), 'module works', 'modules work')}{cause}"
    )


def results_page(cells: Sequence[Cell], head: str, versions: Mapping[str, str] | None = None) -> str:
    """The table, and the findings below it; `versions` are those of backends without a result."""
    backends, models = _names(cells)
    cell_of = {(cell.model, cell.backend): cell for cell in cells}
    lines = [head, *(f"- `{backend}`: {_version(cells, backend, versions or {})}" for backend in backends), ""]
    lines += [f"| model | {' | '.join(backends)} |", "|---" * (len(backends) + 1) + "|"]
    for model in models:
        row = [cell_of[model, name].text if (model, name) in cell_of else "not run" for name in backends]
        lines.append(f"| {model} | {' | '.join(row)} |")
    lines += [f"| | {' | '.join(_count(cells, backend) for backend in backends)} |", "", "## What fails, and why", ""]
    failing = [cell for cell in cells if cell.refused or cell.works is False]
    for cell in failing:
        lines += [f"### {cell.model} on {cell.backend}", "", *_reasons(cell), ""]
    return "\n".join(lines if failing else [*lines, "Nothing.", ""])


class Unlocking(Record, frozen=True, kw_only=True):
    """An op that fails on a backend, and the models that it keeps from working."""

    backend: str
    op: str
    alone: tuple[str, ...]  # models in which nothing else fails: fixing it makes them work
    models: tuple[str, ...]  # all models in which it fails


def unlocking_ops(cells: Sequence[Cell]) -> list[Unlocking]:
    """The ops that fail, those first that keep most models from working by themselves."""
    found: dict[tuple[str, str], tuple[list[str], list[str]]] = {}
    for cell in cells:
        failing = cell.failing
        for subject in failing:
            alone, models = found.setdefault((cell.backend, subject), ([], []))
            models.append(cell.model)
            alone += [cell.model] if len(failing) == 1 else []
    rows = [
        Unlocking(backend=backend, op=op, alone=tuple(alone), models=tuple(models))
        for (backend, op), (alone, models) in found.items()
    ]
    return sorted(rows, key=lambda one: (-len(one.alone), -len(one.models), one.backend, one.op))


def unlocking_page(cells: Sequence[Cell], head: str) -> str:
    """Which op unlocks most models."""
    rows = unlocking_ops(cells)
    if not rows:
        return f"{head}\nNothing fails.\n"
    lines = [head, "| backend | op or module | models that work once it is fixed | fails in |", "|---|---|---|---|"]
    for one in rows[:_CONTINUED]:
        alone = f"{len(one.alone)}: {', '.join(one.alone)}" if one.alone else "none by itself"
        lines.append(f"| {one.backend} | `{_cell(one.op)}` | {alone} | {len(one.models)}: {', '.join(one.models)} |")
    more = len(rows) - _CONTINUED
    return "\n".join([*lines, *([f"\nand {more} more"] if more > 0 else []), ""])


def _names(cells: Sequence[Cell]) -> tuple[list[str], list[str]]:
    return list(dict.fromkeys(cell.backend for cell in cells)), list(dict.fromkeys(cell.model for cell in cells))


def _version(cells: Sequence[Cell], backend: str, known: Mapping[str, str]) -> str:
    result = next((cell.result for cell in cells if cell.backend == backend and cell.result is not None), None)
    if result is None:
        return known.get(backend, "not run")
    where = "; the recorded ops ran, in an environment of its own" if result.form == "program" else ""
    return f"{result.backend_version}{where}"


def _count(cells: Sequence[Cell], backend: str) -> str:
    known = [cell.works for cell in cells if cell.backend == backend and cell.works is not None]
    return f"{sum(known)} of {len(known)}"


def _reasons(cell: Cell) -> list[str]:
    if cell.result is None:
        return [f"- refused: {_cell(cell.refused)}"] if cell.refused else list(cell.earlier_reasons)
    counted = Counter(map(_finding, cell.result.findings))
    lines = [f"- {text}{f' ({count} times)' if count > 1 else ''}" for text, count in counted.items()]
    return lines + [f"- {module.module_path}: not judged: {module.reason}" for module in cell.result.unjudged]


def _finding(finding: Finding) -> str:
    script = "a script shows it" if finding.confirmed else "no script shows it"
    shapes = f", with {finding.shapes}" if finding.shapes else ""
    where = finding.module_path or "the model itself"
    return f"{_blamed(finding)} in `{where}`: {finding.outcome}: {_cell(finding.reason)} ({script}{shapes})"


def _blamed(finding: Finding) -> str:
    return f"`{finding.subject}`" if finding.ops else finding.subject


def _cell(text: str) -> str:
    return " ".join(text.split())[:_LONGEST_REASON].replace("|", "\\|").replace("<", "&lt;")
