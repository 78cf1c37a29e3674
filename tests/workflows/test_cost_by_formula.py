import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from torchstone.errors import InputError
from torchstone.formula.agent.providers import ClaudeCommand, Provider, Replay
from torchstone.formula.database.files import load_formulas, own_entries, save_entry
from torchstone.models.inputs import InputOptions
from torchstone.models.pretrained import find_blueprint
from torchstone.record.cost import Causal, Conventions
from torchstone.record.formula import Coverage, FormulaCost
from torchstone.workflows import cost_by_formula as workflow
from torchstone.workflows.cost import CostRequest, PricingOptions
from torchstone.workflows.cost_by_formula import FormulaCostOutcome, FormulaCostRequest, cost_by_formula
from torchstone.workflows.model_source import ModelRequest

NET = """
import torch
from torch import nn

class Scale(nn.Module):
    def forward(self, x):
        return x * 2

class Net(nn.Sequential): pass

def load_model():
    return Net(nn.Linear(8, 4), Scale(), nn.Linear(4, 6), Scale()), torch.ones(2, 8)

class Crossed(nn.Module):
    def __init__(self):
        super().__init__()
        self.rows, self.columns = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        return self.columns(self.rows(x).transpose(1, 2))

class Expanded(Crossed):
    def forward(self, x):
        return self.columns(self.rows(x)[:, :1].expand(-1, 4, -1))

def expanded_model():
    return Expanded(), torch.ones(3, 8, 8)

def crossed_model():
    return Crossed(), torch.ones(3, 8, 8)

def known_model():
    return Net(nn.Linear(8, 4), nn.ReLU()), torch.ones(2, 8)
"""
RIGHT = {"flops": "${elements}", "bytes": "${dtype_bytes} * ${elements}"}
DECODE = InputOptions(phase="decode", cache_len=37, batch_size=3, dtype="bfloat16")


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The user's own folder, and a file with models beside it."""
    monkeypatch.setenv("TORCHSTONE_HOME", str(tmp_path / "home"))
    (tmp_path / "net.py").write_text(NET)
    return tmp_path


def cost(model: str, options: InputOptions | None = None, agent: Provider | None = None) -> FormulaCostOutcome:
    request = ModelRequest(model=model, options=options or InputOptions())
    return cost_by_formula(FormulaCostRequest(cost=CostRequest(model=request), agent=agent))


def coverage(result: FormulaCost) -> tuple[int, ...]:
    return tuple(result.count(one) for one in Coverage)


@pytest.mark.parametrize("model", ["tiny:llama", "tiny:bert", "tiny:t5", "tiny:mixtral", "tiny:vit"])
def test_every_module_of_a_known_model_is_exactly_as_traced(model: str) -> None:
    result = cost(model).result

    assert result.disagreeing == ()
    assert result.count(Coverage.TRACED) == 0
    assert result.modules[0].flops == result.modules[0].traced_flops
    assert result.modules[0].traced_flops > 0


@pytest.mark.parametrize("model", ["tiny:llama", "tiny:gpt2", "tiny:t5"])
def test_the_decode_phase_is_exactly_as_traced(model: str) -> None:
    result = cost(model, DECODE).result

    assert result.disagreeing == ()
    assert result.count(Coverage.TRACED) == result.count(Coverage.DERIVED) == 0


@pytest.mark.parametrize(
    "options",
    [InputOptions(seq_len=5000, layers=1), InputOptions(phase="decode", cache_len=5000, layers=1)],
    ids=["prefill", "decode"],
)
@pytest.mark.parametrize("model", ["mistralai/Mistral-7B-v0.1", "mistralai/Mistral-Nemo-Instruct-2407"])
def test_a_window_that_is_full_or_not_there_is_known(model: str, options: InputOptions) -> None:
    result = cost(model, options).result

    assert result.disagreeing == ()
    assert result.count(Coverage.TRACED) == 0


def test_a_model_of_the_users_own_is_covered_where_classes_are_known(home: Path) -> None:
    assert coverage(cost(f"{home / 'net.py'}::known_model").result) == (2, 0, 0, 1)


@pytest.mark.parametrize(
    ("conventions", "option"),
    [(Conventions(multiply_add=1), "--count macs"), (Conventions(causal=Causal.HALF), "--causal half")],
    ids=["macs", "half"],
)
def test_other_conventions_are_refused(conventions: Conventions, option: str) -> None:
    pricing = PricingOptions(conventions=conventions)
    request = CostRequest(model=ModelRequest(model="tiny:llama"), pricing=pricing)

    with pytest.raises(InputError, match=f"drop {option}"):
        cost_by_formula(FormulaCostRequest(cost=request))


@pytest.mark.heavy
@pytest.mark.parametrize("model", ["tiny:opt", "tiny:distilbert"])
def test_a_backward_pass_is_derived_for_the_model_and_stored_as_a_variant(model: str) -> None:
    """The entries of the forward pass are neither used for it nor removed."""
    request = CostRequest(model=ModelRequest(model=model, backward=True), pricing=PricingOptions(optimizer="adam"))
    outcome = cost_by_formula(FormulaCostRequest(cost=request))
    root = outcome.result.modules[0]

    assert {entry.variant for entry in own_entries().modules.values()} == {"backward"}
    assert outcome.result.optimizer is not None
    assert outcome.result.optimizer.flops == 13 * outcome.result.optimizer.parameters
    assert root.coverage is Coverage.DERIVED
    assert root.flops == root.traced_flops
    assert root.flops is not None
    assert root.flops > 2 * (cost(model).result.modules[0].flops or 0)
    assert outcome.result.disagreeing == ()
    again = cost_by_formula(FormulaCostRequest(cost=request)).result
    assert again.modules[0].coverage is Coverage.FORMULA
    assert again.modules[0].agrees


@pytest.mark.parametrize("model", ["tiny:llama", "tiny:bert"])
def test_a_backward_pass_of_a_shipped_family_needs_no_derivation(model: str) -> None:
    request = CostRequest(model=ModelRequest(model=model, backward=True))
    result = cost_by_formula(FormulaCostRequest(cost=request)).result

    assert result.modules[0].coverage is Coverage.FORMULA
    assert result.modules[0].agrees
    assert result.disagreeing == ()
    assert result.count(Coverage.DERIVED) == 0


def test_a_backward_pass_of_a_model_that_cannot_be_derived_is_traced_only(home: Path) -> None:
    request = CostRequest(model=ModelRequest(model=f"{home / 'net.py'}::known_model", backward=True))
    result = cost_by_formula(FormulaCostRequest(cost=request)).result

    assert result.count(Coverage.TRACED) == len(result.modules)
    assert all("backward" in module.reason for module in result.modules)


def answer(flops: str, moved: str) -> str:
    memory = {"parameters": ["elements", "dtype_bytes"], "reads_template": moved, "writes_template": moved}
    flop = {"parameters": ["elements"], "formula_template": flops, "thinking_process": "one product each"}
    return json.dumps({"flop_analysis": flop, "memory_analysis": memory})


def replay(home: Path, *answers: str) -> Replay:
    folder = home / "answers"
    folder.mkdir()
    for number, text in enumerate(answers, start=1):
        (folder / f"{number:02}-answer.txt").write_text(text)
    return Replay(folder)


def reasons(result: FormulaCost) -> dict[str, str]:
    return {module.class_name.rpartition(".")[2]: module.reason for module in result.modules}


def test_a_right_answer_is_used_at_once_as_pending(home: Path) -> None:
    agent = replay(home, answer("0", "0"), answer(RIGHT["flops"], RIGHT["bytes"]))

    result = cost(f"{home / 'net.py'}::load_model", agent=agent).result

    kept = [entry for entry in own_entries(home / "home").modules.values() if entry.module_path.endswith("Scale")]
    assert coverage(result) == (2, 0, 2, 1)
    assert reasons(result)["Net"].endswith("Net was measured at 1 point; 2 or more are needed")
    assert [entry.validation.status for entry in kept] == ["pending"]


def test_wrong_answers_leave_the_class_traced_only(home: Path) -> None:
    agent = replay(home, *[answer("0", "0")] * 3)

    result = cost(f"{home / 'net.py'}::load_model", agent=agent).result

    assert coverage(result) == (2, 0, 0, 3)
    assert reasons(result)["Scale"].startswith(
        "no answer of replay was correct: at elements=8, dtype_bytes=4 the formula gives 0"
    )
    assert not (home / "home" / "module_db.json").exists()


def test_an_agent_that_does_not_answer_is_a_warning(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(home))

    outcome = cost(f"{home / 'net.py'}::load_model", agent=ClaudeCommand(None))

    assert outcome.result.count(Coverage.TRACED) == 3
    (warning,) = outcome.warnings
    assert "the command claude is not installed" in warning


def test_a_formula_of_the_user_that_the_trace_contradicts_is_reported_and_removed(home: Path) -> None:
    linear = load_formulas().find("torch.nn.Linear")
    wrong = msgspec.structs.replace(
        linear, flop_analysis=msgspec.structs.replace(linear.flop_analysis, formula_template="${batch_elements}")
    )
    save_entry(wrong)

    outcome = cost(f"{home}/net.py::known_model")

    assert [one for one in outcome.warnings if one.startswith("removed torch.nn.modules.linear.Linear")]
    assert own_entries().modules == {}
    assert outcome.result.disagreeing == ()
    layer = next(one for one in outcome.result.modules if one.class_name.endswith("Linear"))
    assert layer.coverage is Coverage.TRACED
    assert "were measured" in layer.reason


def test_sizes_that_no_plan_names_do_not_make_a_formula_wrong() -> None:
    outcome = cost("tiny:opt")
    assert outcome.result.disagreeing == ()
    assert outcome.result.count(Coverage.TRACED) == 0
    stored = own_entries().modules.values()
    root = next(one for one in stored if one.module_path.endswith("OPTForCausalLM"))
    assert root.settings["ffn_dim"] == 64
    assert root.built_by is not None
    assert root.built_by.model == "tiny:opt"


def test_an_entry_of_another_configuration_is_not_used(home: Path) -> None:
    cost("tiny:opt")
    entry = next(one for one in own_entries().modules.values() if one.module_path.endswith("OPTDecoderLayer"))
    save_entry(msgspec.structs.replace(entry, settings={**entry.settings, "ffn_dim": 3072}))
    outcome = cost("tiny:opt")
    assert outcome.result.disagreeing == ()
    layer = next(one for one in outcome.result.modules if one.class_name.endswith("OPTDecoderLayer"))
    assert layer.coverage is Coverage.DERIVED
    del home


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("model_type", "switches"),
    [
        ("llama", {"attention_bias": True, "mlp_bias": True}),
        ("qwen3", {"attention_bias": True}),
        ("gpt_neox", {"use_parallel_residual": False}),
        ("opt", {"enable_bias": False, "do_layer_norm_before": False}),
        ("mistral", {"sliding_window": 16}),
    ],
)
def test_a_switch_of_the_configuration_is_a_setting_or_a_parameter(
    home: Path, model_type: str, switches: dict[str, object]
) -> None:
    """No entry of the usual switches is used where the cost is another one."""
    cost(f"tiny:{model_type}")
    config = find_blueprint(f"tiny:{model_type}", InputOptions()).config
    for name, value in switches.items():
        setattr(config, name, value)
    file = home / "config.json"
    config.to_json_file(file, use_diff=False)
    result = cost(str(file), InputOptions(batch_size=3, seq_len=40)).result

    assert result.disagreeing == ()
    assert result.count(Coverage.TRACED) == 0


@pytest.mark.parametrize("model", ["crossed_model", "expanded_model"])
def test_a_call_that_copies_a_strided_input_is_traced_only_and_the_formula_still_serves_the_others(
    home: Path, model: str
) -> None:
    result = cost(f"{home}/net.py:{model}").result
    found = {one.path: one for one in result.modules}

    assert result.disagreeing == ()
    assert (found["rows"].coverage, found["columns"].coverage) == (Coverage.FORMULA, Coverage.TRACED)
    assert "not contiguous in memory" in found["columns"].reason


def test_the_second_answer_with_derived_formulas_needs_no_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHSTONE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TORCHSTONE_HOME", str(tmp_path / "home"))
    request = FormulaCostRequest(cost=CostRequest(model=ModelRequest(model="tiny:opt")))
    first = cost_by_formula(request).result
    assert first.count(Coverage.DERIVED)

    def unneeded(*_: object) -> None:
        msg = "transformers is asked for the configuration again"
        raise AssertionError(msg)

    with monkeypatch.context() as second:
        second.setattr("torchstone.workflows.cost_by_formula._transformers_blueprint", unneeded)
        again = cost_by_formula(request).result
    assert [one.path for one in again.modules] == [one.path for one in first.modules]
    assert again.count(Coverage.DERIVED) == again.count(Coverage.TRACED) == 0
    (kept,) = (tmp_path / "cache").glob("*.formulas")
    kept.unlink()
    (settings,) = (tmp_path / "cache").glob("*.settings")
    settings.unlink()  # without it nobody knows whether the user's formulas are of the same settings
    with monkeypatch.context() as third:
        third.setattr("torchstone.workflows.cost_by_formula._transformers_blueprint", unneeded)
        with pytest.raises(AssertionError, match="asked for the configuration"):
            cost_by_formula(request)


def test_costs_by_formula_are_kept_until_the_formulas_the_options_or_the_model_change(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHSTONE_CACHE", str(home / "cache"))
    evaluated: list[str] = []
    evaluate = workflow._evaluated

    def counting(request: FormulaCostRequest, *rest: Any) -> FormulaCostOutcome:
        evaluated.append(request.cost.model.model)
        return evaluate(request, *rest)

    monkeypatch.setattr(workflow, "_evaluated", counting)
    name = f"{home / 'net.py'}::load_model"
    first, again = cost(name), cost(name)
    assert len(evaluated) == 1
    assert (again.result, again.trace.failure) == (first.result, None)
    assert again.result.count(Coverage.TRACED) == 3  # Net and two times Scale: a model of the user's own
    cost("tiny:bert", InputOptions(seq_len=7))
    cost("tiny:bert", InputOptions(seq_len=9))
    assert len(evaluated) == 3
    save_entry(load_formulas().find("torch.nn.Linear"))  # a formula of the user's own
    cost(name)
    assert len(evaluated) == 4
    (home / "net.py").write_text(NET.replace("nn.Linear(4, 6)", "nn.Linear(4, 60)"))
    changed = cost(name)
    assert len(evaluated) == 5
    assert changed.result.modules[0].traced_flops > first.result.modules[0].traced_flops
    request = CostRequest(model=ModelRequest(model=name, cached=False))
    cost_by_formula(FormulaCostRequest(cost=request))
    assert len(evaluated) == 6
