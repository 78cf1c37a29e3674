import json
from pathlib import Path

import pytest

from tests.cli.databases import master_file, text_file
from tests.configs.real_files import real_file
from tests.configs.samples import master_v1, sharded_argument
from torchstone.cli.main import run
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINDINGS, EXIT_FINE


def test_files_of_any_format_in_one_go(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(master_file(tmp_path)), str(text_file(tmp_path))]

    assert run(["db", "import", *files, "--db", str(tmp_path / "x.db")]) == EXIT_FINE

    shown = capsys.readouterr()
    assert "master.json (ttnn_master_v2): 2 configurations of 1 ops, 2 new" in shown.out
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
    assert "1 arguments not recorded:" in shown


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
