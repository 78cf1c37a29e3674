import json
from pathlib import Path

import pytest

from tests.cli.databases import database_in, master_file
from tests.configs.real_files import real_file
from torchstone.cli.main import run
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINE


def test_a_text_trace_comes_out_as_it_went_in(tmp_path: Path) -> None:
    database = database_in(tmp_path)
    out = tmp_path / "out.txt"

    assert run(["db", "export", str(out), "--source", "albert.txt", "--db", database]) == EXIT_FINE

    assert out.read_bytes() == (tmp_path / "albert.txt").read_bytes()


def test_a_master_keeps_its_hashes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = database_in(tmp_path)
    out = tmp_path / "out.json"

    assert run(["db", "export", str(out), "--db", database]) == EXIT_FINE

    entries = json.loads(out.read_text())["operations"]["ttnn.fill_cache"]["configurations"]
    given = json.loads(master_file(tmp_path).read_text())["operations"]["ttnn.fill_cache"]["configurations"]
    assert {one["config_hash"] for one in entries} == {one["config_hash"] for one in given}
    assert "omitted: 4 (aten ops)" in capsys.readouterr().err


def test_our_own_lines_are_the_same_bytes_for_the_same_contents(tmp_path: Path) -> None:
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    run(["db", "export", str(first), "--db", database_in(tmp_path)])
    run(["db", "import", str(first), "--db", str(tmp_path / "copy.db")])

    assert run(["db", "export", str(second), "--db", str(tmp_path / "copy.db")]) == EXIT_FINE

    assert first.read_bytes() == second.read_bytes()


def test_one_op_as_a_pytest_file(tmp_path: Path) -> None:
    out = tmp_path / "test_ops.py"

    assert run(["db", "export", str(out), "--op", "aten.addmm.default", "--db", database_in(tmp_path)]) == EXIT_FINE

    assert out.read_text().count("pytest.param(") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["out.xyz"], "give --format"),
        (["out.json", "--op", "aten.nothing"], "no configuration matches"),
        (["out.json", "--model", "nobody"], "no model contains"),
    ],
)
def test_what_cannot_be_written_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert run(["db", "export", *arguments, "--db", database_in(tmp_path)]) == EXIT_BAD_INPUT

    assert message in capsys.readouterr().err
    assert not Path(arguments[0]).exists()


def test_a_place_that_cannot_be_written_to_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")

    assert run(["db", "export", str(tmp_path / "file" / "x.json"), "--db", database_in(tmp_path)]) == EXIT_BAD_INPUT

    assert "cannot write" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name", ["aten/aten_inputs_hf_45_models.txt", "aten/torchbench_train__fambench_dlrm_training.txt"]
)
def test_real_text_traces_come_out_of_a_database_as_they_went_in(tmp_path: Path, name: str) -> None:
    given, out, database = real_file(name), tmp_path / "out.txt", str(tmp_path / "x.db")
    run(["db", "import", str(given), "--db", database, "-q"])

    assert run(["db", "export", str(out), "--db", database]) == EXIT_FINE

    assert out.read_bytes() == given.read_bytes()
