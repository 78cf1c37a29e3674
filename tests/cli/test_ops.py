import json
from pathlib import Path

import pytest

from tests.cli.databases import database_in
from tests.configs.real_files import real_file
from tests.sweep.builders import result
from tests.sweep.builders import run as sweep
from torchstone.cli.main import run
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINDINGS, EXIT_FINE
from torchstone.record.check import Outcome
from torchstone.store.database import Store
from torchstone.store.rows import Query
from torchstone.store.sweeps import add_sweep


def test_without_a_word_it_shows_all_ops(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHSTONE_DB", database_in(tmp_path))

    assert run(["ops"]) == EXIT_FINE
    short = capsys.readouterr().out
    assert run(["ops", "show"]) == EXIT_FINE

    assert capsys.readouterr().out == short
    assert "aten.addmm.default" in short


def test_help_is_the_help_of_the_group(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ops", "--help"]) == EXIT_FINE

    shown = capsys.readouterr().out
    assert "\n  show" in shown
    assert "\n  coverage" in shown


def swept(database: str, *, failing: str = "") -> None:
    """Every configuration of the text trace was run; those of one op failed."""
    with Store.open(database) as store:
        results = [
            result(one.key, Outcome.WRONG if one.configuration.op == failing else Outcome.PASSED, configuration=one.key)
            for one in store.configurations(Query(model="albert"))
        ]
        add_sweep(store, sweep("r1", *results, backend="inductor"))


def test_a_model_that_is_covered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = database_in(tmp_path)
    swept(database)

    assert run(["ops", "coverage", "albert", "--backend", "inductor", "--db", database]) == EXIT_FINE

    assert "albert on inductor: 100 % covered, 79 of 79 calls" in capsys.readouterr().out


def test_what_fails_is_a_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = database_in(tmp_path)
    swept(database, failing="aten.addmm.default")

    assert run(["ops", "coverage", "albert", "--backend", "inductor", "--db", database, "--json"]) == EXIT_FINDINGS

    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "torchstone/op-coverage/1"
    assert (document["calls"], document["passed_calls"], document["failed_calls"]) == (79, 30, 49)
    assert document["ops"][0]["op"] == "aten.addmm.default"


def test_a_backend_that_nothing_ran_on_names_the_way_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ops", "coverage", "albert", "--backend", "eager", "--db", database_in(tmp_path)]) == EXIT_FINDINGS

    shown = capsys.readouterr()
    assert "0 % covered" in shown.out
    assert "torchstone sweep run --backend eager" in shown.err


def test_without_a_model_untested_ops_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ops", "coverage", "--backend", "eager", "--db", database_in(tmp_path)]) == EXIT_FINDINGS

    shown = capsys.readouterr().out
    assert "used by models" in shown
    assert "aten.addmm.default" in shown


def test_an_unknown_model_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ops", "coverage", "gpt", "--backend", "eager", "--db", database_in(tmp_path)]) == EXIT_BAD_INPUT

    assert "no model contains 'gpt'" in capsys.readouterr().err


@pytest.fixture
def database(tmp_path: Path) -> str:
    return database_in(tmp_path)


def test_the_table_of_all_ops(database: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ops", "--db", database]) == EXIT_FINE

    shown = capsys.readouterr()
    assert shown.out.splitlines()[1].split() == ["aten.addmm.default", "1", "49", "albert"]
    assert "6 configurations of 4 ops" in shown.err


def test_filters_choose_ops(database: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ops", "--db", database, "--dtype", "BFLOAT8_B", "--model", "tiny", "--json"]) == EXIT_FINE

    document = json.loads(capsys.readouterr().out)
    assert document == {
        "schema": "torchstone/ops/1",
        "operations": [
            {"op": "ttnn.fill_cache", "configurations": 2, "calls": 8, "uncounted": 0, "models": ["acme/Tiny-1B"]}
        ],
    }


def test_near_duplicates_are_one_block(database: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ops", "fill_cache", "--db", database]) == EXIT_FINE

    shown = capsys.readouterr()
    assert "Tensor(shape=[1, 32], dtype=BFLOAT8_B, memory=DRAM_INTERLEAVED" in shown.out
    assert "batch_idx: 2 values: 0 | 1" in shown.out
    assert "2 configurations in 1 block" in shown.err


def test_each_on_its_own_when_asked_for(database: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ops", "ttnn.fill_cache", "--all", "--top", "1", "--db", database]) == EXIT_FINE

    shown = capsys.readouterr()
    assert shown.out.count("ttnn.fill_cache") == 1
    assert "1 block not shown" in shown.err


def test_configurations_as_json(database: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ops", "aten.addmm.default", "--json", "--db", database]) == EXIT_FINE

    document = json.loads(capsys.readouterr().out)
    (one,) = document["configurations"]
    assert document["schema"] == "torchstone/op-configurations/1"
    assert (one["op"], one["calls"], one["models"]) == ("aten.addmm.default", 49, ["albert"])
    assert one["arguments"]["arg2"] == "Tensor(shape=[768, 768], dtype=float16, stride=[1, 768])"
    assert one["record"]["configuration"]["op"] == "aten.addmm.default"


@pytest.mark.parametrize("name", ["_to_copy", "aten::_to_copy", "aten._to_copy.default"])
def test_a_part_of_a_name_is_enough(database: str, capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert run(["ops", name, "--db", database]) == EXIT_FINE

    assert "aten._to_copy.default" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "hint"), [("adm", "did you mean aten.addmm.default"), ("Fill", "ttnn.fill_cache"), ("zzz", "lists all")]
)
def test_an_unknown_op_is_an_error_with_near_names(
    database: str, capsys: pytest.CaptureFixture[str], name: str, hint: str
) -> None:
    assert run(["ops", name, "--db", database]) == EXIT_BAD_INPUT

    assert hint in capsys.readouterr().err


def test_only_the_places_asked_for_are_counted(database: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ops", "addmm", "--source", "albert", "--db", database]) == EXIT_FINE
    assert "49 calls, albert" in capsys.readouterr().out


def test_a_real_sharded_tensor_reads_as_people_write_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = str(tmp_path / "real.db")
    run(["db", "import", str(real_file("ttnn/master_v1_2025-11.json")), "--db", database])

    assert run(["ops", "ttnn.conv2d", "--db", database]) == EXIT_FINE

    assert (
        "arg0: Tensor(shape=[1, 1, 12544, 32], dtype=BFLOAT8_B, memory=L1_HEIGHT_SHARDED, "
        "shard(shard_shape=[224, 32], grid=[(0,0)->(7,6)], orientation=ROW_MAJOR))"
    ) in capsys.readouterr().out
