"""Checks of several backends -> one table."""

from collections.abc import Sequence
from pathlib import Path

from torchstone.check.settings import Folder
from torchstone.errors import UnreadableFileError
from torchstone.record.check import CheckComparison, CheckedModule, CheckResult, ComparedModule
from torchstone.record.codec import load


def compare_folders(folders: Sequence[Path]) -> CheckComparison:
    """The checks that these folders hold, side by side."""
    return compare([_read(folder) for folder in folders], [str(folder) for folder in folders])


def compare(results: Sequence[CheckResult], folders: Sequence[str]) -> CheckComparison:
    """Modules are the same when their path and class are."""
    rows: dict[tuple[str, str], dict[int, CheckedModule]] = {}
    for side, result in enumerate(results):
        for module in result.modules:
            rows.setdefault((module.module_path, module.class_name), {})[side] = module
    sides = range(len(results))
    models = tuple(result.model for result in results)
    return CheckComparison(
        models=models,
        sides=tuple(_side(result) for result in results),
        folders=tuple(folders),
        passed=tuple(result.passed for result in results),
        working_calls=tuple(result.totals.working_calls for result in results),
        op_calls=tuple(result.totals.op_calls for result in results),
        findings=tuple(
            tuple(" + ".join(finding.ops) or f"code of {finding.module_path}" for finding in result.findings)
            for result in results
        ),
        modules=tuple(
            ComparedModule(
                module_path=path,
                class_name=class_name,
                statuses=tuple(found[side].status if side in found else None for side in sides),
                outcomes=tuple(found[side].outcome if side in found else None for side in sides),
            )
            for (path, class_name), found in rows.items()
        ),
        notes=() if len(set(models)) == 1 else (f"these are checks of different models: {', '.join(models)}",),
    )


def _side(result: CheckResult) -> str:
    return f"{result.backend} ({result.backend_version})" if result.backend_version else result.backend


def _read(path: Path) -> CheckResult:
    file = Folder(path=path).result
    if not file.is_file():
        msg = f"{path} has no finished check: {file.name} is missing; run `torchstone check MODEL --dir {path}` first"
        raise UnreadableFileError(msg)
    return load(file, CheckResult)
