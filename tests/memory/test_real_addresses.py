"""Addresses of a replayed allocator against those of real ttnn on its mock device, in the same run."""

from pathlib import Path

import pytest

from tests.backends.ttnn.environments import needs_ttnn, ttnn_environment
from tests.memory.ledger_truth import Agreement, address_agreement
from tests.memory.real_run import real_run, truth_of
from torchstone.memory.allocator import placements
from torchstone.memory.read_log import parse_log
from torchstone.memory.study import Study
from torchstone.memory.ttnn_files import read_ttnn_file

pytestmark = [pytest.mark.ttnn, needs_ttnn]


@pytest.mark.parametrize(("seed", "board"), [(0, "n150"), (1, "n150"), (2, "n150"), (3, "p150")])
def test_addresses_of_the_log_are_those_of_the_device(tmp_path: Path, seed: int, board: str) -> None:
    truth = truth_of(real_run(ttnn_environment(), tmp_path, seed, board))
    study, found = Study(parse_log((tmp_path / "run.log").read_bytes().splitlines(keepends=True))), Agreement()

    found.add(study, truth, "")

    assert [one for one in found.wrong if "extra {}" not in one] == []
    for memory in ("DRAM", "L1"):
        placement = placements(study, [memory])[0]
        right, total = address_agreement(study, truth, memory)
        assert placement.verified_passes == placement.passes, placement.reason
        assert right == total > 0


@pytest.mark.parametrize("seed", [1, 4])
def test_addresses_of_the_graph_capture_are_those_of_the_device(tmp_path: Path, seed: int) -> None:
    made = [tuple(one) for one in real_run(ttnn_environment(), tmp_path, seed, "n150")["events"]]

    timeline = read_ttnn_file(tmp_path / "report.json")

    stated = sorted((one.memory, one.address, one.bank_bytes) for one in timeline.allocations if one.value)
    assert stated == sorted(made)
