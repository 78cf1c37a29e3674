import pytest

from torchstone.configs.exchange import count_calls, named_argument
from torchstone.record.config import Configuration, Occurrence, SeenConfiguration, TensorFacts


def call(op: str, *, site: str = "", lowest: int = 0) -> SeenConfiguration:
    return SeenConfiguration(
        configuration=Configuration(op=op),
        occurrences=(Occurrence(source="net.py", call_site=site),),
        facts=(TensorFacts(tensor=0, lowest=lowest),),
    )


def test_calls_are_counted_by_configuration_and_place() -> None:
    add, mul = count_calls([call("add", site="1"), call("add", site="2"), call("mul"), call("add", site="1")])

    assert [(place.call_site, place.count) for place in add.occurrences] == [("1", 2), ("2", 1)]
    assert mul.calls == 1


def test_facts_of_all_calls_are_kept() -> None:
    (add,) = count_calls([call("add", lowest=3), call("add", lowest=-2)])

    assert [fact.lowest for fact in add.facts] == [-2]


@pytest.mark.parametrize(
    ("name", "position"), [("arg0", 0), ("arg12", 12), ("arg", None), ("dim", None), ("arg²", None)]
)
def test_positional_arguments_are_known_by_their_names(name: str, position: int | None) -> None:
    assert named_argument(name, 1).position == position
