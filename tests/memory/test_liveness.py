from collections import Counter
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.memory.log_generator.device import MIB
from tests.memory.timelines import study_of
from torchstone.memory.ledger import follow_all, ledger_of, live_before
from torchstone.memory.read_log import parse_log
from torchstone.memory.study import Study
from torchstone.record.memory import Role
from torchstone.record.memory_findings import LiveSet, Origin


def owners(live: LiveSet) -> "Counter[tuple[str, int]]":
    return Counter((buffer.owner, buffer.bank_bytes) for buffer in live.buffers)


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 10**6))
def test_what_is_alive_before_every_op_is_true(seed: int) -> None:
    study, truth = study_of(seed)

    for number, run in enumerate(study.timeline.programs):
        if run.parent >= 0:
            continue
        rows = range(run.first_op, run.end_op)
        found = ledger_of(study).replay(number).follow(rows).live_sets
        for op in rows:
            for live in found[op]:
                assert owners(live) == Counter(truth.rows[op].live[live.memory]), (op, truth.rows[op].name)
                assert (live.unexplained_bytes or 0) <= MIB // 1000


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 10**6))
def test_curves_hold_the_bytes_alive_before_each_op(seed: int) -> None:
    study, _ = study_of(seed, passes=3)

    curves = list(follow_all(study))

    assert sum(len(curve.padded["DRAM"]) for curve in curves) == len(study.calls)
    for curve in curves:
        op = curve.first_op + len(curve.padded["DRAM"]) // 2
        dram = live_before(study, op)[0]
        assert curve.padded["DRAM"][op - curve.first_op] == dram.padded_bytes
        assert curve.logical["DRAM"][op - curve.first_op] == dram.logical_bytes


def test_weights_are_named_through_the_ops_that_load_them() -> None:
    study, _ = study_of(3)
    last = study.timeline.programs[-1].end_op - 1

    dram = live_before(study, last)[0]

    named = {buffer.owner for buffer in dram.buffers if buffer.origin is Origin.CONST_EVAL}
    loaded = {owner.owner for owner in study.owners.cached_results}
    assert named == loaded
    assert any(run.role is Role.CONST_EVAL for run in study.timeline.programs)


def test_the_samples_peak_is_two_padded_activations_beside_the_weights(sample_log: Path) -> None:
    study = Study(parse_log(sample_log))

    dram = live_before(study, 66)[0]

    assert [(buffer.owner, buffer.bank_bytes) for buffer in dram.buffers[:5]] == [
        ("ttnn.reshape %2", 5464064),
        ("ttnn.multiply %3", 5464064),
        ("const-eval of l__self___fc1_weight", 700416),
        ("const-eval of l__self___fc1_bias", 700416),
        ("const-eval of l__self___fc2_weight", 700416),
    ]
    assert (dram.unexplained_bytes or 0) < 0.2 * MIB
