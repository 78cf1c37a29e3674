import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.cli.programs import EXAMPLE, ROOT, torchstone
from tests.report.folders import folder_of
from tests.report.traces import transformer
from torchstone.cli.main import run
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINDINGS, EXIT_FINE
from torchstone.record.codec import load
from torchstone.record.trace import Trace

WIDTH = 128
BLOCK = 2 * 2 * WIDTH + (3 + 1 + 4 + 4) * WIDTH * WIDTH + (3 + 1 + 4 + 1) * WIDTH  # norms, weights, biases
PARAMETERS = (1000 + 256) * WIDTH + 6 * BLOCK + 2 * WIDTH + 1000 * WIDTH

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.second = nn.Linear(4, 8)

    def forward(self, x):
        return self.second(self.first(x))

def broken_model(): return Net()
def good_model(): return nn.Sequential(nn.Linear(4, 8), nn.ReLU())
def get_inputs(): return torch.zeros(2, 4)
def two_inputs(): return torch.zeros(2, 4), torch.zeros(2, 4)
def raises(): raise RuntimeError("no weights here")
def no_model(): return 3
"""


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that inspecting the example leaves."""
    folder = tmp_path_factory.mktemp("example")
    assert run(["inspect", EXAMPLE, "--dir", str(folder), "--quiet"]) == EXIT_FINE
    return folder


@pytest.fixture
def net(tmp_path: Path) -> str:
    (tmp_path / "net.py").write_text(NET)
    return str(tmp_path / "net.py")


def shown(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = EXIT_FINE) -> str:
    """What inspect prints."""
    capsys.readouterr()
    assert run(["inspect", *map(str, arguments)]) == code
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The sentence with which inspect refuses wrong input."""
    capsys.readouterr()
    assert run(["inspect", *map(str, arguments)]) == EXIT_BAD_INPUT
    printed = capsys.readouterr()
    assert printed.out == ""
    lines = [line for line in printed.err.splitlines(keepends=True) if not line.startswith("executing ")]
    assert len(lines) == 1, "one sentence"
    return lines[0]


def document_of(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = EXIT_FINE) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(shown(capsys, *arguments, "--json", code=code))
    return document


def test_the_tree_folds_the_layers_and_ends_in_the_totals(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, example)

    assert "6 x Block" in text
    assert "├─ blocks" in text
    assert f"parameters  {PARAMETERS:,} (5.64 MiB)" in text
    assert "captured    with fake tensors (fastest faithful mode)" in text


def test_depth_and_filter_choose_rows(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "├─ blocks" in shown(capsys, example, "--depth", "1")
    assert "─ attention" not in shown(capsys, example, "--depth", "1")
    filtered = shown(capsys, example, "--filter", "layernorm")
    assert "blocks.0.norm1" in filtered
    assert "Embedding" not in filtered
    assert "3 of 16 rows contain 'layernorm'" in filtered


def test_columns_choose_columns(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header = shown(capsys, example, "--columns", "params,bytes").splitlines()[0]

    assert header.split() == ["module", "params", "bytes"]


def test_unknown_columns_are_named_with_those_there_are(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(example), "--columns", "params,flops"]) == EXIT_BAD_INPUT
    assert "--columns has no 'flops'; choose from class, params" in capsys.readouterr().err


def test_no_fold_shows_every_layer(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, example, "--no-fold").count(" Block ") == 6


def test_operators_are_counted(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, example, "--operators").splitlines()
    (addmm,) = (line.split() for line in lines if line.startswith("aten.addmm.default"))

    assert addmm[1] == "24", "four linear layers with a bias in each of six blocks"


def test_unique_modules_are_listed_once(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, example, "--unique").splitlines()
    (block,) = (line.split() for line in lines if " Block " in line)

    assert block[:4] == ["mod_004_0", "Block", "6", "6"]


def test_the_document_has_the_promised_keys(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = document_of(capsys, example)
    totals = document["totals"]

    assert document["schema"] == "torchstone/inspect/1"
    assert {"parameters", "parameter_bytes", "modules", "unique_modules", "ops", "distinct_ops"} <= totals.keys()
    assert all(
        {"path", "class", "parameters", "inputs", "outputs", "calls"} <= row.keys() for row in document["modules"]
    )
    assert all({"op", "calls"} <= row.keys() for row in document["operators"])
    assert document["failure"] is None


def test_the_numbers_of_the_document_agree_with_each_other(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = document_of(capsys, example)
    totals = document["totals"]

    assert document["modules"][0]["parameters"] == totals["parameters"] == PARAMETERS
    assert totals["parameter_bytes"] == 4 * totals["parameters"]
    assert len(document["modules"]) == totals["modules"]
    assert len(document["operators"]) == totals["distinct_ops"]
    assert sum(row["calls"] for row in document["operators"]) == totals["ops"]


def test_the_folder_holds_what_was_promised(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unique = msgspec.json.decode((example / "unique_modules.json").read_bytes())
    promised = {"id", "class_name", "module_path", "parent", "input_shapes", "output_shapes", "parameters",
                "occurrences", "status", "outcome"}  # fmt: skip

    assert {"trace.json", "unique_modules.json", "report.html"} <= {path.name for path in example.iterdir()}
    assert unique["schema"] == "torchstone/unique_modules/1"
    assert all(promised <= module.keys() for module in unique["modules"])
    assert len(unique["modules"]) == document_of(capsys, example)["totals"]["unique_modules"]


def test_a_folder_is_read_back_without_torch(example: Path) -> None:
    program = "import sys; from torchstone.cli.main import run; run(['inspect', sys.argv[1], sys.argv[2]]);"
    check = "sys.exit([name for name in ('torch', 'transformers', 'numpy') if name in sys.modules] or 0)"
    for view in ("--json", "--operators", "--unique"):
        done = subprocess.run(
            [sys.executable, "-c", program + check, str(example), view], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


def test_two_runs_print_the_same(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert document_of(capsys, EXAMPLE) == document_of(capsys, example)


def test_two_runs_keep_the_same_but_for_the_time(example: Path, tmp_path: Path) -> None:
    run(["inspect", EXAMPLE, "--dir", str(tmp_path), "--quiet"])
    traces = [load(folder / "trace.json", Trace) for folder in (example, tmp_path)]
    first, second = (
        msgspec.structs.replace(trace, provenance=msgspec.structs.replace(trace.provenance, created=""))
        for trace in traces
    )

    assert first == second
    assert (example / "unique_modules.json").read_bytes() == (tmp_path / "unique_modules.json").read_bytes()


def test_a_tiny_model_of_transformers_is_inspected_by_its_type(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "tiny:bert", "--quiet")

    assert "BertForMaskedLM" in text or "BertForPreTraining" in text
    assert "x BertLayer" in text


def test_a_model_of_the_zoo_needs_no_memory(capsys: pytest.CaptureFixture[str]) -> None:
    document = document_of(capsys, "--model-id", "meta-llama/Llama-2-7b-hf")

    assert document["totals"]["parameters"] == 6_738_415_616


def test_the_readme_shows_what_is_really_printed(capsys: pytest.CaptureFixture[str]) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    command, output = re.findall(r"^\$ torchstone (inspect .*)\n((?:(?!```).*\n)+)", readme, re.MULTILINE)[0]

    assert shown(capsys, *shlex.split(command)[1:]) == output


def test_a_failing_model_is_shown_up_to_where_it_fails(net: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, f"{net}::broken_model", code=EXIT_FINDINGS)

    assert "forward failed in second at aten.addmm.default: RuntimeError" in text
    assert "mat1=float32[2, 8], mat2=float32[4, 8]" in text
    assert "net.py:12 in forward" in text


def test_the_document_of_a_failing_model_names_module_and_op(net: str, capsys: pytest.CaptureFixture[str]) -> None:
    failure = document_of(capsys, f"{net}::broken_model", code=EXIT_FINDINGS)["failure"]

    assert (failure["module"], failure["op"]) == ("second", "aten.addmm.default")
    assert "shapes cannot be multiplied" in failure["error"]


def test_a_failing_model_leaves_a_whole_folder(net: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown(capsys, f"{net}::broken_model", "--dir", tmp_path / "out", code=EXIT_FINDINGS)

    assert "forward failed in second" in shown(capsys, tmp_path / "out", code=EXIT_FINDINGS)


def test_inputs_that_do_not_fit_are_refused(net: str, capsys: pytest.CaptureFixture[str]) -> None:
    message = refused(capsys, f"{net}::good_model", "--inputs", f"{net}::two_inputs")

    assert "two_inputs) do not match Sequential: too many positional arguments; its forward takes input" in message


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("absent", "has no 'absent'; it defines"),
        ("raises", "raised RuntimeError: no weights here"),
        ("no_model", "returned int, not a torch.nn.Module"),
    ],
)
def test_a_function_that_gives_no_model_is_named(
    function: str, message: str, net: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(capsys, f"{net}::{function}")


def test_a_file_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = refused(capsys, f"{tmp_path / 'gone.py'}::load_model", "--dir", tmp_path / "out")

    assert f"the file {tmp_path / 'gone.py'} does not exist" in message
    assert list(tmp_path.iterdir()) == []


def test_an_id_that_nobody_knows_is_answered_with_the_way_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert "`torchstone models` lists what ships" in refused(capsys, "--model-id", "nobody/nothing-7b")


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"model_type": "no_such_type"}', "{}"])
def test_a_broken_configuration_is_refused(content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text(content)

    assert "config.json" in refused(capsys, tmp_path / "config.json")


@pytest.mark.parametrize("damage", ["newer", "cut short"])
def test_a_trace_that_cannot_be_read_is_refused_and_kept(
    damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = folder_of(transformer(1), tmp_path) / "trace.json"
    whole = file.read_bytes()
    damaged = whole.replace(b"trace/2", b"trace/3", 1) if damage == "newer" else whole[: len(whole) // 2]
    file.write_bytes(damaged)

    message = refused(capsys, tmp_path, "--dir", tmp_path)

    assert str(file) in message
    assert file.read_bytes() == damaged


def test_a_folder_that_cannot_be_written_is_named_and_left_alone(
    example: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")

    assert run(["inspect", str(example), "--dir", str(tmp_path / "file" / "out")]) == EXIT_BAD_INPUT
    assert "cannot write to" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_program_keeps_result_and_progress_apart(example: Path, tmp_path: Path) -> None:
    done = torchstone("inspect", str(example), "--json", "--dir", str(tmp_path))

    assert done.returncode == EXIT_FINE
    assert json.loads(done.stdout)["schema"] == "torchstone/inspect/1"
    assert "wrote" in done.stderr


def test_colour_is_used_only_where_it_is_wanted(
    example: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("FORCE_COLOR", "1")

    assert "\x1b[1m" in shown(capsys, example)
    assert "\x1b" not in shown(capsys, example, "--no-color")


@pytest.mark.parametrize(
    "arguments",
    [
        ("inspect", "nope.py::net"),
        ("cost", "nope/"),
        ("inspect", "Qwen/Qwen3-8BB"),
        ("reference", "nope.json", "--dir", "out"),
        ("analyze", "nope.py::net", "--dir", "out"),
        ("inspect", ""),
    ],
)
def test_a_wrong_name_is_answered_before_torch_is_imported(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    program = (
        "import sys; from torchstone.cli.main import run; code = run(sys.argv[1:]);"
        "sys.exit(10 if 'torch' in sys.modules else code)"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, cwd=tmp_path)

    assert done.returncode == EXIT_BAD_INPUT, done.stderr
    assert "None" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_code_is_named_before_it_is_executed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "net.py").write_text("import sys\nsys.exit('executed')\n", encoding="utf-8")

    run(["inspect", f"{tmp_path}/net.py::load_model"])

    assert capsys.readouterr().err.splitlines()[0] == f"executing {tmp_path}/net.py ..."


def test_a_tiny_model_is_no_code_of_the_user(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", "tiny:bert"]) == EXIT_FINE
    assert "executing" not in capsys.readouterr().err
