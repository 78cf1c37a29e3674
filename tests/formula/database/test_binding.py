import pytest
from msgspec.structs import replace

from tests.formula.entries import entry, formulas
from torchstone.errors import FormulaError, UnknownFormulaError
from torchstone.formula.database.files import Formulas
from torchstone.formula.database.templates import bind, called_entry, complete
from torchstone.record.formula import FormulaEntry, Quantity

NET = entry("pkg.Net", "1", "B", "S", "heads", "kv", defaults={"kv": "${heads}"})


def test_arguments_are_bound_by_place_and_by_name() -> None:
    assert bind(NET, Quantity.FLOPS, [1, 2], {"heads": 3}) == {"B": 1, "S": 2, "heads": 3}


@pytest.mark.parametrize(
    ("arguments", "named", "reason"),
    [
        ([1, 2, 3, 4, 5], {}, "takes 4 arguments, not 5"),
        ([1, 2], {"x": 3}, "has no parameter x"),
        ([1, 2], {"B": 3}, "is given B twice"),
        ([1], {}, "missing required parameters S, heads"),
    ],
)
def test_wrong_arguments_are_refused_with_the_signature(
    arguments: list[int], named: dict[str, int], reason: str
) -> None:
    with pytest.raises(FormulaError, match=rf"^pkg\.Net\(B, S, heads, kv\):? {reason}$"):
        bind(NET, Quantity.FLOPS, arguments, named)


def test_what_is_not_given_comes_from_the_defaults() -> None:
    assert complete(NET, Quantity.FLOPS, {"B": 1, "S": 2, "heads": 8}) == {"B": 1, "S": 2, "heads": 8, "kv": 8}
    assert complete(NET, Quantity.FLOPS, {"B": 1, "S": 2, "heads": 8, "kv": 2})["kv"] == 2


def test_a_default_may_use_another_default() -> None:
    net = entry("Net", "1", "a", "b", "c", defaults={"a": "${b} + 1", "b": "2 * ${c}"})

    assert complete(net, Quantity.FLOPS, {"c": 5}) == {"a": 11, "b": 10, "c": 5}


def test_a_parameter_without_value_and_default_is_named() -> None:
    with pytest.raises(FormulaError, match=r"pkg\.Net needs a value for S"):
        complete(NET, Quantity.FLOPS, {"B": 1})


def known(*depends: str) -> tuple[Formulas, FormulaEntry]:
    caller = entry("pkg.Caller", "1")
    caller = replace(caller, flop_analysis=replace(caller.flop_analysis, module_depends=depends))
    return formulas(entry("a.Net", "1"), entry("b.Net", "2"), entry("b.Net", "3", variant="eager"), caller), caller


def test_a_dependency_is_called_by_its_last_name() -> None:
    database, caller = known("b.Net")

    assert called_entry(database, caller, Quantity.FLOPS, "Net").module_path == "b.Net"
    assert called_entry(database, caller, Quantity.FLOPS, "a.Net").module_path == "a.Net"


def test_a_variant_is_chosen_by_the_call_or_by_the_dependency() -> None:
    database, caller = known("b.Net[eager]")
    assert called_entry(database, caller, Quantity.FLOPS, "Net").variant == "eager"

    database, caller = known("b.Net")
    assert called_entry(database, caller, Quantity.FLOPS, "Net[eager]").variant == "eager"


def test_a_name_that_means_two_dependencies_is_refused() -> None:
    database, caller = known("a.Net", "b.Net")

    with pytest.raises(UnknownFormulaError, match=r"Net may be any of a\.Net, b\.Net; write the whole path"):
        called_entry(database, caller, Quantity.FLOPS, "Net")
