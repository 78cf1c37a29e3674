import json
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from torchstone.backends.lookup import BUILT_IN
from torchstone.cli.main import run

OWN = """
    from torchstone.backends.eager import Eager


    class Own(Eager):
        name = "own"
"""


def test_the_list_says_what_can_run_here_and_what_the_others_need(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["backends"]) == 0

    shown = capsys.readouterr()
    rows = {line.split()[0]: line for line in shown.out.splitlines() if not line.startswith(" ")}
    assert list(rows)[1:] == list(BUILT_IN)
    assert " yes " in rows["eager"]
    assert " no " in rows["tt"]
    assert "torch_plugin_tt" in shown.out
    assert f"can run in {sys.executable} (Python 3." in shown.err
    assert max(map(len, shown.out.splitlines())) <= 100


def test_the_document_names_its_schema_and_the_interpreter(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["backends", "--json"]) == 0

    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "torchstone/backends/1"
    assert document["python"] == sys.executable
    assert [one["name"] for one in document["backends"]] == list(BUILT_IN)
    assert all(one["usable"] or one["reason"] for one in document["backends"])


def test_a_backend_of_ones_own_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "own.py"
    path.write_text(dedent(OWN), encoding="utf-8")

    assert run(["backends", f"{path}::Own", "-q"]) == 0
    shown = capsys.readouterr()
    assert "file" in shown.out
    assert "torch " in shown.out
    assert shown.err == ""


def test_a_named_backend_that_cannot_run_is_a_finding(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["backends", "tt"]) == 1
    assert "torch_plugin_tt" in capsys.readouterr().out


def test_a_name_that_no_backend_has_is_wrong_input_and_near_names_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["backends", "eager", "onnxruntim"]) == 2

    shown = capsys.readouterr()
    assert shown.out == ""
    assert "there is no backend 'onnxruntim'; did you mean onnxruntime?" in shown.err


def test_a_path_that_is_no_interpreter_is_wrong_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["backends", "--python", "nowhere/python"]) == 2
    assert "nowhere/python cannot be run" in capsys.readouterr().err
