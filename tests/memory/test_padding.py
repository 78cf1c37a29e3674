from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.memory.timelines import study_of
from torchstone.memory.read_log import parse_log
from torchstone.memory.study import Study
from torchstone.memory.usage import padded_ops


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 10**6))
def test_every_op_with_padding_is_found_and_the_worst_comes_first(seed: int) -> None:
    study, _ = study_of(seed)

    found = padded_ops(study)

    lost = [op.overhead_bytes for op in found]
    assert lost == sorted(lost, reverse=True)
    assert all(size > 0 for size in lost)
    assert len({study.calls[op.op] for op in found}) == len(found)


def test_the_samples_worst_padding_is_the_last_dim_of_two(sample_log: Path) -> None:
    worst = padded_ops(Study(parse_log(sample_log)))[0]

    assert (worst.logical_bytes, worst.padded_bytes) == (4096000, 65536000)
    assert worst.reason == "last dim 2 padded to 32: 16x"
    assert worst.runs == 2
