from random import Random

import pytest

from tests.memory.log_generator.graphs import random_graph
from tests.memory.log_generator.run import generate
from tests.memory.log_generator.serving import serving_log
from tests.memory.log_generator.style import Style
from torchstone.memory.read_log import parse_log
from torchstone.record.memory import MemoryTimeline


def timeline_of(*seeds: int, passes: int = 2, dumps: bool = True, keep: float = 1) -> MemoryTimeline:
    graphs = [random_graph(seed, module=f"SyncTensorsGraph.{seed}") for seed in seeds]
    lines = generate(graphs, passes=passes, style=Style(dumps=dumps))[0].splitlines()
    return parse_log(lines[: int(len(lines) * keep)])


def test_graphs_of_one_name_are_told_apart_by_their_ops() -> None:
    timeline = timeline_of(1, 2, 3)

    assert [graph.name for graph in timeline.graphs] == ["main"] * 3
    assert [len(graph.runs) for graph in timeline.graphs] == [2, 2, 2]


def test_each_graph_finds_its_own_dump() -> None:
    timeline = timeline_of(1, 2, 3)

    assert [timeline.modules[graph.module].name for graph in timeline.graphs] == [
        "SyncTensorsGraph.1",
        "SyncTensorsGraph.2",
        "SyncTensorsGraph.3",
    ]


def test_without_dumps_no_module_is_made_up() -> None:
    assert [graph.module for graph in timeline_of(1, dumps=False).graphs] == [-1]


def test_a_pass_that_breaks_off_is_the_graph_it_began() -> None:
    timeline = timeline_of(1, passes=3, keep=0.9)

    assert not timeline.programs[-1].complete
    assert len(timeline.graphs) == 1


def test_a_pass_with_a_damaged_line_is_still_its_graph() -> None:
    lines = generate([random_graph(1)], passes=3)[0].splitlines()
    ops = [number for number, line in enumerate(lines) if b"Executing operation: %" in line]
    lines[ops[-1]] = lines[ops[-1]][:90]

    timeline = parse_log(lines)

    assert timeline.unread_count == 1
    assert len(timeline.graphs) == 1


def test_a_dump_is_found_by_argument_shapes_when_its_ops_are_spelled_otherwise() -> None:
    lines = generate([random_graph(1)], passes=1)[0].splitlines()
    renamed = [line.replace(b"%", b"%x") if line.startswith(b"        %") else line for line in lines]

    assert [graph.module for graph in parse_log(renamed).graphs] == [0]


@pytest.mark.parametrize(("seed", "round_"), [(7, 0), (25, 2), (27, 1)])
def test_ten_damaged_bytes_do_not_split_a_graph(seed: int, round_: int) -> None:
    log, _ = serving_log(seed)
    random = Random(seed)  # noqa: S311 - no secret
    for _ in range(round_ + 1):
        damaged = bytearray(log)
        for _ in range(10):
            damaged[random.randrange(len(damaged))] = random.randrange(256)

    timeline = parse_log(bytes(damaged).splitlines(keepends=True))

    assert [len(graph.runs) for graph in timeline.graphs] == [2, 6, 2]
