import json
import re
import shlex
from pathlib import Path

import click
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.cli.programs import ROOT
from tests.cli.references import NET, make_reference, write_net
from torchstone.cli.main import run
from torchstone.cli.options import Session
from torchstone.cli.reference import ShowOptions, command, show_comparison
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINDINGS, EXIT_FINE
from torchstone.record.reference import Comparison
from torchstone.reference import load_golden

DELIVERABLES = ("golden_data", "graph", "summary", "operators", "shapes", "parameters")

UNSEEDED = """
import torch
from torch import nn

def load_model(): return nn.Linear(4, 2).eval()
def get_inputs(): return torch.linspace(-1, 1, 8).reshape(2, 4)
def other_each_time():
    torch.seed()
    return load_model()
"""


def checklist_of(folder: Path) -> dict[str, bool]:
    document = json.loads((folder / "checklist.json").read_bytes())
    return {box["name"]: all(check["passed"] for check in box["checks"]) for box in document["boxes"]}


def test_there_is_a_subcommand_for_each_step() -> None:
    assert sorted(command.commands) == ["compare", "make", "verify"]


def test_a_model_without_a_subcommand_is_made(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reference", "tiny:bert"]) == EXIT_BAD_INPUT

    assert "Missing option '--dir'" in capsys.readouterr().err


def test_options_may_stand_before_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reference", "--mode", "fake", "--dir", "out", "tiny:bert"]) == EXIT_BAD_INPUT

    assert "--mode fake does not have" in capsys.readouterr().err


def test_help_lists_the_subcommands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reference", "--help"]) == EXIT_FINE

    shown = capsys.readouterr().out
    assert all(name in shown for name in command.commands)
    assert isinstance(command, click.Group)


def test_the_tutorial_does_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "tutorials" / "step-one-of-a-bring-up.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (make, compare) = (shlex.split(text)[1:] for kind, text in blocks if not kind)
    port, spoilt, check = (text for kind, text in blocks if kind == "python")
    (shown,) = (text for kind, text in blocks if kind == "text")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}

    assert run(make) == EXIT_FINE
    assert capsys.readouterr().out == shown
    exec(port, names)  # noqa: S102 - the page's own code
    assert run(compare) == EXIT_FINE
    exec(port.replace("logits.to(torch.bfloat16)", "logits * 2"), names)  # noqa: S102 - as the page says
    assert run(compare) == EXIT_FINDINGS
    assert "it is about 2 times the golden tensor" in capsys.readouterr().out
    exec(spoilt, names)  # noqa: S102 - the page's own code
    assert run(compare) == EXIT_FINDINGS
    assert "wrong, first at modules/cls" in capsys.readouterr().out
    exec(f"{check}test_the_port_gives_what_the_reference_gives()", names)  # noqa: S102 - the page's own code


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
    assert "save them with --with-weights" in capsys.readouterr().out
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
        (["--backward"], "drop --backward"),
        (["--mode", "meta"], "needs real values"),
        (["--kv-lengths", "many"], "not a list of token counts"),
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


def test_an_unchanged_model_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_reference(tmp_path)

    assert run(["reference", "verify", str(folder)]) == EXIT_FINE
    assert "2 of 2 tensors are equal bit for bit" in capsys.readouterr().out


def test_a_changed_model_is_found_at_the_module_that_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_reference(tmp_path, "--intermediates", "all")
    (tmp_path / "net.py").write_text(
        NET.replace("layer(x).relu()", "layer(x).relu() if layer is not self.layers[1] else -layer(x)")
    )
    capsys.readouterr()

    assert run(["reference", "verify", str(folder), "--json"]) == EXIT_FINDINGS
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "torchstone/comparison/1"
    assert found["first_wrong"] == "layers.2"
    assert found["first_wrong_tensor"] == "modules/layers.2/inputs/input"


@pytest.mark.parametrize("name", ["graph.svg", "summary.csv", "operators.json", "tensors.csv", "parameters.csv"])
def test_a_document_of_each_box_that_was_changed_is_found(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_reference(tmp_path)
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content.replace(b"6", b"7"))
    capsys.readouterr()

    assert run(["reference", "verify", str(folder)]) == EXIT_FINDINGS
    assert f"{name} was changed after it was checked" in capsys.readouterr().out
    (folder / name).write_bytes(content)
    assert run(["reference", "verify", str(folder)]) == EXIT_FINE


def test_a_folder_without_golden_data_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reference", "verify", str(tmp_path)]) == EXIT_BAD_INPUT
    assert "golden_data.json" in capsys.readouterr().err


def test_a_good_port_passes_in_each_kind_of_file(tmp_path: Path) -> None:
    folder = make_reference(tmp_path)
    logits = load_golden(folder).tensors["outputs/logits"]
    save_file({"logits": logits.to(torch.bfloat16)}, tmp_path / "port.safetensors")
    np.savez(tmp_path / "port.npz", logits=logits.numpy())
    torch.save({"logits": logits}, tmp_path / "port.pt")

    for name in ("port.safetensors", "port.npz", "port.pt"):
        assert run(["reference", "compare", str(folder), str(tmp_path / name)]) == EXIT_FINE


def test_a_wrong_port_fails_at_its_first_wrong_module(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_reference(tmp_path, "--intermediates", "all")
    port = dict(load_golden(folder).tensors)
    for name in ("modules/layers.2/outputs", "modules/head/outputs", "outputs/logits"):
        port[name] = -port[name]
    save_file(port, tmp_path / "port.safetensors")
    capsys.readouterr()

    port_file, junit = str(tmp_path / "port.safetensors"), tmp_path / "ci.xml"
    code = run(["reference", "compare", str(folder), port_file, "--only-wrong", "--junit", str(junit)])

    shown = capsys.readouterr().out
    assert 'name="modules/layers.2/outputs"' in junit.read_text(encoding="utf-8")
    assert code == EXIT_FINDINGS
    assert "wrong, first at modules/layers.2/outputs (layers.2)" in shown
    assert "modules/layers.0/outputs" not in shown


def test_a_saved_comparison_is_shown_in_the_report(tmp_path: Path) -> None:
    folder = make_reference(tmp_path)
    candidate = str(folder / "golden_data.safetensors")

    assert run(["reference", "compare", str(folder), candidate, "--save", "--quiet"]) == EXIT_FINE
    assert (folder / "comparison.json").is_file()


def test_a_file_with_other_names_is_refused_with_those_wanted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_reference(tmp_path)
    save_file({"a": torch.ones(1), "b": torch.ones(1)}, tmp_path / "port.safetensors")

    assert run(["reference", "compare", str(folder), str(tmp_path / "port.safetensors")]) == EXIT_BAD_INPUT
    assert "name them outputs/logits" in capsys.readouterr().err


@pytest.mark.parametrize(("passed", "code"), [(True, EXIT_FINE), (False, EXIT_FINDINGS)])
def test_the_verdict_is_the_exit_code(*, passed: bool, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    found = Comparison(model="net", candidate="a", passed=passed, first_wrong="outputs", first_wrong_module="")

    assert show_comparison(found, Session(), ShowOptions(only_wrong=False, as_json=False)) == code
    assert ("passed" if passed else "wrong, first at outputs") in capsys.readouterr().out
