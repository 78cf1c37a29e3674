import json
from pathlib import Path

import pytest
import torch

from tests.cli.references import make_reference, write_net
from torchstone.cli.main import run
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINDINGS, EXIT_FINE
from torchstone.reference import load_golden

DELIVERABLES = ("golden_data", "graph", "summary", "operators", "shapes", "parameters")


def checklist_of(folder: Path) -> dict[str, bool]:
    document = json.loads((folder / "checklist.json").read_bytes())
    return {box["name"]: all(check["passed"] for check in box["checks"]) for box in document["boxes"]}


def test_all_six_boxes_are_ticked_and_every_file_they_name_is_there(tmp_path: Path) -> None:
    folder = make_reference(tmp_path, "--intermediates", "all", "--with-weights")

    document = json.loads((folder / "checklist.json").read_bytes())
    assert checklist_of(folder) == dict.fromkeys(DELIVERABLES, True)
    assert document["complete"]
    assert all((folder / name).stat().st_size for box in document["boxes"] for name in box["files"])
    assert (folder / "CHECKLIST.md").read_text().count("- [x] ") == len(DELIVERABLES)
    assert (folder / "report.html").is_file()


def test_the_golden_data_is_that_of_the_model(tmp_path: Path) -> None:
    golden = load_golden(make_reference(tmp_path, "--intermediates", "head"))

    assert golden.tensors["outputs/logits"].shape == (2, 2)
    assert torch.equal(golden.tensors["modules/head/outputs"], golden.tensors["outputs/logits"])


def test_a_model_that_differs_each_time_leaves_the_box_open(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = write_net(tmp_path)

    code = run(["reference", f"{net}::random", "--dir", str(tmp_path / "out"), "--quiet"])

    assert code == EXIT_FINDINGS
    assert "[ ] Golden data" in capsys.readouterr().out
    assert checklist_of(tmp_path / "out") == dict.fromkeys(DELIVERABLES, True) | {"golden_data": False}


UNSEEDED = """
import torch
from torch import nn

def load_model(): return nn.Linear(4, 2).eval()
def get_inputs(): return torch.linspace(-1, 1, 8).reshape(2, 4)
def other_each_time():
    torch.seed()
    return load_model()
"""


def test_a_model_that_sets_no_seed_has_the_one_of_the_command_and_is_built_again(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(UNSEEDED)
    folder = str(tmp_path / "out")
    for draws in (1, 5):  # what was drawn before must not matter
        torch.rand(draws)
        assert (
            run(["reference", f"{tmp_path / 'net.py'}::load_model", "--dir", folder, "-q", "--seed", "3"]) == EXIT_FINE
        )
        torch.rand(draws)
        assert run(["reference", "verify", folder]) == EXIT_FINE


def test_a_model_with_other_weights_each_time_leaves_the_box_open_but_for_weights_that_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "net.py").write_text(UNSEEDED)
    words = ["reference", f"{tmp_path / 'net.py'}::other_each_time", "--dir", str(tmp_path / "out"), "-q"]

    assert run(words) == EXIT_FINDINGS
    assert "keep them with --with-weights" in capsys.readouterr().out
    assert run([*words, "--with-weights"]) == EXIT_FINE
    assert run(["reference", "verify", str(tmp_path / "out")]) == EXIT_FINE


def test_a_model_that_fails_gives_its_failure_and_no_golden_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    net = write_net(tmp_path)

    code = run(["reference", f"{net}::broken", "--dir", str(tmp_path / "out")])

    assert code == EXIT_FINDINGS
    printed = capsys.readouterr()
    assert "head" in printed.out
    assert "no reference was made" in printed.err
    assert (tmp_path / "out" / "trace.json").is_file()
    assert not (tmp_path / "out" / "golden_data.json").exists()


def test_a_model_that_fails_opens_every_box_that_an_earlier_one_ticked(tmp_path: Path) -> None:
    folder = make_reference(tmp_path)

    assert run(["reference", f"{tmp_path / 'net.py'}::broken", "--dir", str(folder), "-q"]) == EXIT_FINDINGS
    assert checklist_of(folder) == dict.fromkeys(DELIVERABLES, False)
    assert (folder / "CHECKLIST.md").read_text().count("**failed**: the model runs: forward failed in") == 6


def test_json_prints_the_checklist(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = write_net(tmp_path)

    assert run(["reference", f"{net}::load_model", "--dir", str(tmp_path / "out"), "--json", "-q"]) == EXIT_FINE
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "torchstone/checklist/1"
    assert [box["name"] for box in document["boxes"]] == list(DELIVERABLES)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--backward"], "leave --backward out"),
        (["--mode", "meta"], "needs real values"),
        (["--kv-lengths", "many"], "no list of token counts"),
        (["--intermediates", "nothing.*"], "matches no module"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(
    options: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    net = write_net(tmp_path)

    assert run(["reference", f"{net}::load_model", "--dir", str(tmp_path / "out"), *options]) == EXIT_BAD_INPUT
    assert words in capsys.readouterr().err


def test_a_folder_with_a_capture_is_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_reference(tmp_path)

    assert run(["reference", str(folder), "--dir", str(tmp_path / "out")]) == EXIT_BAD_INPUT
    assert "has no values" in capsys.readouterr().err
