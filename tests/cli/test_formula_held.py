from pathlib import Path

import pytest

from tests.formula.entries import entry
from torchstone.cli.formula_held import with_held_memory
from torchstone.cli.main import run
from torchstone.cli.options import Session
from torchstone.errors import FormulaError
from torchstone.formula.computing import compute
from torchstone.formula.database import Formulas, load_formulas, load_shipped
from torchstone.record.formula import Quantity

SHIPPED = Formulas(entries=load_shipped().modules)
LLAMA = "transformers.models.llama.modeling_llama.LlamaForCausalLM"
SIZES = {
    "S": 2048, "hidden_size": 4096, "num_heads": 32, "intermediate_size": 11008, "vocab_size": 32000,
    "num_hidden_layers": 32,
}  # fmt: skip


def test_only_models_of_transformers_can_be_asked_about() -> None:
    with pytest.raises(FormulaError, match=r"what my\.Net holds at one time is not known"):
        with_held_memory(entry("my.Net", "1"), Session())


@pytest.mark.heavy
def test_a_part_of_a_model_is_refused_with_the_whole() -> None:
    with pytest.raises(FormulaError, match=r"is a part of .*; ask what the whole model holds"):
        with_held_memory(SHIPPED.find("transformers.models.gpt2.modeling_gpt2.GPT2MLP"), Session())


@pytest.mark.heavy
def test_the_largest_batch_of_a_real_model_is_found_and_the_formula_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORCHSTONE_HOME", str(tmp_path))
    given = [f"{name}={value}" for name, value in SIZES.items()]

    assert run(["formula", "solve", LLAMA, *given, "--memory", "80GiB"]) == 0

    batch, known = int(capsys.readouterr().out.split()[2]), load_formulas(tmp_path)
    held = [
        sum(int(compute(known, LLAMA, one, {**SIZES, "B": b})) for one in (Quantity.WEIGHTS, Quantity.INTERMEDIATES))
        for b in (batch, batch + 1)
    ]
    assert batch > 1
    assert held[0] <= 80 * 2**30 < held[1]
