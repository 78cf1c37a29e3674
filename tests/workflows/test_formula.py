from fractions import Fraction
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.formula.entries import entry
from torchstone.errors import FormulaError, InputError
from torchstone.formula.algebra.view import Form
from torchstone.formula.database.files import Formulas, key_of, own_entries, save_entry, save_file
from torchstone.formula.language.parse import parse
from torchstone.formula.language.print import show
from torchstone.record.formula import FormulaDatabase, FormulaEntry, Quantity, Status, Validation
from torchstone.workflows.formula import (
    EvalRequest,
    ListRequest,
    ShowRequest,
    SolveRequest,
    approve_entry,
    diff_formulas,
    evaluate_formula,
    generate_package,
    list_formulas,
    read_parameters,
    read_values,
    reject_entry,
    show_dominant,
    show_formula,
    show_growth,
    solve_formula,
)


def formulas(*entries: FormulaEntry) -> Formulas:
    return Formulas(entries={key_of(one.module_path, one.variant): one for one in entries})


NET = entry("my.Net", "2 * n * m + n", "n", "m", defaults={"m": "3"})


def test_entries_are_listed_by_text_and_status() -> None:
    known = formulas(NET, entry("other.Block", "1"))

    assert list(list_formulas(ListRequest(text="my.n"), known).entries) == ["my__Net"]
    assert list_formulas(ListRequest(status=Status.VALIDATED), known).entries == {}
    assert list_formulas(ListRequest(), known).total == 2


def test_mistakes_are_looked_for_when_asked() -> None:
    broken = formulas(entry("my.Net", "2 * m", "n"))

    assert list_formulas(ListRequest(), broken).mistakes == ()
    (mistake,) = list_formulas(ListRequest(check=True), broken).mistakes
    assert "the parameter m is not declared" in mistake


def test_a_formula_is_shown_with_numbers_or_expressions_substituted() -> None:
    request = ShowRequest(name="my.Net", parameters={"m": 4}, form=Form.EXPANDED, quantities=(Quantity.FLOPS,))

    assert show(show_formula(request, formulas(NET)).formulas[Quantity.FLOPS], plain=True) == "9 * n"
    by_expression = ShowRequest(name="my.Net", parameters={"m": parse("n")}, form=Form.EXPANDED)
    assert show(show_formula(by_expression, formulas(NET)).formulas[Quantity.FLOPS], plain=True) == "2 * n**2 + n"


def test_growth_and_the_dominant_part_are_found_for_each_quantity() -> None:
    request = ShowRequest(name="my.Net")

    assert [one.parameter for one in show_growth(request, formulas(NET))[Quantity.FLOPS]] == ["n", "m"]
    (found,) = show_dominant(request, "n", formulas(NET))
    assert [one_range.part for one_range in found.terms] == ["2 * n * m"]
    assert [one_range.part for one_range in found.powers] == ["n"]


def test_a_formula_is_evaluated_exactly() -> None:
    halved = formulas(entry("my.Net", "n / 2", "n"))
    result = evaluate_formula(EvalRequest(name="Net", parameters={"n": 3}, explain=True), halved)

    assert result.values == {Quantity.FLOPS: Fraction(3, 2)}
    assert result.explanations[Quantity.FLOPS].startswith("Net(3) = 3/2")
    with pytest.raises(FormulaError, match=r"my\.Net has no formula for reads"):
        evaluate_formula(EvalRequest(name="Net", parameters={"n": 3}, quantities=(Quantity.READS,)), halved)


def test_the_largest_value_within_a_limit_is_found() -> None:
    result = solve_formula(SolveRequest(name="my.Net", parameter="n", flops=100), formulas(NET))

    assert result.solution is not None
    assert (result.solution.value, result.costs) == (14, {Quantity.FLOPS: 98})
    assert solve_formula(SolveRequest(name="my.Net", parameter="n", flops=1), formulas(NET)).solution is None


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ((None, None), "give exactly one of --memory, --traffic and --flops"),
        ((1, 1), "give exactly one of"),
        ((None, 1), r"my\.Net has no formula for weights, intermediates; use --flops"),
    ],
)
def test_a_solution_needs_one_limit_on_known_quantities(limits: tuple[int | None, int | None], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        solve_formula(
            SolveRequest(name="my.Net", parameter="n", flops=limits[0], memory_bytes=limits[1]), formulas(NET)
        )


def test_two_databases_are_compared(tmp_path: Path) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    save_file(old, FormulaDatabase(modules={"my__Net": NET}))
    save_file(new, FormulaDatabase(modules={"my__Net": entry("my.Net", "2 * n * m", "n", "m")}))

    assert not diff_formulas(old, old).differs
    (change,) = diff_formulas(old, new).changes
    assert change.fields["flops"] == (["n"], [])


def test_only_a_pending_entry_is_approved_or_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHSTONE_HOME", str(tmp_path))
    save_entry(replace(NET, validation=Validation(status=Status.PENDING, validator="agent (claude)", date="")))

    assert approve_entry("my.Net", "Ada").validation.validator == "Ada"
    with pytest.raises(FormulaError, match=r"my\.Net is validated, not pending"):
        reject_entry("my.Net")
    save_entry(replace(NET, validation=Validation(status=Status.PENDING, validator="agent (claude)", date="")))
    assert reject_entry("my.Net").module_path == "my.Net"
    assert own_entries().modules == {}


def test_a_package_holds_the_chosen_classes(tmp_path: Path) -> None:
    result = generate_package(tmp_path, "my.", formulas(NET, entry("other.Block", "1")))

    assert (result.package, result.num_classes) == (tmp_path / "generated_modules", 1)
    with pytest.raises(FormulaError, match="no class path contains 'nothing'"):
        generate_package(tmp_path, "nothing", formulas(NET))


def test_values_are_numbers_or_arithmetic() -> None:
    assert read_values(["B=8", "S=4*1024", "dtype_bytes=1/2"]) == {"B": 8, "S": 4096, "dtype_bytes": Fraction(1, 2)}


def test_parameters_may_depend_on_others() -> None:
    assert read_parameters(["kv=heads // 4"]) == {"kv": parse("heads // 4")}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (["B"], "'B' is not of the form PARAMETER=VALUE"),
        (["=3"], "is not of the form PARAMETER=VALUE"),
        (["B=1", "B=2"], "B is given twice"),
        (["B=1+"], "the value of B cannot be read: expected a number"),
        (["B=__import__('os')"], "the value of B cannot be read"),
        (["B=S"], "the value of B depends on S; give a number"),
    ],
)
def test_what_cannot_be_read_is_named(given: list[str], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        read_values(given)
