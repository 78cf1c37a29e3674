import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.formula.entries import entry, formulas, memory
from torchstone.errors import FormulaError, UnknownFormulaError
from torchstone.formula import compute_flops, compute_memory
from torchstone.formula.database.compute import available_formulas, compute
from torchstone.formula.database.files import Formulas, load_shipped, save_entry
from torchstone.record.formula import Quantity

SHIPPED = Formulas(entries=load_shipped().modules)
BLOCK: dict[str, Any] = {"B": 1, "S": 2048, "hidden_size": 4096, "num_heads": 32, "intermediate_size": 11008}


def test_a_linear_layer_costs_two_flops_for_each_weight_and_row() -> None:
    flops = compute_flops(
        "torch.nn.Linear", batch_elements=2048, input_features=4096, output_features=4096, formulas=SHIPPED
    )

    assert flops == 68_719_476_736


def test_the_worked_example_comes_to_its_right_total() -> None:
    """Each product of the example by hand; a total of 679,115,227,136 is known to circulate and is wrong."""
    projections, scores = 4 * 2 * 2048 * 4096 * 4096, 2 * 32 * 2048 * 2048 * 128
    norms, mlp = 2 * 5 * 2048 * 4096, 2 * 2 * 2048 * 4096 * 11008 + 2048 * 11008

    assert compute_flops("TransformerBlock", formulas=SHIPPED, **BLOCK) == projections + scores + norms + mlp
    assert projections + scores + norms + mlp == 678_711_263_232


@pytest.mark.parametrize(
    ("name", "dropped", "flops"),
    [("MultiHeadAttention", "intermediate_size", 309_237_645_312), ("MLP", "num_heads", 369_389_731_840)],
)
def test_the_parts_of_the_worked_example_are_right(name: str, dropped: str, flops: int) -> None:
    given = {key: value for key, value in BLOCK.items() if key != dropped}

    assert compute_flops(name, formulas=SHIPPED, **given) == flops


def test_the_quantity_decides_which_template_of_a_nested_module_is_used() -> None:
    leaf = replace(entry("Leaf", "1", "n"), memory_analysis=memory("n", reads="10 * ${n}", writes="100", weights="7"))
    net = replace(entry("Net", "2 * {Leaf}(1)"), memory_analysis=memory(reads="3 * {Leaf}(2)", writes="{Leaf}(1)"))
    found = compute_memory("Net", formulas=formulas(leaf, net))

    assert compute_flops("Net", formulas=formulas(leaf, net)) == 2
    assert found == {"reads": 60, "writes": 100, "intermediates": None, "weights": None}
    assert compute_memory("Leaf", n=1, formulas=formulas(leaf))["weights"] == 7


def test_parameters_that_are_not_given_have_defaults() -> None:
    attention = entry(
        "LlamaAttention", "${num_kv_heads} * ${head_dim}", "hidden_size", "num_heads", "num_kv_heads", "head_dim",
        defaults={"num_kv_heads": "${num_heads}", "head_dim": "${hidden_size} // ${num_heads}"},
    )  # fmt: skip
    known = formulas(attention)

    assert compute_flops("LlamaAttention", hidden_size=4096, num_heads=32, formulas=known) == 4096
    assert compute_flops("LlamaAttention", hidden_size=4096, num_heads=32, num_kv_heads=8, formulas=known) == 1024


def test_an_unknown_class_is_an_error_and_never_zero() -> None:
    with pytest.raises(UnknownFormulaError):
        compute_flops("no.such.Class", formulas=SHIPPED)


def test_bytes_that_are_not_known_are_an_error() -> None:
    with pytest.raises(FormulaError, match="Net has no formula for reads"):
        compute_memory("Net", formulas=formulas(entry("Net", "1")))


def test_the_user_s_own_formulas_are_at_hand_as_soon_as_they_are_saved(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TORCHSTONE_HOME", str(tmp_path))
    assert available_formulas().get("my.Net") is None
    assert available_formulas() is available_formulas()

    save_entry(entry("my.Net", "42"), tmp_path)

    assert compute_flops("my.Net") == 42
    assert compute(available_formulas(), "my.Net", Quantity.FLOPS, {}) == 42


def test_nothing_heavy_is_imported() -> None:
    program = (
        "import sys; from torchstone.formula import compute_flops\n"
        "compute_flops('MLP', B=1, S=1, hidden_size=1, intermediate_size=1)\n"
        "print(sorted({'torch', 'sympy', 'numpy', 'click'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"
