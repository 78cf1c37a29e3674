import json
from pathlib import Path

import pytest

from tests.cli.sweeps import database, unary
from tests.sweep.builders import call, mm, tensor
from torchstone.cli.main import run
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINDINGS
from torchstone.sweep.folder import read_vectors

GENERATE = ["sweep", "generate", "--dir", "out", "--db", "x.db"]


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_vectors_are_made_with_neighbours_within_a_budget_and_twice_the_same(
    capsys: pytest.CaptureFixture[str],
) -> None:
    database(Path("x.db"), mm(2, 3, 4), unary("aten.sin.default"), call("aten.ones_like.default", self_=tensor(2)))

    code = run([*GENERATE, "--all", "--neighbours", "--budget", "10m", "--json"])

    summary = json.loads(capsys.readouterr().out)
    assert code == 0
    assert summary["suites"]["model_traced"] == 3
    assert summary["suites"]["neighbours"] > 5
    assert summary["invalid"] == {"its role is factory; ask for it with --roles": 1}
    assert sum(summary["suites"].values()) == summary["vectors"]
    before = {path.name: path.read_bytes() for path in Path("out/vectors").iterdir()}
    assert run([*GENERATE, "--all", "--neighbours"]) == 0
    assert {path.name: path.read_bytes() for path in Path("out/vectors").iterdir()} == before


def test_only_invalid_vectors_is_a_failure() -> None:
    database(Path("x.db"), call("aten.no_such.default"))

    assert run([*GENERATE, "--op", "aten.no_such.default"]) == EXIT_FINDINGS
    assert read_vectors(Path("out"))[0].vectors[0].reason


def test_no_vectors_at_all_is_a_failure_unless_allowed() -> None:
    database(Path("x.db"))

    assert run([*GENERATE, "--all"]) == EXIT_FINDINGS
    assert run([*GENERATE, "--all", "--allow-empty"]) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--op", "aten.mm.defalt"], "aten.mm.default"),
        (["--model", "nett"], "net"),
        (["--all", "--roles", "magic"], "compute"),
        (["--all", "--budget", "soon"], "10m"),
        (["--module-name", "none.py"], "none.py"),
        (["--module-name", "none"], "none"),
        ([], "--module-name"),
        (["--all", "--op", "x"], "one of"),
    ],
)
def test_wrong_input_is_one_sentence_with_the_way_out(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    database(Path("x.db"))
    with_one = database(Path("x.db"), mm())

    assert run([*GENERATE, *arguments]) == EXIT_BAD_INPUT
    assert said in capsys.readouterr().err
    assert with_one == "x.db"


def test_a_database_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*GENERATE, "--all"]) == EXIT_BAD_INPUT
    assert "x.db" in capsys.readouterr().err
