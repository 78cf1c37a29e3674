import pytest

from torchstone.errors import InputError
from torchstone.workflows.cost_sweep import parse_sweep


def test_two_dots_double_up_to_the_last() -> None:
    assert parse_sweep("seq_len=128..1024").values == (128, 256, 512, 1024)
    assert parse_sweep("seq-len=100..350").values == (100, 200, 350)


def test_commas_name_the_values() -> None:
    sweep = parse_sweep("batch_size=1,3,7")
    assert (sweep.parameter, sweep.values) == ("batch_size", (1, 3, 7))


@pytest.mark.parametrize("text", ["width=1..2", "seq_len", "seq_len=a..b", "seq_len=0..8", "seq_len=", "seq_len=-3"])
def test_what_cannot_be_swept_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--sweep"):
        parse_sweep(text)


def test_the_larger_one_first_is_a_mistake() -> None:
    with pytest.raises(InputError, match="the smaller one first"):
        parse_sweep("seq_len=5..1")
