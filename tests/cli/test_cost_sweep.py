import json
from pathlib import Path

import pytest

from torchstone.cli.main import run


def test_each_size_is_captured_and_priced(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cost", "tiny:llama", "--sweep", "seq_len=8..32", "--json", "--hardware", "n150"]) == 0
    document = json.loads(capsys.readouterr().out)
    flops = [point["totals"]["matmul_flops"] for point in document["points"]]
    assert document["schema"] == "torchstone/cost_sweep/1"
    assert [point["value"] for point in document["points"]] == [8, 16, 32]
    assert flops[1] > 2 * flops[0]
    assert all(point["predicted_s"] > 0 for point in document["points"])


def test_the_table_has_a_line_for_each_size(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cost", "tiny:llama", "--sweep", "batch_size=1,2"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_a_finished_run_cannot_be_swept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cost", "tiny:bert", "--dir", str(tmp_path / "out"), "-q"]) == 0
    assert run(["cost", str(tmp_path / "out"), "--sweep", "seq_len=8..16"]) == 2
    assert "finished run" in capsys.readouterr().err
    assert run(["cost", str(tmp_path / "out"), "--logits", "last"]) == 2
    assert "cannot be changed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("wrong", "name"),
    [(["--compare-with", "fvcore"], "--compare-with"), (["--by", "formula"], "--by"), (["--tp", "2"], "--tp")],
)
def test_what_is_about_one_size_is_refused(wrong: list[str], name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cost", "tiny:llama", "--sweep", "seq_len=8..16", *wrong]) == 2
    assert f"{name}" in capsys.readouterr().err


def test_sizes_go_into_a_folder_with_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "out"
    assert run(["cost", "tiny:llama", "--sweep", "seq_len=8,16", "--json", "--dir", str(folder)]) == 0

    printed = capsys.readouterr().out
    assert json.loads((folder / "cost_sweep.json").read_text()) == json.loads(printed)
    assert "tiny:llama" in (folder / "report.html").read_text()


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert run(["cost", "tiny:llama", "--sweep", "seq_len=8", "--dir", str(tmp_path / "file" / "out"), "-q"]) == 2
    assert "choose another --dir" in capsys.readouterr().err


def test_sizes_go_into_a_spreadsheet(tmp_path: Path) -> None:
    path = tmp_path / "sizes.csv"
    assert run(["cost", "tiny:llama", "--sweep", "seq_len=8,16", "--csv", str(path), "--strict", "-q"]) == 0
    assert [line.split(",")[0] for line in path.read_text().splitlines()] == ["seq_len", "8", "16"]
