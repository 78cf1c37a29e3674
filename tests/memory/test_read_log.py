import gzip
from pathlib import Path

import pytest

import torchstone.memory
from tests.memory.log_generator.graphs import random_graph
from tests.memory.log_generator.run import generate
from torchstone.errors import InputError, UnreadableFileError
from torchstone.memory.read_log import parse_log


def test_a_path_and_its_lines_give_the_same_timeline(tmp_path: Path) -> None:
    log, truth = generate([random_graph(1)])
    path = tmp_path / "run.log"
    path.write_bytes(log)

    from_path, from_lines = parse_log(path), parse_log(log.decode().splitlines())

    assert len(from_path.ops) == len(truth.rows)
    assert from_path.ops == from_lines.ops
    assert from_path.source == str(path)


def test_a_packed_log_is_read_as_it_is(tmp_path: Path) -> None:
    log, truth = generate([random_graph(1)])
    path = tmp_path / "run.log.gz"
    path.write_bytes(gzip.compress(log))

    assert len(parse_log(str(path)).ops) == len(truth.rows)


def test_progress_ends_at_the_size_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_bytes(generate([random_graph(1)])[0])
    read: list[int] = []

    parse_log(path, progress=read.append)

    assert read[-1] == path.stat().st_size


def test_a_file_without_runtime_lines_is_an_error_that_says_what_was_looked_for(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text("hello\n")

    with pytest.raises(InputError, match="Executing operation"):
        parse_log(path)


def test_a_log_of_the_framework_alone_names_the_missing_switch() -> None:
    line = "2026-03-16 10:11:00.400 (   0.400s) [        7F2C9740]     client_instance.cc:603      1| ClientInstance"

    with pytest.raises(InputError, match="TT_RUNTIME_DEBUG"):
        parse_log([line])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFileError, match=r"nothing\.log"):
        parse_log(tmp_path / "nothing.log")


def test_a_packed_log_that_breaks_off_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "run.log.gz"
    log, truth = generate([random_graph(1)])
    path.write_bytes(gzip.compress(log)[:-20])

    assert 0 < len(parse_log(path).ops) <= len(truth.rows)


def test_a_rank_that_is_not_there_is_an_error_with_those_that_are() -> None:
    log, _ = generate([random_graph(1)])

    with pytest.raises(InputError, match="rank 7,7"):
        parse_log(log.splitlines(), rank="7,7")


def test_the_package_offers_parse_log() -> None:
    assert torchstone.memory.parse_log is parse_log
    with pytest.raises(AttributeError):
        _ = torchstone.memory.nothing


def test_the_samples_hold_their_ground_truth(sample_log: Path) -> None:
    timeline = parse_log(sample_log)

    assert len(timeline.ops) == 126
    assert (timeline.passes, len(timeline.graphs), timeline.unread_count) == (4, 2, 0)
    assert timeline.evidence.lines == 1104
    modules = [timeline.modules[graph.module] for graph in timeline.graphs]
    assert [(module.name, module.stage) for module in modules] == [
        ("SyncTensorsGraph.41", "ttnn"),
        ("SyncTensorsGraph.19", "ttnn"),
    ]
    main = [run for run in timeline.programs if run.parent < 0]
    assert [run.end_op - run.first_op for run in main[2:]] == [38, 14]
