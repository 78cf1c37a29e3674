from pathlib import Path

import msgspec
import pytest

from tests.check.results import check_result, finding
from torchstone.check.summary import compare, compare_folders
from torchstone.errors import InputError, UnreadableFileError
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

    assert compare_folders([tmp_path / "a", tmp_path / "b"]).sides == ("a: faulty (torch 2)", "b: faulty (torch 2)")


def test_a_folder_without_a_check_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFileError, match="has no finished check"):
        compare_folders([tmp_path, tmp_path])


def test_before_and_after_of_one_backend_are_told_apart(tmp_path: Path) -> None:
    before = check_result(finding(), backend_options={"fused": "true"})
    for name, result in (("before/out", before), ("after/out", check_result())):
        save(tmp_path / name / "check.json", result)

    found = compare_folders([tmp_path / "before/out", tmp_path / "after/out"])

    assert found.sides == ("before/out: faulty (torch 2; fused=true)", "after/out: faulty (torch 2)")
    assert not found.worse
    assert {module.module_path: module.differs for module in found.modules}[""]


def test_unrelated_models_are_refused() -> None:
    other = check_result(model="other")
    strangers = tuple(
        msgspec.structs.replace(module, occurrences=tuple(f"x.{path}" for path in module.occurrences))
        for module in other.modules
    )

    with pytest.raises(InputError, match="a is a check of toy and b one of other, which share 0 of 4 modules"):
        compare([check_result(), msgspec.structs.replace(other, modules=strangers)], ["a", "b"])


def test_what_was_not_judged_before_does_not_get_worse() -> None:
    first, second = check_result(), check_result(finding())
    skipped = tuple(msgspec.structs.replace(module, status="skipped") for module in first.modules)

    assert not compare([msgspec.structs.replace(first, modules=skipped), second], ["a", "b"]).worse
