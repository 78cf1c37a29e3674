from fractions import Fraction

import pytest

from tests.formula.entries import entry, formulas
from torchstone.errors import FormulaError
from torchstone.formula import compute_flops, compute_memory
from torchstone.formula.database.compute import MAX_LINES, Step, as_text, shown
from torchstone.formula.database.files import Formulas, load_shipped

BLOCK: dict[str, int] = {"B": 1, "S": 2048, "hidden_size": 4096, "num_heads": 32, "intermediate_size": 11008}


def test_the_worked_example_is_drawn_as_a_tree() -> None:
    known = formulas(
        entry("Linear", "2 * ${n} * ${i} * ${o}", "n", "i", "o"),
        entry("Attention", "3 * {Linear}(${B} * ${S}, ${H}, ${H}) + 2 * ${S}**2", "B", "S", "H"),
        entry("Block", "{Attention}(${B}, S=${S}, H=${H}) + 5 * ${H}", "B", "S", "H"),
    )

    assert compute_flops("Block", B=1, S=4, H=8, explain=True, formulas=known).splitlines() == [
        "Block(1, 4, 8) = 1,608",
        "├── {Attention}(1, 4, 8) = 1,568",
        "│   ├── 3 * {Linear}(4, 8, 8) = 1,536",
        "│   │   └── {Linear}(4, 8, 8) = 512",
        "│   │       └── 2 * 4 * 8 * 8 = 512",
        "│   └── 2 * 4**2 = 32",
        "└── 5 * 8 = 40",
    ]


def test_the_terms_below_a_line_add_up_to_it() -> None:
    text = compute_flops("TransformerBlock", explain=True, formulas=Formulas(entries=load_shipped().modules), **BLOCK)
    top, *below = text.splitlines()
    direct = [line for line in below if line.startswith(("├", "└"))]
    values = [int(line.rpartition(" = ")[2].replace(",", "")) for line in (top, *direct)]

    assert top.startswith("TransformerBlock(1, 2048, 4096, 32, 11008) = ")
    assert direct[0].startswith("├── {MultiHeadAttention}")
    assert values[0] == sum(values[1:])


def test_only_what_was_computed_is_drawn() -> None:
    known = formulas(entry("A", "1"), entry("B", "2"), entry("Net", "{A}() if ${n} > 0 else {B}()", "n"))

    assert compute_flops("Net", n=1, explain=True, formulas=known).splitlines()[1:] == [
        "└── {A}() if 1 > 0 else {B}() = 1",
        "    └── {A}() = 1",
        "        └── 1 = 1",
    ]


def test_memory_is_explained_quantity_by_quantity() -> None:
    known = Formulas(entries=load_shipped().modules)
    text = compute_memory("MLP", B=1, S=2, hidden_size=3, intermediate_size=4, explain=True, formulas=known)

    assert [line for line in text.splitlines() if " " not in line and line] == [
        "reads", "writes", "intermediates", "weights",
    ]  # fmt: skip


def test_a_tree_too_long_to_read_is_cut_off_and_says_so() -> None:
    wide = Step("top", 1, tuple(Step(str(number), 1) for number in range(3 * MAX_LINES)))

    assert as_text(wide).splitlines()[MAX_LINES:] == [f"... more than {MAX_LINES} lines; explain a smaller module"]


def test_calls_that_multiply_without_end_are_stopped_before_drawing() -> None:
    chain = [entry(f"N{n}", f"{{N{n + 1}}}(2 * ${{x}}) + {{N{n + 1}}}(2 * ${{x}} + 1)", "x") for n in range(30)]

    with pytest.raises(FormulaError, match="takes more than"):
        compute_flops("N0", x=1, explain=True, formulas=formulas(*chain, entry("N30", "${x}", "x")))


def test_numbers_are_shown_whole() -> None:
    assert shown(1234567) == "1,234,567"
    assert shown(Fraction(1, 3)) == "1/3"
