import json
from fractions import Fraction

from tests.formula.entries import entry
from torchstone.formula.algebra.growth import Solution
from torchstone.formula.database.changes import Change
from torchstone.formula.derive.validate import Difference
from torchstone.formula.language.parse import parse
from torchstone.record.formula import Quantity
from torchstone.report.formula_document import (
    agent_document,
    changes_document,
    derived_document,
    dominance_document,
    entry_document,
    growth_document,
    list_document,
    solution_document,
    validation_document,
    values_document,
)

NET = entry("my.Net", "2 * ${n}", "n")


def test_every_document_names_its_schema() -> None:
    documents: list[str | bytes] = [
        list_document({"my__Net": NET}, frozenset(), []),
        entry_document(NET, {}),
        values_document("my.Net", {}, {}),
        solution_document("my.Net", "n", 1, None, {}),
        growth_document("my.Net", {}),
        dominance_document("my.Net", "n", {}),
        derived_document([NET], {}),
        changes_document([]),
        agent_document("my.Net", NET, []),
        validation_document({}, [], {}, []),
    ]
    schemas = [json.loads(one)["schema"] for one in documents]

    assert schemas == [
        "torchstone/formulas/1", "torchstone/formula/1", "torchstone/formula_value/1", "torchstone/formula_solution/1",
        "torchstone/formula_growth/1", "torchstone/formula_dominance/1",
        "torchstone/formula_derive/1", "torchstone/formula_diff/1", "torchstone/formula_agent/1",
        "torchstone/formula_validation/1",
    ]  # fmt: skip


def test_a_quantity_that_is_not_known_is_null() -> None:
    document = json.loads(entry_document(NET, {Quantity.FLOPS: parse("2 * n")}))

    assert (document["flops"], document["reads"], document["writes"]) == ("2 * ${n}", None, None)


def test_a_fraction_is_a_text() -> None:
    document = json.loads(values_document("my.Net", {"n": 3}, {Quantity.FLOPS: Fraction(3, 2), Quantity.READS: 3}))

    assert (document["parameters"], document["flops"], document["reads"]) == ({"n": 3}, "3/2", 3)


def test_a_solution_has_its_value_and_its_costs() -> None:
    solution = Solution(parameter="n", value=3, cost=6, next_cost=8, proven=True)
    document = json.loads(solution_document("my.Net", "n", 7, solution, {Quantity.FLOPS: 6}))

    assert (document["value"], document["proven"], document["costs"]) == (3, True, {"flops": 6})
    assert json.loads(solution_document("my.Net", "n", 1, None, {}))["value"] is None


def test_a_change_has_the_terms_that_went_and_came() -> None:
    change = Change(name="my.Net", kind="changed", fields={"flops": (["2 * n"], ["3 * n"])})

    (row,) = json.loads(changes_document([change]))["changes"]
    assert row["fields"] == {"flops": {"removed": ["2 * n"], "added": ["3 * n"]}}


def test_what_was_not_compared_is_listed_with_its_reason() -> None:
    difference = Difference(
        module_path="my.Net", variant="", quantity=Quantity.FLOPS, parameters={"n": 2}, computed=4, measured=2, term=""
    )
    document = json.loads(validation_document({"a.B": 2}, [difference], {"c.D": "outside"}, ["e.F"]))

    assert document["agree"] == {"a.B": 2}
    assert (document["differ"][0]["computed"], document["differ"][0]["measured"]) == ("4", 2)
    assert document["not_compared"] == {"c.D": "outside", "e.F": ""}
