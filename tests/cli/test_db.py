import json
import sqlite3
from pathlib import Path

import pytest

from tests.cli.databases import database_in, master_file, text_file
from tests.configs.real_files import real_file
from tests.configs.samples import master_v1, sharded_argument
from tests.store.builders import at, relu, seen
from torchstone.cli.database_options import command_line
from torchstone.cli.main import run
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINDINGS, EXIT_FINE
from torchstone.store.database import Store


def test_help_lists_what_can_be_done(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["db", "--help"]) == EXIT_FINE

    shown = capsys.readouterr().out
    for name in ("info", "import", "export", "merge", "verify", "vacuum"):
        assert f"\n  {name}" in shown


def test_a_command_is_kept_without_the_password_of_its_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["torchstone", "trace", "a b.py", "--db=postgresql://me:secret@host/x"])

    assert command_line() == "torchstone trace 'a b.py' --db=postgresql://me@host/x"


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


def test_files_of_any_format_in_one_go(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(master_file(tmp_path)), str(text_file(tmp_path))]

    assert run(["db", "import", *files, "--db", str(tmp_path / "x.db")]) == EXIT_FINE

    shown = capsys.readouterr()
    assert "master.json (ttnn_master_v2): 2 configurations of 1 op, 2 new" in shown.out
    assert "2 of 2 hashes verified: 2 by the rule 'raw'" in shown.out
    assert "albert.txt (aten_text): 4 configurations of 3 ops, 4 new" in shown.out
    assert "next: torchstone ops" in shown.err


def test_importing_again_finds_nothing_new(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["db", "import", str(text_file(tmp_path)), "--db", str(tmp_path / "x.db"), "--json"]
    run(command)
    capsys.readouterr()

    assert run(command) == EXIT_FINE

    (file,) = json.loads(capsys.readouterr().out)["files"]
    assert (file["new"], file["known"], file["calls"]) == (0, 4, 79)


def test_damage_is_listed_by_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = [sharded_argument(), {"UnparsedElement": {"element_info": '{"arg1": {"X":{...}}}'}}, {"arg2": "[{...}]"}]
    path = tmp_path / "old.json"
    path.write_text(json.dumps(master_v1({"arguments": broken, "source": "x"})))

    assert run(["db", "import", str(path), "--db", str(tmp_path / "x.db")]) == EXIT_FINE

    shown = capsys.readouterr().out
    assert "2 damaged arguments, 1 repaired:" in shown
    assert "1  contents left out by the tracer as {...}: kept as text" in shown
    assert "1 argument not recorded:" in shown


def test_parts_that_give_no_configuration_are_findings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.txt"
    path.write_text("Operator: aten.t\n" + "cnt: 1, (broken\n" * 12)

    assert run(["db", "import", str(path), "--db", str(tmp_path / "x.db")]) == EXIT_FINDINGS

    shown = capsys.readouterr().err
    assert "12 parts could not be read" in shown
    assert "line 2: " in shown
    assert "and 2 more" in shown


def test_a_wrong_file_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["db", "import", str(tmp_path / "missing"), "--db", str(tmp_path / "x.db")]) == EXIT_BAD_INPUT

    assert "cannot read" in capsys.readouterr().err
    assert not (tmp_path / "x.db").exists()


def test_the_real_masters_in_one_database(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = (
        "master_v1_2025-11.json",
        "master_v2_llama32_1b_n300_2026-05.json",
        "master_v2_deepseek_v3_galaxy_2026-03.json",
    )
    files = [str(real_file(f"ttnn/{name}")) for name in names]

    assert run(["db", "import", *files, "--db", str(tmp_path / "x.db"), "--json"]) == EXIT_FINE

    found = json.loads(capsys.readouterr().out)["files"]
    assert [file["new"] for file in found] == [1079, 609, 338]
    assert [(file["hashes"]["verified"], file["hashes"]["given"]) for file in found] == [(0, 0), (609, 609), (338, 338)]
    assert (found[0]["damaged"]["arguments"], found[0]["damaged"]["repaired"]) == (627, 573)


def test_the_document_has_its_fixed_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["db", "info", "--db", database_in(tmp_path), "--json"]) == EXIT_FINE

    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "torchstone/db-info/1"
    assert {key: document[key] for key in ("configurations", "operations", "sources", "calls")} == {
        "configurations": 6,
        "operations": 4,
        "sources": 2,
        "calls": 87,
    }
    assert {trace["format"] for trace in document["traces"]} == {"aten_text", "ttnn_master_v2"}


def test_the_terminal_shows_numbers_and_traces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["db", "info", "--db", database_in(tmp_path)]) == EXIT_FINE

    shown = capsys.readouterr().out
    assert "configurations  6" in shown
    assert "albert.txt" in shown


def test_a_missing_database_names_the_way_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["db", "info", "--db", str(tmp_path / "x.db")]) == EXIT_BAD_INPUT

    assert "torchstone db import" in capsys.readouterr().err


def small(folder: Path) -> str:
    path = str(folder / "small.db")
    with Store.open(path) as store:
        store.add([seen(relu(2), at())])
    return path


def exported(folder: Path, database: str) -> bytes:
    run(["db", "export", str(folder / "x.jsonl"), "--db", database, "-q"])
    return (folder / "x.jsonl").read_bytes()


def test_the_order_of_merging_does_not_matter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = database_in(tmp_path), small(tmp_path)

    for name, order in (("a.db", [one, other]), ("b.db", [other, one, one])):
        assert run(["db", "merge", *order, "--db", str(tmp_path / name)]) == EXIT_FINE

    assert exported(tmp_path, str(tmp_path / "a.db")) == exported(tmp_path, str(tmp_path / "b.db"))
    assert "ops.db: 6 configurations were new, 0 were known" in capsys.readouterr().out


def test_a_database_that_is_not_there_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(["db", "merge", small(tmp_path), str(tmp_path / "x.db"), "--db", str(tmp_path / "y.db")]) == EXIT_BAD_INPUT
    )

    assert "there is no database" in capsys.readouterr().err
    assert not (tmp_path / "y.db").exists()


def test_the_contents_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = database_in(tmp_path)
    with Store.open(database) as store:
        before = list(store.configurations())

    assert run(["db", "vacuum", "--db", database]) == EXIT_FINE

    with Store.open(database) as store:
        assert list(store.configurations()) == before
    assert "KiB -> " in capsys.readouterr().out


def test_a_missing_database_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["db", "vacuum", "--db", str(tmp_path / "x.db")]) == EXIT_BAD_INPUT

    assert "there is no database" in capsys.readouterr().err


def change(database: str, command: str) -> None:
    connection = sqlite3.connect(database)
    connection.execute(command)
    connection.commit()
    connection.close()


def test_a_sound_database(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["db", "verify", "--db", database_in(tmp_path)]) == EXIT_FINE

    shown = capsys.readouterr().out
    assert "6 configurations, 0 problems" in shown
    assert "2 of 2 foreign hashes verified" in shown


def test_a_column_that_was_changed_is_a_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = database_in(tmp_path)
    change(database, "UPDATE configuration SET op = 'x'")

    assert run(["db", "verify", "--db", database, "--json"]) == EXIT_FINDINGS

    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "torchstone/db-verify/1"
    assert len(document["faults"]) == 6


def test_a_hash_that_no_rule_makes_is_a_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = database_in(tmp_path)
    change(database, """UPDATE configuration SET knowledge = replace(knowledge, '"hash":"', '"hash":"0')""")

    assert run(["db", "verify", "--db", database]) == EXIT_FINDINGS

    shown = capsys.readouterr().out
    assert "0 of 2 foreign hashes verified" in shown
    assert "no known rule reproduces the hash 0" in shown
