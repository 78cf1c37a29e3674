import pytest
from msgspec.structs import replace

from tests.formula.entries import entry, memory
from torchstone.errors import FormulaError
from torchstone.formula.database.templates import default_of, domain_of, mistake, name_of, parsed, template_of
from torchstone.formula.language.parse import parse
from torchstone.record.formula import Quantity

NET = entry("pkg.Net", "2 * ${B}", "B", "n", defaults={"n": "${B} // 2"}, domain=("B % 2 == 0",), variant="eager")


def test_the_texts_of_an_entry_are_trees() -> None:
    assert template_of(NET, Quantity.FLOPS) == parse("2 * B")
    assert default_of(NET, "n") == parse("B // 2")
    assert default_of(NET, "B") is None
    assert list(domain_of(NET)) == [parse("B % 2 == 0")]


def test_a_quantity_without_a_template_is_an_error_not_zero() -> None:
    with pytest.raises(FormulaError, match=r"pkg\.Net\[eager\] has no formula for reads"):
        template_of(NET, Quantity.READS)

    known = replace(NET, memory_analysis=memory("B", reads="${B}"))
    assert template_of(known, Quantity.READS) == parse("B")


def test_a_text_that_does_not_parse_is_named_with_entry_field_and_character() -> None:
    with pytest.raises(FormulaError, match=r"^pkg\.Net\[eager\], breakdown, character 3: expected an operator"):
        parsed(NET, "breakdown", "1 2")


def test_a_mistake_without_a_place_has_no_character() -> None:
    assert str(mistake(NET, "field", "why", position=-1)) == "pkg.Net[eager], field: why"
    assert name_of(NET) == "pkg.Net[eager]"
