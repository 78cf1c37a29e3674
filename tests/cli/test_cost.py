import json
from pathlib import Path

import pytest

from torchstone.cli.main import run

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(8, 8) for _ in range(3)))
    def forward(self, x):
        return torch.relu(self.layers(x)){tail}

def load_model():
    return Net(), torch.ones(2, 8)
"""

CUSTOM = """
@torch.library.custom_op("costtest::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2

@twice.register_fake
def _(x):
    return torch.empty_like(x)
"""

PRICES = """
from torchstone.cost import Price, register_price

@register_price("costtest::twice")
def twice(call):
    return Price(flops=call.output_specs[0].elements)
"""

TWICE = """
import torch
from torch import nn

class Scale(nn.Module):
    def forward(self, x):
        return x * 2

class Net(nn.Sequential): pass

def load_model():
    return Net(nn.Linear(8, 4), Scale(), nn.Linear(4, 6), Scale()), torch.ones(2, 8)
"""


@pytest.fixture
def net(tmp_path: Path) -> str:
    path = tmp_path / "net.py"
    path.write_text(NET.format(tail=""))
    return f"{path}::load_model"


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    assert run(["cost", *arguments, "--json"]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_the_document_has_its_fixed_keys(net: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, net)
    totals, modules = found["totals"], found["modules"]
    assert isinstance(totals, dict)
    assert isinstance(modules, list)
    assert found["schema"] == "torchstone/cost/1"
    assert (totals["flops"], totals["matmul_flops"]) == (3 * (256 + 16) + 16, 3 * 256)
    assert totals["parameter_bytes"] == 3 * 72 * 4
    assert {"path", "class", "flops", "self_flops", "bytes_read", "bytes_written"} <= modules[0].keys()
    assert found["unpriced"] == {}


def test_the_switches_are_recorded_with_the_numbers(net: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, net, "--count", "macs", "--causal", "half")
    totals, conventions = found["totals"], found["conventions"]
    assert isinstance(totals, dict)
    assert isinstance(conventions, dict)
    assert totals["matmul_flops"] == 3 * 128
    assert (conventions["multiply_add"], conventions["causal"]) == (1, "half")


def test_the_tables_fold_layers_and_name_the_peak(net: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cost", net]) == 0
    shown = capsys.readouterr().out
    assert "3 x Linear" in shown
    assert "live at the peak" in shown
    assert "0 unpriced" in shown
    assert run(["cost", net, "--no-fold", "--filter", "linear"]) == 0
    assert "layers.2" in capsys.readouterr().out


@pytest.mark.parametrize(("by", "word"), [("op", "aten.addmm.default"), ("class", "Linear"), ("depth", "depth")])
def test_the_first_table_can_be_by_op_class_or_depth(
    net: str, capsys: pytest.CaptureFixture[str], by: str, word: str
) -> None:
    assert run(["cost", net, "--by", by]) == 0
    assert word in capsys.readouterr().out


def test_a_folder_holds_the_trace_and_the_costs_and_is_priced_again_alike(
    net: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    first = document(capsys, net, "--dir", str(folder), "--csv", str(tmp_path / "cost.csv"))
    assert json.loads((folder / "cost.json").read_text()) == first
    assert document(capsys, str(folder)) == first
    lines = (tmp_path / "cost.csv").read_text().splitlines()
    assert lines[0].startswith("path,class,flops")
    assert len(lines) == 1 + 5


def test_an_op_without_a_price_is_named_and_strict_makes_it_a_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "odd.py"
    path.write_text(NET.format(tail=" + torch.ops.costtest.twice(x)").replace("class Net", f"{CUSTOM}\nclass Net", 1))
    assert run(["cost", f"{path}::load_model"]) == 0
    assert "not included in any total: costtest.twice.default (1 x)" in capsys.readouterr().out
    assert run(["cost", f"{path}::load_model", "--strict"]) == 1
    assert "no price for costtest.twice.default" in capsys.readouterr().err

    prices = tmp_path / "prices.py"
    prices.write_text(PRICES)
    from torchstone.cost.registry import forget_price

    try:
        assert run(["cost", f"{path}::load_model", "--strict", "--prices", str(prices)]) == 0
    finally:
        forget_price("costtest::twice")


def test_a_prices_file_that_cannot_be_used_is_wrong_input(
    net: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("1 / 0")
    assert run(["cost", net, "--prices", str(broken)]) == 2
    assert "raised ZeroDivisionError" in capsys.readouterr().err
    assert run(["cost", net, "--prices", str(tmp_path / "none.py")]) == 2
    assert "cannot read" in capsys.readouterr().err


def numbers(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, dict[str, float]]:
    """The document of a small model, read as tables of numbers."""
    assert run(["cost", "tiny:llama", *arguments, "--json"]) == 0
    found: dict[str, dict[str, float]] = json.loads(capsys.readouterr().out)
    return found


def test_a_device_gives_a_prediction_and_a_split(capsys: pytest.CaptureFixture[str]) -> None:
    found = numbers(capsys, "--hardware", "n150", "--tp", "4")
    assert 0 < found["prediction"]["ideal_s"] <= found["prediction"]["total_s"] < 1
    assert found["tensor_parallel"]["devices"] == 4
    assert run(["cost", "tiny:llama", "--hardware", "n150", "--tp", "4"]) == 0
    shown = capsys.readouterr().out
    assert "a bound by published rates, not a measurement" in shown
    assert "sent by each" in shown


def test_an_optimiser_adds_its_states(capsys: pytest.CaptureFixture[str]) -> None:
    found = numbers(capsys, "--backward", "--optimizer", "adamw")
    assert found["optimiser"]["state_bytes"] == 2 * found["totals"]["parameter_bytes"]


def test_only_the_last_logits_can_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    every = numbers(capsys, "--logits", "all", "--seq-len", "16")
    last = numbers(capsys, "--logits", "last", "--seq-len", "16")
    saved = every["totals"]["matmul_flops"] - last["totals"]["matmul_flops"]
    assert saved == 2 * 15 * 64 * 512
    assert run(["cost", "tiny:bert", "--logits", "last"]) == 2
    assert "does not accept logits_to_keep" in capsys.readouterr().err


def test_an_optimiser_without_a_backward_pass_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cost", "tiny:llama", "--optimizer", "adamw", "-q"]) == 2
    assert "add --backward" in capsys.readouterr().err


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
    assert "saved trace of one size" in capsys.readouterr().err
    for option in (["--logits", "last"], ["--mode", "cpu"], ["--no-reuse"]):
        assert run(["cost", str(tmp_path / "out"), *option]) == 2
        assert "cannot be changed" in capsys.readouterr().err
    assert run(["cost", str(tmp_path / "out"), "--mode", "fake"]) == 0


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        (["--compare-with", "fvcore"], "--compare-with"),
        (["--by", "formula"], "--by"),
        (["--tp", "2"], "--tp"),
        (["--plan", "nowhere", "--hardware", "n150"], "--plan"),
    ],
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


def test_a_difference_is_explained_op_by_op(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cost", "tiny:mixtral", "--compare-with", "flop_counter", "--by", "depth"]) == 0
    shown = capsys.readouterr().out
    assert "flop_counter: _grouped_mm: 0 against 25,165,824: not counted, and it does not say so" in shown


def test_the_comparison_is_a_part_of_the_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cost", "tiny:bert", "--compare-with", "flop_counter", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "torchstone/cost/1"
    assert document["comparison"]["counters"][0]["count"]["name"] == "flop_counter"


def test_counters_need_the_model_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cost", "tiny:bert", "--dir", str(tmp_path / "out"), "-q"]) == 0
    assert run(["cost", str(tmp_path / "out"), "--compare-with", "flop_counter"]) == 2
    assert run(["cost", "tiny:bert", "--compare-with", "abacus"]) == 2
    assert "unknown counter 'abacus'" in capsys.readouterr().err


def test_a_backward_pass_is_not_compared_with_forward_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cost", "tiny:bert", "--backward", "--compare-with", "flop_counter", "-q"]) == 2
    assert "count a forward pass" in capsys.readouterr().err


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The user's own folder of formulas, with nothing in it."""
    monkeypatch.setenv("TORCHSTONE_HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.mark.usefixtures("home")
def test_the_document_by_formula_names_its_schema(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "tiny:bert", "--by", "formula")
    coverage, modules = found["coverage"], found["modules"]
    assert isinstance(coverage, dict)
    assert isinstance(modules, list)
    assert found["schema"] == "torchstone/cost_by_formula/1"
    assert found["disagreeing"] == []
    assert coverage["traced only"] == 0
    assert modules[0]["flops"] == modules[0]["traced_flops"] > 0


@pytest.mark.usefixtures("home")
def test_a_real_size_is_evaluated_from_formulas(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cost", "meta-llama/Llama-2-7b-hf", "--by", "formula", "--seq-len", "64", "--batch-size", "3"]) == 0

    out = capsys.readouterr().out
    assert "32 x LlamaDecoderLayer" in out
    assert "agreement: 422 of 422 modules with a formula match the trace exactly" in out


@pytest.mark.parametrize(
    "option",
    [
        ["--hardware", "n150"],
        ["--tp", "2"],
        ["--compare-with", "flop_counter"],
        ["--csv", "f"],
        ["--dir", "d"],
        ["--strict"],
    ],
    ids=lambda option: option[0],
)
@pytest.mark.parametrize("no_trace", [[], ["--no-trace"]])
def test_options_without_effect_are_refused_by_formula(
    option: list[str], no_trace: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["cost", "meta-llama/Llama-2-7b-hf", "--by", "formula", *no_trace, *option]) == 2

    assert f"drop it or {option[0]}" in capsys.readouterr().err


def test_an_empty_name_is_no_hardware(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cost", "tiny:bert", "--hardware", ""]) == 2

    assert "there is no hardware ''" in capsys.readouterr().err


def test_other_conventions_are_refused_by_formula(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cost", "tiny:llama", "--by", "formula", "--count", "macs"]) == 2

    assert "drop --count macs" in capsys.readouterr().err


def test_a_right_answer_of_an_agent_is_used_at_once_as_pending(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "net.py").write_text(TWICE)
    (home / "answers").mkdir()
    moved = "${dtype_bytes} * ${elements}"
    memory = {"parameters": ["elements", "dtype_bytes"], "reads_template": moved, "writes_template": moved}
    flops = {"parameters": ["elements"], "formula_template": "${elements}", "thinking_process": "one product each"}
    (home / "answers" / "01-answer.txt").write_text(json.dumps({"flop_analysis": flops, "memory_analysis": memory}))
    replay = ["--agent", "--provider", "replay", "--answers", str(home / "answers")]

    assert run(["cost", f"{home / 'net.py'}::load_model", "--by", "formula", *replay]) == 0

    shown = capsys.readouterr().out
    assert "coverage: 2 formula, 0 derived now, 2 pending, 1 traced only of 5 modules" in shown
    assert "Net was measured at 1 point; 2 or more are needed" in shown


def test_without_the_claude_command_classes_stay_traced_only(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(home))
    path = home / "net.py"
    path.write_text(TWICE)

    assert run(["cost", f"{path}::load_model", "--by", "formula", "--agent"]) == 0
    shown = capsys.readouterr()
    assert "the command claude is not installed" in shown.err
    assert "3 traced only of 5 modules" in shown.out


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--agent"], "--agent requires --by formula"),
        (["--answers=."], "--answers requires --by formula --agent"),
        (["--provider=claude"], "--provider requires --by formula --agent"),
        (["--by=formula", "--provider=claude"], "--provider requires --by formula --agent"),
        (["--by=formula", "--answers=."], "--answers requires --by formula --agent"),
        (["--sweep=batch_size=1,2", "--by=op"], "--by op groups the cost of one size"),
        (["--sweep=batch_size=1,2", "--batch-size=2"], "--sweep batch_size gives the values of --batch-size"),
    ],
)
def test_an_option_that_another_one_leaves_without_effect_is_wrong_input(
    options: list[str], expected: str, net: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["cost", net, *options]) == 2
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["static", "expanded"])
def test_formulas_are_not_asked_about_a_cache_that_does_not_grow(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cost", "tiny:llama", "--phase", "decode", "--cache", kind, "--by", "formula"]) == 2
    assert f"drop --by formula or --cache {kind}" in capsys.readouterr().err
