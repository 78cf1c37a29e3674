import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.architecture.repository import ROOT, load_tool

SCRIPT = ROOT / "tools" / "replay.py"


@pytest.fixture(scope="module")
def replay() -> Any:
    return load_tool("replay")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("replay") / "before"
    done = run("record", folder, "--quick", "--only", "memory/*")
    assert done.returncode == 0, done.stderr
    return folder


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, check=False)


def kinds(replay: Any, before: object, after: object) -> list[tuple[str, str]]:
    return [(item.kind, item.path) for item in replay.differences(before, after)]


def test_a_changed_number_is_named_by_its_path(replay: Any) -> None:
    before = {"totals": {"flops": 4}, "modules": [{"path": "a", "flops": 1}, {"path": "b", "flops": 3}]}
    after = {"totals": {"flops": 5}, "modules": [{"path": "a", "flops": 1}, {"path": "b", "flops": 4}]}

    assert kinds(replay, before, after) == [("changed", "$.totals.flops"), ("changed", "$.modules[1].flops")]


def test_one_row_less_is_one_difference(replay: Any) -> None:
    rows = [{"path": name, "flops": index} for index, name in enumerate("abcd")]

    assert kinds(replay, rows, [rows[0], *rows[2:]]) == [("missing", "$[b]")]
    assert kinds(replay, [rows[0], *rows[2:]], rows) == [("changed", "$[b]")]


def test_an_integer_that_became_a_float_is_a_difference(replay: Any) -> None:
    assert kinds(replay, {"flops": 1}, {"flops": 1.0}) == [("changed", "$.flops")]
    assert kinds(replay, {"passed": True}, {"passed": 1}) == [("changed", "$.passed")]


def test_other_words_in_a_sentence_are_no_finding_but_none_at_all_is(replay: Any) -> None:
    assert kinds(replay, {"notes": ["made up"]}, {"notes": ["generated"]}) == [("text", "$.notes[0]")]
    assert kinds(replay, {"detail": "too slow"}, {"detail": ""}) == [("changed", "$.detail")]
    assert kinds(replay, {"flops": "B * S"}, {"flops": "S * B"}) == [("changed", "$.flops")]


def test_a_key_that_was_added_is_no_finding(replay: Any) -> None:
    assert kinds(replay, {"a": 1}, {"a": 1, "b": 2}) == [("added", "$.b")]
    assert kinds(replay, {"a": 1, "b": 2}, {"a": 1}) == [("missing", "$.b")]


def test_a_record_holds_documents_without_the_folder_it_was_made_in(recorded: Path) -> None:
    shown = json.loads((recorded / "memory" / "healthy" / "show.json").read_text())
    parsed = json.loads((recorded / "memory" / "healthy" / "parse.json").read_text())

    assert shown["exit_code"] == 0
    assert shown["document"]["summary"]["operations"] > 0
    assert len(parsed["healthy_memory.json"]["operations"]) == len(parsed["healthy_operations.json"]["operations"])
    assert "replay-" not in json.dumps([shown, parsed])


def test_a_record_equals_itself_and_a_changed_number_is_found(recorded: Path, tmp_path: Path) -> None:
    after = tmp_path / "after"
    shutil.copytree(recorded, after)
    same = run("compare", recorded, after)
    changed = after / "memory" / "healthy" / "show.json"
    document = json.loads(changed.read_text())
    document["document"]["summary"]["operations"] += 1
    changed.write_text(json.dumps(document))
    other = run("compare", recorded, after)

    assert same.returncode == 0, same.stdout
    assert other.returncode == 1
    assert "$.document.summary.operations" in other.stdout


def test_a_document_that_is_gone_is_found(recorded: Path, tmp_path: Path) -> None:
    after = tmp_path / "after"
    shutil.copytree(recorded, after)
    (after / "memory" / "healthy" / "show.json").unlink()

    done = run("compare", recorded, after)

    assert done.returncode == 1
    assert "memory/healthy/show.json: not recorded after" in done.stdout


def test_a_folder_that_is_not_empty_is_refused(recorded: Path) -> None:
    done = run("record", recorded)

    assert done.returncode == 1
    assert "is not empty; give a new folder" in done.stderr
