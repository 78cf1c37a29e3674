import json
from pathlib import Path

import pytest

from tests.memory.timelines import study_of
from torchstone.errors import InputError, UnreadableFileError
from torchstone.memory.folder import (
    find_folder,
    folder_for,
    list_folders,
    locate,
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


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A report named demo, seen from an empty working directory."""
    monkeypatch.setenv("TTMEM_HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    folder = folder_for("demo.log")
    write_folder(folder, study_of(1)[0].timeline)
    return folder.path


def test_a_word_is_a_report_name_and_a_slash_makes_a_path(report: Path) -> None:
    assert locate("demo") == report
    for source in ("./demo", "demo/"):
        with pytest.raises(UnreadableFileError, match="there is no log or report"):
            locate(source)


def test_a_folder_without_a_memory_report_does_not_hide_a_report(report: Path) -> None:
    Path("demo").mkdir()
    Path("demo/trace.json").touch()

    assert locate("demo") == report
    assert locate("./demo") == Path("demo")


def test_a_file_or_folder_here_needs_no_slash_while_no_report_has_its_name(report: Path) -> None:
    write_folder(folder_for("mine.log", directory=Path("mine")), study_of(1)[0].timeline)
    Path("demo.log").touch()

    assert locate("mine") == Path("mine")
    assert locate("demo.log") == Path("demo.log")
    assert locate(".") == Path()
    assert locate("demo") == report


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_word_that_is_both_is_refused_with_both_spellings(kind: str, report: Path) -> None:
    if kind == "file":
        Path("demo").touch()
    else:
        write_folder(folder_for("demo", directory=Path("demo")), study_of(1)[0].timeline)

    with pytest.raises(InputError) as error:
        locate("demo")

    assert str(error.value) == (
        f"'demo' is both a report name and a {kind} in the working directory; "
        f"write ./demo for the {kind}, or {report} for the report"
    )
    assert locate("./demo") == Path("demo")
    assert locate(str(report)) == report
