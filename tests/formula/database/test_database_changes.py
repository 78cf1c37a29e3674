import msgspec

from tests.formula.entries import entry
from torchstone.formula.database.changes import changes


def test_terms_that_went_and_came_are_told_apart() -> None:
    old = {"Net": msgspec.structs.replace(entry("Net", "a*b + 2*a", "a", "b"), versions={"torch": "2.12"})}
    new = {"Net": msgspec.structs.replace(entry("Net", "a*b + 3*a", "a", "b"), versions={"torch": "2.13"})}

    (change,) = changes(old, new)

    assert change.fields == {"flops": (["2 * a"], ["3 * a"])}
    assert change.title == "changed: Net (torch 2.12 -> 2.13)"
    assert change.differs


def test_new_and_gone_entries_are_named() -> None:
    found = changes({"Old": entry("Old", "1")}, {"New": entry("New", "1")})

    assert [(change.name, change.kind) for change in found] == [("New", "added"), ("Old", "removed")]
    assert not any(change.differs for change in found)


def test_another_domain_is_a_change() -> None:
    old, new = entry("Net", "a", "a"), entry("Net", "a", "a", domain=("a > 1",))

    (change,) = changes({"Net": old}, {"Net": new})

    assert change.fields == {"domain": ([], ["a > 1"])}


def test_equal_databases_have_no_changes() -> None:
    assert changes({"Net": entry("Net", "a", "a")}, {"Net": entry("Net", "a", "a")}) == []
