import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.programs import MAIN, torchstone
from tests.cli.sweeps import finished_run, unary, vectors_in
from tests.sweep.builders import result
from torchstone.cli.main import run
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINE
from torchstone.store.database import Store
from torchstone.store.sweeps import add_sweep, read_sweep, sweep_runs
from torchstone.sweep.folder import runs_in

OPS = ("sin", "cos", "exp", "neg", "abs", "tanh", "sqrt", "erf")
SLOW = 'faults=[{"fault": "slow", "seconds": 0.4}, {"fault": "wrong", "op": "aten.neg.*"}]'
COMMAND = ["sweep", "run", "--dir", "out", "--quiet", "--backend", "faulty", "--backend-option", SLOW, "--jobs", "1"]
RESUME = ["sweep", "run", "--dir", "out", "--quiet", "--resume"]


def killed_after(results: int, folder: Path) -> None:
    """Start a run and kill it with -9 when so many results are on disk."""
    child = subprocess.Popen([sys.executable, "-c", MAIN, *COMMAND], cwd=folder, stdout=subprocess.DEVNULL)
    while child.poll() is None:
        journals = list(folder.glob("out/runs/*/results.jsonl"))
        if journals and journals[-1].read_bytes().count(b"\n") > results:
            child.kill()
        time.sleep(0.01)
    assert child.returncode == -signal.SIGKILL, "it came to its end before"


def what_matters(document: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(one["id"], one["outcome"], one["detail"]) for one in document["results"]]


def test_a_run_that_was_killed_goes_on_where_it_was_and_ends_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    vectors_in(tmp_path / "out", *(unary(f"aten.{op}.default") for op in OPS))
    killed_after(3, tmp_path)
    (broken,) = runs_in(tmp_path / "out")
    before = broken.results()
    assert 3 <= len(before) < len(OPS)
    assert not broken.is_finished
    monkeypatch.chdir(tmp_path)

    code = run(["sweep", "run", "--dir", "out", "--quiet", "--resume", "--json"])

    resumed = json.loads(capsys.readouterr().out)
    assert code == 1
    assert resumed["run"] == broken.name
    assert len(resumed["results"]) == len(OPS)
    assert resumed["outcomes"] == {"passed": 7, "wrong": 1}
    assert {one.id: one.elapsed_s for one in before.values()}.items() <= {
        one["id"]: one["elapsed_s"] for one in resumed["results"]
    }.items()  # what was there was not run again


def test_a_disk_that_is_full_breaks_a_run_off_in_one_sentence_and_room_lets_it_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """First the journal does not fit, then the database does not, then there is room."""
    monkeypatch.chdir(tmp_path)
    vectors_in(tmp_path / "out", *(unary("aten.relu.default", rows, 2) for rows in range(1, 17)))
    with Store.open("kept.db"):
        pass

    no_journal = torchstone("sweep", "run", "--dir", "out", "--quiet", file_limit_bytes=9_000)
    (broken,) = runs_in(tmp_path / "out")
    on_disk = broken.results()
    no_database = torchstone(*RESUME, "--db", "kept.db", file_limit_bytes=33_000)  # SQLite maps 32 KiB
    all_on_disk = broken.results()
    code = run([*RESUME, "--db", "kept.db", "--json"])

    way_out = "resume later with `torchstone sweep run --dir out --resume"
    assert no_journal.returncode == no_database.returncode == EXIT_BAD_INPUT
    assert "results.jsonl: " in no_journal.stderr
    assert "kept.db cannot be written to" in no_database.stderr
    assert f"{way_out}`" in no_journal.stderr
    assert f"{way_out} --db kept.db`" in no_database.stderr
    assert 0 < len(on_disk) < 16 == len(all_on_disk)
    assert on_disk.items() <= all_on_disk.items()
    assert code == EXIT_FINE
    assert json.loads(capsys.readouterr().out)["outcomes"] == {"passed": 16}
    with Store.open("kept.db", create=False) as store:
        kept = read_sweep(store, broken.name)
    assert kept is not None
    assert {one.id: one for one in kept.results} == all_on_disk
    assert broken.is_finished


def test_a_run_that_died_after_its_last_result_is_ended_and_kept_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    finished_run(Path("out"), "r1", result("k1-aa"), result("k1-bb"))
    with Store.open("kept.db") as store:
        add_sweep(store, runs_in(Path("out"))[0].run())
    Path("out/runs/r1/run.json").unlink()

    code = run([*RESUME, "--db", "kept.db", "--json"])

    assert code == EXIT_FINE
    assert len(json.loads(capsys.readouterr().out)["results"]) == 2
    with Store.open("kept.db") as store:
        assert [(one.run, one.finished) for one in sweep_runs(store)] == [("r1", True)]
    assert Path("out/runs/r1/run.json").is_file()


@pytest.mark.parametrize("address", ["bad.db", "postgresql://me:secret@127.0.0.1:1/x"])
def test_a_database_that_cannot_be_used_is_told_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], address: str
) -> None:
    monkeypatch.chdir(tmp_path)
    vectors_in(Path("out"), unary("aten.relu.default"))
    Path("bad.db").write_bytes(b"SQLite format 3\0" + b"\xee" * 5_000)

    assert run(["sweep", "run", "--dir", "out", "--quiet", "--db", address]) == EXIT_BAD_INPUT

    said = capsys.readouterr().err
    assert address.rpartition("@")[2] in said
    assert "secret" not in said
    assert not Path("out/runs").exists()
    assert Path("bad.db").read_bytes().endswith(b"\xee" * 5_000)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """A disk of so many kilobytes; asked again, it has that size from then on."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], check=False)
    if mounted.returncode:
        pytest.skip("this user may not mount a small disk")

    def sized(kilobytes: int) -> Path:
        subprocess.run(["mount", "-o", f"remount,size={kilobytes}k", str(place)], check=True)
        return place

    yield sized
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.heavy
@pytest.mark.parametrize("kilobytes", [208, 220, 280])
def test_on_a_real_disk_that_is_full_nothing_is_lost(
    small_disk: Callable[[int], Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kilobytes: int,
) -> None:
    folder = small_disk(kilobytes)
    monkeypatch.chdir(folder)
    vectors_in(folder / "out", *(unary("aten.relu.default", rows, 2) for rows in range(1, 25)))
    with Store.open("kept.db"):
        pass

    full = torchstone("sweep", "run", "--dir", "out", "--db", "kept.db", "--quiet")
    (broken,) = runs_in(folder / "out")
    on_disk = broken.results()
    small_disk(8_000)
    run([*RESUME, "--db", "kept.db", "--json"])
    resumed = json.loads(capsys.readouterr().out)
    run(["sweep", "run", "--dir", "out", "--db", "kept.db", "--quiet", "--json"])

    assert full.returncode == EXIT_BAD_INPUT, full.stderr
    assert full.stderr.count("\n") == 1
    assert "resume later with" in full.stderr
    assert len(resumed["results"]) == 24
    assert on_disk.keys() <= {one["id"] for one in resumed["results"]}
    assert what_matters(resumed) == what_matters(json.loads(capsys.readouterr().out))


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(6))
def test_killed_at_any_moment_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], seed: int
) -> None:
    vectors_in(tmp_path / "out", *(unary(f"aten.{op}.default") for op in OPS))
    monkeypatch.chdir(tmp_path)
    moment = random.Random(seed)  # noqa: S311 - a moment, not a secret
    child = subprocess.Popen([sys.executable, "-c", MAIN, *COMMAND], stdout=subprocess.DEVNULL)
    while not list(tmp_path.glob("out/runs/*/plan.json")):
        assert child.poll() is None
        time.sleep(0.05)
    time.sleep(moment.uniform(0, 8))
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    (begun,) = runs_in(tmp_path / "out")
    if not begun.is_finished:
        run(["sweep", "run", "--dir", "out", "--quiet", "--resume", "--json"])
        capsys.readouterr()
    run([*COMMAND, "--json"])

    undisturbed = json.loads(capsys.readouterr().out)
    disturbed = json.loads((begun.path / "run.json").read_bytes())
    assert what_matters(disturbed) == what_matters(undisturbed)


@pytest.mark.heavy
def test_a_cluster_gives_the_same_records_as_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    monkeypatch.chdir(tmp_path)
    vectors_in(tmp_path / "out", *(unary(f"aten.{op}.default") for op in OPS))
    told = []
    for executor in ("local", "ray"):
        assert run([*COMMAND, "--executor", executor, "--json"]) == 1
        told.append(json.loads(capfd.readouterr().out.splitlines()[-1]))

    assert what_matters(told[0]) == what_matters(told[1])


BACKEND_THAT_GOES_AWAY = """from pathlib import Path
from torchstone.backends.eager import Eager

class Backend(Eager):
    def __init__(self):
        looks = Path(__file__).with_name("looks")
        looks.write_text(looks.read_text() + "x" if looks.exists() else "x")
        if len(looks.read_text()) == 2 and not looks.with_name("back").exists():
            raise RuntimeError("the device is gone")
"""


def test_a_run_whose_environment_cannot_start_leaves_nothing_to_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    vectors_in(Path("out"), unary("aten.relu.default"))
    Path("gone.py").write_text(BACKEND_THAT_GOES_AWAY, encoding="utf-8")
    command = ["sweep", "run", "--dir", "out", "--quiet", "--backend", "gone.py::Backend"]

    assert run(command) == EXIT_BAD_INPUT

    said = capsys.readouterr().err
    assert "the device is gone" in said
    assert "resume" not in said
    assert runs_in(Path("out")) == []
    Path("back").touch()
    assert run([*command, "--resume"]) == EXIT_FINE
    assert [one.is_finished for one in runs_in(Path("out"))] == [True]
