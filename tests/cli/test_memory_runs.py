import json
from pathlib import Path

import pytest

from tests.memory.log_generator.device import MIB
from tests.memory.log_generator.run import Host
from tests.memory.log_generator.serving import ranked_log, serving_log
from torchstone.cli.main import run


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TTMEM_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "reports"


def log_of(folder: Path, seed: int, *, extra_bytes: int = 0) -> str:
    path = folder / "net.log"
    path.write_bytes(serving_log(seed, order=(0, 2), host=Host(base_bytes=extra_bytes))[0])
    return str(path)


def test_a_second_run_of_a_name_is_kept_beside_the_first(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["memory", "parse", log_of(tmp_path, 1)]) == 0
    first = (home / "net" / "net_memory.json").read_bytes()
    assert run(["memory", "parse", log_of(tmp_path, 1, extra_bytes=MIB)]) == 0
    assert run(["memory", "parse", log_of(tmp_path, 1, extra_bytes=MIB)]) == 0

    assert (home / "net" / "net_memory.json").read_bytes() == first
    assert sorted(path.name for path in home.iterdir()) == ["net", "net-2"]
    capsys.readouterr()

    assert run(["memory", "history", "net", "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [one["name"] for one in runs] == ["net", "net-2"]
    low, high = (one["peak"]["DRAM"]["allocated_mb_per_bank"] for one in runs)
    assert high - low == pytest.approx(1, abs=0.002)

    assert run(["memory", "history", "net"]) == 0
    assert "+1.000 MiB" in capsys.readouterr().out


def test_a_folder_of_ones_own_is_not_overwritten_either(tmp_path: Path) -> None:
    target = tmp_path / "out"
    for extra in (0, MIB):
        assert run(["memory", "parse", log_of(tmp_path, 1, extra_bytes=extra), "--dir", str(target)]) == 0

    assert (target / "net_memory.json").exists()
    assert (tmp_path / "out-2" / "net_memory.json").exists()


def test_a_budget_is_kept_or_exceeded(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = log_of(tmp_path, 1)

    assert run(["memory", "check", log, "--max-dram", "1GiB"]) == 0
    assert run(["memory", "check", log, "--max-dram", "100KiB"]) == 1
    assert "over the limit of 100 KiB" in capsys.readouterr().out
    junit = tmp_path / "ci" / "memory.xml"
    assert run(["memory", "check", log, "--max-dram", "100KiB", "--junit", str(junit), "--github", "--json"]) == 1
    assert '<testcase classname="' in junit.read_text(encoding="utf-8")
    printed = capsys.readouterr()
    assert json.loads(printed.out)["passed"] is False  # nothing but the document is on stdout
    assert "::error title=DRAM peak::" in printed.err
    assert run(["memory", "check", log]) == 2
    assert run(["memory", "check", log, "--max-growth", "1%"]) == 2
    assert "--against" in capsys.readouterr().err

    run(["memory", "parse", log])
    run(["memory", "parse", log_of(tmp_path, 1, extra_bytes=MIB)])
    assert run(["memory", "check", "net-2", "--max-growth", "1%"]) == 1
    assert run(["memory", "check", "net-2", "--max-growth", "99999"]) == 0
    assert run(["memory", "check", "net", "--max-growth", "1%", "--against", str(home / "net")]) == 0


def test_any_number_of_runs_is_compared(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for extra in (0, MIB, 2 * MIB):
        run(["memory", "parse", log_of(tmp_path, 1, extra_bytes=extra)])
    capsys.readouterr()

    assert run(["memory", "compare", "net", "net-2", "net-3"]) == 0
    assert capsys.readouterr().out.count("+1.000 MiB") == 2
    assert run(["memory", "compare", "net", "net-2", "net-3", "--max-growth", "1", "--json"]) == 1
    assert len(json.loads(capsys.readouterr().out)["runs"]) == 3
    assert run(["memory", "compare", "net"]) == 2
    assert home.exists()


def test_all_ranks_are_shown_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, truths = ranked_log(3)
    path = tmp_path / "ranks.log"
    path.write_bytes(log)

    assert run(["memory", "show", str(path), "--rank", "all", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["runs"]
    assert [row["name"] for row in rows] == ["1,0", "1,1"]
    peaks = [row["peak"]["DRAM"]["allocated_mb_per_bank"] for row in rows]
    assert peaks == [truth.peak("DRAM") / 1000 for truth in truths]

    assert run(["memory", "show", str(path), "--rank", "all"]) == 0
    assert "rank 1,1" in capsys.readouterr().out
