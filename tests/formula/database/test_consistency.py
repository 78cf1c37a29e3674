import pytest
from msgspec.structs import replace

from tests.formula.entries import entry, formulas, memory
from torchstone.errors import FormulaError
from torchstone.formula.database.files import Formulas, load_formulas, load_shipped
from torchstone.formula.database.templates import (
    MAX_MODULES,
    called_entries,
    check_alone,
    known_quantities,
    problems_of,
    require_sound,
)
from torchstone.record.formula import FlopAnalysis, FormulaEntry, Quantity

LINEAR = entry("Linear", "2 * ${n} * ${i} * ${o}", "n", "i", "o")


def refusal(database: Formulas, name: str, quantity: Quantity = Quantity.FLOPS) -> str:
    with pytest.raises(FormulaError) as caught:
        require_sound(database, database.find(name), quantity)
    return str(caught.value)


def test_the_shipped_database_has_no_problems() -> None:
    assert list(problems_of(Formulas(entries=load_shipped().modules))) == []


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("${B} * ${H}", "pkg.Net, formula_template, character 8: the parameter H is not declared (declared: B)"),
        (
            "2 * {Linear}(1, 2)",
            "pkg.Net, formula_template, character 5: Linear(n, i, o): missing required parameters o",
        ),
        (
            "{Linear}(1, 2, 3, 4)",
            "pkg.Net, formula_template, character 1: Linear(n, i, o) takes 3 arguments, not 4",
        ),
        (
            "{Linear}(1, 2, 3, bias=4)",
            "pkg.Net, formula_template, character 1: Linear(n, i, o) has no parameter bias",
        ),
        ("{Linear}(1, i=2, n=1, o=3)", "pkg.Net, formula_template, character 1: Linear(n, i, o) is given n twice"),
        (
            "1 + {Linaer}(1)",
            "pkg.Net, formula_template, character 5: no formula is known for Linaer; did you mean Linear?",
        ),
        ("1 +", "pkg.Net, formula_template, character 4: expected a number, a parameter or a bracket, found the end"),
    ],
)
def test_a_mistake_is_named_with_entry_field_and_character(formula: str, message: str) -> None:
    assert refusal(formulas(LINEAR, entry("pkg.Net", formula, "B")), "pkg.Net") == message


def test_a_circle_is_printed() -> None:
    database = formulas(entry("A", "{B}()"), entry("B", "1 + {C}()"), entry("C", "{B}()"))

    assert refusal(database, "A") == "circular dependency in the formulas for flops: B -> C -> B"
    assert refusal(formulas(entry("A", "{A}()")), "A") == "circular dependency in the formulas for flops: A -> A"


def test_a_mistake_deep_inside_is_found_from_the_top() -> None:
    database = formulas(entry("A", "{B}()"), entry("B", "${x}"))

    assert (
        refusal(database, "A") == "B, formula_template, character 1: the parameter x is not declared (declared: none)"
    )


def test_a_call_of_an_unknown_quantity_is_refused() -> None:
    net = replace(entry("Net", "1"), memory_analysis=memory(reads="{Linear}(1, 2, 3)"))

    assert refusal(formulas(LINEAR, net), "Net", Quantity.READS) == (
        "Net, reads_template, character 1: Linear has no formula for reads"
    )


def test_modules_nested_without_end_are_refused() -> None:
    chain = [entry(f"N{number}", f"{{N{number + 1}}}()") for number in range(MAX_MODULES + 1)]

    assert "nests more than 40 modules" in refusal(formulas(*chain, entry(f"N{MAX_MODULES + 1}", "1")), "N0")


def test_what_is_sound_is_looked_at_once() -> None:
    database = formulas(LINEAR, entry("Net", "{Linear}(1, 2, 3)"))
    require_sound(database, database.find("Net"), Quantity.FLOPS)

    assert database.sound == {("Net", Quantity.FLOPS), ("Linear", Quantity.FLOPS)}


def breakdown(text: str) -> FormulaEntry:
    net = entry("Net", "1", "B")
    return replace(net, flop_analysis=replace(net.flop_analysis, breakdown={"part": text}))


@pytest.mark.parametrize(
    ("net", "message"),
    [
        (entry("Net", "1", "min"), "Net has a parameter 'min', which is not a valid parameter name"),
        (entry("Net", "1", "a-b"), "Net has a parameter 'a-b', which is not a valid parameter name"),
        (entry("Net", "1", "B", "B"), "Net names a parameter twice: B, B"),
        (
            entry("Net", "1", "B", defaults={"B": "${x}"}),
            "Net, default of B, character 1: the parameter x is not declared (declared: B)",
        ),
        (
            entry("Net", "1", "B", defaults={"B": "{Net}(1)"}),
            "Net, default of B, character 1: Net may not be called here",
        ),
        (
            entry("Net", "1", "B", domain=("B > y",)),
            "Net, domain 1, character 5: the parameter y is not declared (declared: B)",
        ),
        (
            entry("Net", "1", "a", "b", defaults={"a": "b", "b": "a"}),
            "circular dependency in the defaults of Net: a -> b -> a",
        ),
        (breakdown("${z}"), "Net, breakdown of part, character 1: the parameter z is not declared (declared: B)"),
    ],
)
def test_an_entry_is_checked_by_itself(net: FormulaEntry, message: str) -> None:
    with pytest.raises(FormulaError) as caught:
        check_alone(net)

    assert str(caught.value) == message


def test_a_call_in_the_breakdown_is_checked_too() -> None:
    assert refusal(formulas(LINEAR, breakdown("{Linear}(1)")), "Net") == (
        "Net, breakdown of part, character 1: Linear(n, i, o): missing required parameters i, o"
    )


def test_the_called_entries_are_those_of_formula_and_breakdown() -> None:
    analysis = FlopAnalysis(parameters=(), formula_template="{A}()", breakdown={"part": "{Linear}(1, 2, 3)"})
    net = replace(entry("Net", "1"), flop_analysis=analysis)

    found = called_entries(formulas(LINEAR, entry("A", "1"), net), net, Quantity.FLOPS)
    assert [one.module_path for one in found] == ["A", "Linear"]


def test_all_problems_of_a_database_are_listed() -> None:
    database = formulas(entry("A", "{B}()"), entry("C", "${x}"), LINEAR)

    assert list(problems_of(database)) == [
        "A, formula_template, character 1: no formula is known for B; `torchstone formula list` shows what is known",
        "C, formula_template, character 1: the parameter x is not declared (declared: none)",
    ]


def test_only_quantities_with_a_template_are_known() -> None:
    assert known_quantities(LINEAR) == [Quantity.FLOPS]
    assert known_quantities(load_formulas().find("MLP")) == list(Quantity)
