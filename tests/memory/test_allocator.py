"""The replayed allocator against the addresses of a simulated device, and of a real report."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.memory.ledger_truth import address_agreement
from tests.memory.log_generator.device import MIB, wormhole
from tests.memory.log_generator.irregular import irregular_graphs
from tests.memory.log_generator.run import Host, execute, generate
from tests.memory.log_generator.serving import STAGES, random_model, serving_graphs, serving_log
from tests.memory.log_generator.style import Style, written
from tests.memory.test_ttnn_report import real_report  # noqa: F401 - a fixture
from torchstone.memory.allocator import Arena, Policy, allocator_replay, placements, split_by
from torchstone.memory.out_of_memory import explain_last_failure
from torchstone.memory.read_log import parse_log
from torchstone.memory.study import Study
from torchstone.record.memory import Allocation


def study_of(log: bytes) -> Study:
    return Study(parse_log(log.splitlines(keepends=True)))


@pytest.mark.parametrize(
    ("policy", "addresses"),
    [
        (Policy(from_top=False), [0, 10, 30, 0]),
        (Policy(from_top=True), [90, 70, 60, 95]),
        (Policy(from_top=False, best_fit=True), [0, 10, 30, 0]),
    ],
)
def test_blocks_are_taken_from_one_end(policy: Policy, addresses: list[int]) -> None:
    arena = Arena(100, policy)
    found = [arena.allocate(size) for size in (10, 20, 10)]
    arena.free(found[0] or 0)

    found.append(arena.allocate(5))

    assert found == addresses
    assert arena.allocate(arena.largest_free + 1) is None


@pytest.mark.parametrize("host", [Host(), Host(replaces_outputs=True), Host(keeps_inputs=True), Host(base_bytes=MIB)])
def test_addresses_are_those_of_the_device(host: Host) -> None:
    log, truth = serving_log(3, host=host)
    study = study_of(log)

    for memory in ("DRAM", "L1"):
        right, total = address_agreement(study, truth, memory)
        assert total > 100
        assert right == total


@pytest.mark.parametrize("seed", range(4))
def test_addresses_of_irregular_graphs_are_right_or_unknown(seed: int) -> None:
    log, truth = generate(irregular_graphs(seed), order=(0, 1, 2, 0, 2, 1), style=Style(stages=STAGES))

    right, total = address_agreement(study_of(log), truth, "DRAM")

    assert total > 0
    assert right == total


def test_memory_that_comes_and_goes_unnamed_has_no_map() -> None:
    log, _ = serving_log(1, host=Host(churn_bytes=98_304))

    found = placements(study_of(log), ["DRAM"])[0]

    assert found.verified_passes < found.passes
    assert "disagrees" in found.reason


def test_an_order_of_uploads_that_nothing_decides_is_named() -> None:
    log, _ = serving_log(0, host=Host(uploads_first=True))

    assert placements(study_of(log), ["DRAM"])[0].is_ambiguous


@pytest.mark.parametrize("share", [60, 85, 97])
@pytest.mark.parametrize("seed", [0, 4, 9])
def test_whether_a_change_would_fit_is_what_the_device_does_with_it(seed: int, share: int) -> None:
    """The same run with the KV cache in bfloat8_b, on the same device, passes the op that failed: yes or no."""
    model = replace(random_model(seed), cache_dtype="bf16", context=512 + 96 * (seed % 5))
    style, order = Style(stages=STAGES), (0, 2, 1, 2, 0)
    whole = execute(serving_graphs(model), style=style, order=order)
    size = max(sum(size for _, size in row.live["DRAM"]) for row in whole.truth.rows) * share // 100 // 32 * 32
    failed = execute(serving_graphs(model), style=style, order=order, memories=wormhole(dram_bytes=size))
    smaller = replace(model, cache_dtype="bfp_bf8")
    other = execute(serving_graphs(smaller), style=style, order=order, memories=wormhole(dram_bytes=size))
    passes = other.truth.out_of_memory is None or other.truth.failed_row > failed.truth.failed_row

    found = explain_last_failure(study_of(written(failed.lines, style)))

    assert found is not None
    changes = [one for one in found.changes if one.change == "the KV cache in bfloat8_b"]
    assert all(one.fits in (passes, None) for one in changes)


def test_a_buffer_between_two_free_blocks_is_found() -> None:
    log, _ = serving_log(3)
    study = study_of(log)
    placement = allocator_replay(study, "DRAM").placement

    found = [split for op in range(len(study.timeline.ops)) if (split := split_by(placement, op)) is not None]

    assert found
    assert all(size > buffer.bank_bytes for buffer, size in found)


def test_the_policy_gives_the_addresses_of_a_real_report(real_report: Path) -> None:  # noqa: F811 - the fixture
    """Buffers that ttnn itself placed, allocated again in their order, come to lie where ttnn put them."""
    timeline = parse_log(real_report / "report.json")
    for memory, policy in (("DRAM", Policy(from_top=False)), ("L1", Policy(from_top=True))):
        buffers = [one for one in timeline.allocations if one.memory == memory]
        low = min(one.address for one in buffers)
        high = max(one.address + one.bank_bytes for one in buffers)
        base, size = (low, 1 << 30) if memory == "DRAM" else (high - (1 << 20), 1 << 20)
        arena = Arena(size, policy)
        placed: dict[Allocation, int] = {}
        for op in range(len(timeline.ops) + 1):
            for one in [one for one in placed if one.end_op <= op]:
                arena.free(placed.pop(one))
            for one in [one for one in buffers if one.from_op == op]:
                placed[one] = arena.allocate(one.bank_bytes) or 0
                assert placed[one] + base == one.address
