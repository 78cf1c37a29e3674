import json
from collections.abc import Callable
from random import Random

import pytest

from tests.memory.ledger_truth import Agreement
from tests.memory.log_generator.serving import serving_log
from torchstone.memory.line_prefixes import find_prefixes
from torchstone.memory.read_log import parse_log
from torchstone.memory.study import Study

STAMP = "2026-11-16T19:00:51.123456789Z"
PREFIXED: dict[str, Callable[[int, str], str]] = {
    "docker": lambda _, line: json.dumps(
        {"log": f"{line}\n", "stream": "stdout", "time": STAMP}, separators=(",", ":")
    ),
    "journalctl -o json": lambda _, line: json.dumps({"__CURSOR": "s=1;i=2", "MESSAGE": line, "_PID": "1234"}),
    "cri": lambda number, line: f"{STAMP} {'stderr' if number % 2 else 'stdout'} F {line}",
    "journald": lambda _, line: f"Nov 16 19:00:51 host-1 python[1234]: {line}",
    "srun -l": lambda _, line: f" 3: {line}",
    "torchrun": lambda _, line: f"[rank3]: {line}",
    "mpirun in CI": lambda _, line: f"{STAMP} [1,3]<stdout>: {line}",
    "kubectl": lambda _, line: f"[pod/train-0/main] {line}",
    "compose": lambda _, line: f"web-1  | {line}",
    "grep -n": lambda number, line: f"{number + 1}:{line}",
    "grep -Hn": lambda number, line: f"runs/a.log:{number + 1}:{line}",
    "of nobody": lambda number, line: f"<<job 77, node a{number % 7}>> {line}",
}


@pytest.mark.parametrize("tool", PREFIXED)
def test_a_prefix_hides_neither_ops_nor_the_names_of_weights(tool: str) -> None:
    log, truth = serving_log(1, order=(0, 2, 1, 2))
    lines = [PREFIXED[tool](number, line) for number, line in enumerate(log.decode().splitlines())]
    study = Study(parse_log(lines))
    found = Agreement()

    found.add(study, truth, tool, every=13)

    assert study.timeline.unread_count == 0
    assert found.wrong == []
    assert study.timeline.ops.lines.values()[-1] <= len(lines)


def test_a_plain_log_has_no_prefixes() -> None:
    log, _ = serving_log(1, order=(0,))

    assert find_prefixes(log) is None


@pytest.mark.parametrize("seed", range(12))
def test_ten_damaged_bytes_split_no_graph(seed: int) -> None:
    random = Random(seed)  # noqa: S311 - no secret
    log = bytearray(serving_log(2)[0])
    for _ in range(10):
        log[random.randrange(len(log))] = random.randrange(256)

    timeline = parse_log([bytes(log)])

    assert [len(graph.runs) for graph in timeline.graphs] == [2, 6, 2]
