from pathlib import Path

import pytest

from tests.check.results import check_result, finding
from torchstone.check.summary import compare, compare_folders
from torchstone.errors import UnreadableFileError
from torchstone.record.codec import save


def test_modules_are_matched_by_path_and_class() -> None:
    found = compare([check_result(), check_result(finding())], ["a", "b"])

    statuses = {module.module_path: module.statuses for module in found.modules}
    assert statuses == {
        "": ("success", "failed"),
        "layers": ("inherited_success", "skipped"),
        "layers.0": (None, "failed"),
    }
    assert found.passed == (True, False)
    assert found.findings == ((), ("aten.mm.default",))


def test_something_that_breaks_is_worse_and_something_mended_is_not() -> None:
    good, bad = check_result(), check_result(finding())

    assert compare([good, bad], ["a", "b"]).worse
    assert not compare([bad, good], ["a", "b"]).worse
    assert not compare([good, good], ["a", "b"]).worse


def test_checks_of_different_models_are_told() -> None:
    found = compare([check_result(), check_result(model="other")], ["a", "b"])

    assert found.notes == ("these are checks of different models: toy, other",)


def test_folders_are_read(tmp_path: Path) -> None:
    for name in ("a", "b"):
        save(tmp_path / name / "check.json", check_result())

    assert compare_folders([tmp_path / "a", tmp_path / "b"]).sides == ("faulty (torch 2)", "faulty (torch 2)")


def test_a_folder_without_a_check_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFileError, match="has no finished check"):
        compare_folders([tmp_path, tmp_path])
