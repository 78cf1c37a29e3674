from pathlib import Path

import pytest

from torchstone.check.settings import Folder, Settings, shared_results


def test_what_a_task_leaves_has_a_name_that_a_file_may_have(tmp_path: Path) -> None:
    folder = Folder(path=tmp_path)

    assert folder.stage_of("ops:mod_000/root:1..3").name == "ops_mod_000_root_1..3"


def test_everything_a_resumed_run_needs_is_in_one_folder(tmp_path: Path) -> None:
    folder = Folder(path=tmp_path)

    places = (
        folder.journal,
        folder.about,
        folder.values_of(3),
        folder.program_of(3),
        folder.recorded_marker,
        folder.stage_of("x"),
    )
    assert all(place.is_relative_to(folder.work) for place in places)
    assert not folder.result.is_relative_to(folder.work)


def test_the_backend_is_told_by_name_and_options() -> None:
    assert Settings(backend="tt", options={"a": 1}).backend_payload == {"spec": "tt", "options": {"a": 1}}


def test_shared_results_are_in_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    assert shared_results() == tmp_path / "torchstone" / "check" / "results.jsonl"
