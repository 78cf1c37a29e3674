import json
from pathlib import Path

import pytest

from torchstone.cli.main import run


def test_the_list_names_every_device(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["hardware"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("n150", "p150", "h100", "tpu-v5e"))
    assert "9,216?  bfloat16 2368?" in shown  # of galaxy, of which no data sheet was read
    assert "288  bfloat16 74, " in shown


def test_the_document_names_its_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["hardware", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "torchstone/hardware/1"
    assert document["hardware"][0]["name"] == "n150"


def test_one_device_is_shown_with_its_source(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["hardware", "show", "n150"]) == 0
    assert "docs.tenstorrent.com" in capsys.readouterr().out
    assert run(["hardware", "show", "gpu"]) == 2
    assert "choose one of" in capsys.readouterr().err


def test_what_is_measured_can_be_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "cpu.toml"
    assert run(["hardware", "measure", "--out", str(out)]) == 0
    assert out.read_text() == capsys.readouterr().out
    assert run(["hardware", "show", str(out)]) == 0
