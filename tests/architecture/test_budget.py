"""The size of the sources is a budget: a part of it only goes down, and only a new capability adds to the whole."""

import tomllib
from pathlib import Path

import pytest

from tests.architecture.repository import PACKAGE, load_tool

BUDGET = Path(__file__).parent / "budget.toml"
SLACK = 1.03  # more room than this is given back, so that what was saved stays saved


def complaint(name: str, measured: float, allowed: float) -> str:
    """What is wrong with one number of the budget; "" when nothing is."""
    if measured > allowed:
        return (
            f"{name}: {measured:,} is over the budget of {allowed:,}; delete or merge something instead of raising it"
        )
    if allowed > SLACK * measured:
        return (
            f"{name}: {measured:,} is far below the budget of {allowed:,}; lower it in tests/architecture/budget.toml"
        )
    return ""


def total(rows: float | dict[str, float]) -> float:
    """A number, or the sum over the capabilities that were given a share."""
    return sum(rows.values()) if isinstance(rows, dict) else rows


def test_the_sources_stay_within_their_budget() -> None:
    size = load_tool("figures").size_of(PACKAGE)
    measured = {
        "files": len(size.file_lines),
        "tokens": size.tokens,
        "any_per_1000_lines": size.per_thousand_lines(size.any_uses),
    }
    budget = {name: total(rows) for name, rows in tomllib.loads(BUDGET.read_text(encoding="utf-8")).items()}

    assert budget.keys() == measured.keys()
    assert [text for name in measured if (text := complaint(name, measured[name], budget[name]))] == []


@pytest.mark.parametrize(("measured", "said"), [(100, ""), (101, "over the budget"), (97, "lower it"), (98, "")])
def test_a_budget_is_neither_exceeded_nor_generous(measured: int, said: str) -> None:
    assert said in complaint("files", measured, 100)
    assert bool(said) == bool(complaint("files", measured, 100))
