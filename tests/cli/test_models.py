import json
import subprocess
import sys

import pytest

from torchstone.cli.main import run
from torchstone.models.zoo.catalogue import entries


def test_the_table_names_every_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["models"]) == 0
    shown = capsys.readouterr()
    assert all(entry.id in shown.out for entry in entries())
    assert "tiny:bert" in shown.err


def test_the_columns_are_straight_and_numbers_flush_right(capsys: pytest.CaptureFixture[str]) -> None:
    run(["models", "--filter", "gpt2", "--quiet"])
    header, *rows = capsys.readouterr().out.splitlines()

    end = header.index("parameters") + len("parameters")
    assert header.split() == ["model", "family", "parameters", "kind"]
    assert len(rows) > 2
    assert {row[end - 2 : end + 2] for row in rows} <= {" M  ", " G  "}, "every number ends below the title"


def test_the_filter_looks_at_id_family_and_kind(capsys: pytest.CaptureFixture[str]) -> None:
    run(["models", "--filter", "SSM", "--quiet"])
    shown = capsys.readouterr()
    assert "state-spaces/mamba-130m-hf" in shown.out
    assert "gpt2" not in shown.out
    assert shown.err == ""


def test_the_document_names_its_schema_and_holds_the_configurations(capsys: pytest.CaptureFixture[str]) -> None:
    run(["models", "--json", "--filter", "Llama-2-7b-hf"])
    document = json.loads(capsys.readouterr().out)
    (model,) = document["models"]
    assert document["schema"] == "torchstone/models/1"
    assert (model["id"], model["parameters"]) == ("meta-llama/Llama-2-7b-hf", 6_738_415_616)
    assert model["config"]["hidden_size"] == 4096


def test_listing_imports_no_torch() -> None:
    program = "import sys; from torchstone.cli.main import run; run(['models', '-q']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False, capture_output=True).returncode == 0
