from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.check import planted_net
from torchstone.check.checking import Subject, run_check
from torchstone.check.settings import Folder, Settings
from torchstone.record.check import CheckResult, Outcome

MODEL = f"{planted_net.__file__}::load_model"
PLANTED: Mapping[str, Mapping[str, Any]] = {  # the op to blame -> the fault
    "aten.addmm.default": {"fault": "wrong", "op": "aten.addmm.default", "shape": [24]},
    "aten.cosh.default": {"fault": "crash", "op": "aten.cosh.default"},
    "aten.maximum.default": {"fault": "wrong", "op": "aten.maximum.default"},
    "aten.sinh.default": {"fault": "unsupported", "op": "aten.sinh.default"},
    "aten.expm1.default": {"fault": "raise", "op": "aten.expm1.default"},
    "aten.relu.default": {"fault": "abort", "op": "aten.relu.default", "shape": [3, 2, 8]},
    "aten.lerp.Scalar": {"fault": "nan", "op": "aten.lerp.Scalar"},
    "aten.cumsum.default": {"fault": "scaled", "op": "aten.cumsum.default"},
    "aten.atan.default": {"fault": "compile_error", "op": "aten.atan.default"},
    "aten.exp.default + aten.sin.default": {"fault": "wrong", "op": "aten.sin.default", "after": "aten.exp.default"},
}
EXPECTED = {
    "aten.addmm.default": ("layers.7.up", Outcome.WRONG),
    "aten.cosh.default": ("heads.1", Outcome.CRASHED),
    "aten.maximum.default": ("glue", Outcome.WRONG),
    "aten.sinh.default": ("pair.sine", Outcome.UNSUPPORTED),
    "aten.expm1.default": ("pair.exponent", Outcome.RAISED),
    "aten.relu.default": ("clip", Outcome.CRASHED),
    "aten.lerp.Scalar": ("keyword", Outcome.WRONG),
    "aten.cumsum.default": ("gives", Outcome.WRONG),
    "aten.atan.default": ("first_use.shared", Outcome.COMPILE_ERROR),
    "aten.exp.default + aten.sin.default": ("together", Outcome.WRONG),
}


def checked(folder: Path, faults: Sequence[Mapping[str, Any]], **settings: Any) -> CheckResult:
    chosen = Settings(backend="faulty", options={"faults": list(faults)}, exports_ir=False, **settings)
    return run_check(Subject(model=MODEL), chosen, Folder(path=folder))


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, CheckResult]:
    """The model with all faults planted at once."""
    folder = tmp_path_factory.mktemp("check")
    return folder, checked(folder, list(PLANTED.values()))


def test_exactly_the_planted_faults_are_found(everything: tuple[Path, CheckResult]) -> None:
    _, result = everything

    found = {" + ".join(finding.ops): (finding.module_path, finding.outcome) for finding in result.findings}

    assert found == EXPECTED
    assert len(result.findings) == len(PLANTED)


def test_every_finding_has_a_script_that_was_run_and_fails(everything: tuple[Path, CheckResult]) -> None:
    folder, result = everything

    assert [finding.ops for finding in result.findings if not finding.confirmed] == []
    assert [finding.ops for finding in result.findings if not (folder / finding.repro).is_file()] == []
