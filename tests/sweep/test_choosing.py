import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sweep.builders import mm, tensor, vector
from torchstone.errors import InputError
from torchstone.record.vector import Validity, Vector
from torchstone.sweep.generate import choose, parse_duration


def made(identity: str, cluster: str, calls: int) -> Vector:
    return vector(mm(), id=identity, cluster=cluster, calls=calls)


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("10m", 600), ("1.5h", 5400), (" 2 m", 120)])
def test_a_duration_is_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "ten", "5d", "-3s"])
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InputError, match="10m"):
        parse_duration(text)


def test_without_a_budget_everything_is_chosen() -> None:
    vectors = [made("a", "x", 1), made("b", "x", 2)]

    assert choose(vectors, None).vectors == tuple(vectors)


def test_a_budget_takes_the_most_called_of_each_cluster_first() -> None:
    vectors = [made("a", "x", 100), made("b", "x", 90), made("c", "y", 1), made("d", "z", 5)]
    times = dict.fromkeys("abcd", 1.0)

    chosen = choose(vectors, 3.0, times)

    assert [one.id for one in chosen.vectors] == ["a", "c", "d"]
    assert (chosen.clusters, chosen.calls, chosen.expected_s) == ((3, 3), (106, 196), 3.0)


def test_larger_tensors_are_expected_to_take_longer() -> None:
    small = choose([vector(mm(2, 2, 2))], None).expected_s
    large = choose([vector(mm(2000, 2000, 2000))], None).expected_s

    assert large > 10 * small
    assert tensor(2000, 2000).elements == 4_000_000


def test_vectors_that_are_not_valid_stay_and_cost_nothing() -> None:
    broken = vector(mm(), id="x", validity=Validity.INVALID, reason="why")

    chosen = choose([broken], 0.0)

    assert (chosen.vectors, chosen.expected_s) == ((broken,), 0.0)


@given(st.lists(st.tuples(st.sampled_from("xyz"), st.integers(0, 9), st.floats(0.1, 2)), max_size=12), st.floats(0, 10))
def test_a_budget_is_never_exceeded_and_nothing_that_fits_is_left(
    told: list[tuple[str, int, float]], budget_s: float
) -> None:
    vectors = [made(f"v{number}", cluster, calls) for number, (cluster, calls, _) in enumerate(told)]
    times = {f"v{number}": seconds for number, (_, _, seconds) in enumerate(told)}

    chosen = choose(vectors, budget_s, times)

    spent = sum(times[one.id] for one in chosen.vectors)
    left = [times[one.id] for one in vectors if one not in chosen.vectors]
    assert spent <= budget_s + 1e-9
    assert all(spent + seconds > budget_s - 1e-9 for seconds in left)
