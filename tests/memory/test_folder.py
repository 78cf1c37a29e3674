import json
from pathlib import Path

import pytest

from tests.memory.timelines import study_of
from torchstone.errors import InputError, UnreadableFileError
from torchstone.memory.folder import (
    find_folder,
    folder_for,
    list_folders,
    open_timeline,
    read_timeline,
    report_name,
    reports_home,
    write_folder,
    write_pieces,
)


@pytest.mark.parametrize(
    ("source", "name"),
    [("my_model.py", "my-model"), ("/x/run_1.log.gz", "run-1"), ("a b?.log", "a-b"), ("_.log", "report"), ("x", "x")],
)
def test_names_have_hyphens(source: str, name: str) -> None:
    assert report_name(source) == name


def test_reports_stand_in_the_home_of_ttmem(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TTMEM_HOME", str(tmp_path))
    assert folder_for("my_model.py").path == tmp_path / "reports" / "my-model"

    monkeypatch.delenv("TTMEM_HOME")
    assert reports_home() == Path.home() / ".ttmem" / "reports"


def test_a_folder_is_written_and_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTMEM_HOME", str(tmp_path))
    timeline = study_of(1)[0].timeline
    folder = folder_for("my_model.py")
    write_folder(folder, timeline)

    assert {path.name for path in folder.path.iterdir()} == {
        "my-model_memory.json",
        "my-model_operations.json",
        "my-model_inputs_registry.json",
        "my-model_timeline.json.gz",
    }
    assert json.loads(folder.memory.read_text())["name"] == "my-model"
    assert read_timeline(find_folder(folder.path).timeline) == timeline
    assert list_folders(reports_home()) == [folder]
    for source in ("my-model", "my_model", str(folder.path), str(folder.timeline)):
        assert open_timeline(source) == timeline


def test_nothing_is_left_of_a_file_that_failed_half_way(tmp_path: Path) -> None:
    def pieces() -> "list[bytes]":
        msg = "no"
        raise ValueError(msg)

    with pytest.raises(ValueError, match="no"):
        write_pieces(tmp_path / "x.json", (piece for _ in range(1) for piece in pieces()))

    assert list(tmp_path.iterdir()) == []


def test_what_is_not_there_is_an_error_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFileError, match="ttmem list"):
        open_timeline(str(tmp_path / "nothing"))
    with pytest.raises(InputError, match="memory parse"):
        find_folder(tmp_path)


def test_two_reports_in_one_folder_are_not_guessed_between(tmp_path: Path) -> None:
    timeline = study_of(1)[0].timeline
    for name in ("a", "b"):
        write_folder(folder_for(name, directory=tmp_path), timeline)

    with pytest.raises(InputError, match="more than one"):
        find_folder(tmp_path)


def test_a_damaged_timeline_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x_timeline.json.gz"
    path.write_bytes(b"no gzip")

    with pytest.raises(UnreadableFileError, match="x_timeline"):
        read_timeline(path)
