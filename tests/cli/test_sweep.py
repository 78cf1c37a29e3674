import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.programs import MAIN
from tests.cli.sweeps import unary, vectors_in
from tests.cli.test_sweep_modules import MODULE
from tests.sweep.builders import mm, seen
from torchstone.cli.main import run
from torchstone.errors import EXIT_FINE
from torchstone.store.database import Store
from torchstone.store.sweeps import read_sweep, sweep_runs

Told = Callable[..., Any]


def started(*arguments: str, cwd: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", MAIN, *arguments, "--quiet"], cwd=cwd, stdout=subprocess.DEVNULL)


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Told:
    """Runs a command that must end well, in an empty folder, and gives its document."""
    monkeypatch.chdir(tmp_path)

    def command(*arguments: str) -> Any:
        code = run([*arguments, "--json", "--quiet"])
        printed = capsys.readouterr()
        assert code == EXIT_FINE, printed
        return json.loads(printed.out)

    return command


def test_the_commands_of_a_sweep_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sweep", "--help"]) == 0

    shown = capsys.readouterr().out
    assert all(name in shown for name in ("generate", "run", "report", "compare", "repro", "retrace"))


def test_a_sweep_lives_on_a_server_as_it_does_in_a_file(told: Told, postgres_url: str) -> None:
    with Store.open(postgres_url) as store:
        store.add([seen(mm(2, 3, 4), calls=3, model="bert"), seen(mm(5, 6, 7), model="bert")])
    db = ("--db", postgres_url)

    told("sweep", "generate", "--op", "aten.mm.default", *db)
    first, second = (told("sweep", "run", *db) for _ in range(2))
    compared = told("sweep", "compare", first["run"], "last", *db)
    history = told("sweep", "report", *db)
    listed = told("ops", *db)
    covered = told("ops", "coverage", "bert", "--backend", "eager", *db)

    assert first["outcomes"] == second["outcomes"] == {"passed": 2}
    assert (compared["first"], compared["second"], compared["still_passing"]) == (first["run"], second["run"], 2)
    assert [one["run"] for one in history["runs"]] == [first["run"], second["run"]]
    assert [(one["op"], one["configurations"], one["calls"]) for one in listed["operations"]] == [
        ("aten.mm.default", 2, 4)
    ]
    assert covered["passed_calls"] == covered["calls"] == 4


@pytest.mark.heavy
@pytest.mark.parametrize("where", ["file", "server"])
def test_two_traces_and_two_sweeps_at_once_lose_nothing(
    tmp_path: Path, request: pytest.FixtureRequest, where: str
) -> None:
    db = "kept.db" if where == "file" else str(request.getfixturevalue("postgres_url"))
    names = ("one", "two")
    for rows, name in enumerate(names, start=2):
        text = f"import torch\nfor columns in range(1, 60):\n    torch.ones({rows}, columns).neg()\n"
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    vectors_in(tmp_path / "sweep", *(unary("aten.relu.default", rows, 2) for rows in range(1, 30)))

    traces = [started("trace", f"{name}.py", "--db", db, cwd=tmp_path) for name in names]
    assert [one.wait(300) for one in traces] == [0, 0]
    sweeps = [started("sweep", "run", "--db", db, cwd=tmp_path) for _ in names]
    assert [one.wait(300) for one in sweeps] == [0, 0]

    with Store.open(db if where == "server" else str(tmp_path / db)) as store:
        assert (store.info().configurations, store.info().calls) == (4 * 59, 4 * 59)
        assert store.sources() == ("one.py", "two.py")
        runs = [read_sweep(store, head.run) for head in sweep_runs(store)]
        assert store.faults() == ()
    assert [len(one.results) for one in runs if one is not None] == [29, 29]


@pytest.mark.heavy
def test_the_whole_chain_on_a_server(told: Told, postgres_url: str) -> None:
    """From a traced script, through a sweep module that asks the database, to what the sweep ran."""
    Path("net.py").write_text("import torch\ntorch.ones(2, 3) @ torch.ones(3, 4)\n", encoding="utf-8")
    Path("mm.py").write_text(MODULE, encoding="utf-8")
    db = ("--db", postgres_url)

    assert told("trace", "net.py", *db)["new"] == 3
    told("sweep", "generate", "--module-name", "mm.py", "--dir", "modules", *db)
    modules = told("sweep", "run", "--dir", "modules", *db)
    told("sweep", "generate", "--all", *db)
    ops = told("sweep", "run", *db)
    retraced = told("sweep", "retrace", ops["run"])

    assert modules["counts"] == {"PASS": 1, "XFAIL": 1}
    assert (ops["counts"], retraced["counts"]["match"]) == ({"NOT_RUN": 2, "PASS": 1}, 1)
    with Store.open(postgres_url) as store:
        assert [one.run for one in sweep_runs(store)] == [modules["run"], ops["run"]]


@pytest.mark.heavy
def test_a_cluster_puts_the_same_records_on_a_server_as_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres_url: str
) -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    monkeypatch.chdir(tmp_path)
    wrong = 'faults=[{"fault": "wrong", "op": "aten.neg.*"}, {"fault": "crash", "op": "aten.sin.*"}]'
    vectors_in(Path("sweep"), mm(), *(unary(f"aten.{op}.default") for op in ("neg", "sin", "cos", "exp")))

    for executor in ("local", "ray"):
        run(
            ["sweep", "run", "--backend", "faulty", "--backend-option", wrong, "--executor", executor,
             "--db", postgres_url, "--quiet"]
        )  # fmt: skip

    with Store.open(postgres_url) as store:
        local, ray = (read_sweep(store, head.run) for head in sweep_runs(store))
    assert local is not None
    assert ray is not None
    assert len(local.results) == 5
    assert [(one.id, one.status, one.outcome, one.verdict, one.signal, one.detail) for one in local.results] == [
        (one.id, one.status, one.outcome, one.verdict, one.signal, one.detail) for one in ray.results
    ]
