import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from tests.workers.building import task
from torchstone.record.task import Limits, Task
from torchstone.workers.lane import Job, Lane


@dataclass
class Pair:
    """A lane, and what its process would hold."""

    lane: Lane
    channel: socket.socket
    output: int


@pytest.fixture
def pair() -> Iterator[Pair]:
    lane = Lane(1, room=2, now_s=0.0)
    lane.ready = True
    channel, output = (os.dup(descriptor) for descriptor in lane.far_descriptors)
    lane.let_go_of_far_ends()
    made = Pair(lane=lane, channel=socket.socket(fileno=channel), output=output)
    yield made
    lane.close()
    made.channel.close()
    if made.output >= 0:
        os.close(made.output)


def job(name: str, deadline_s: float = 5.0) -> Job:
    return Job.of(task(name), Limits(deadline_s=deadline_s))


def test_a_job_is_one_line() -> None:
    assert Job.of(task("echo", {"a": "x\ny"}), Limits()).line.count(b"\n") == 1


def test_limits_of_a_task_go_before_those_of_the_pool() -> None:
    own = Limits(deadline_s=1)

    assert Job.of(Task(id="a", entry="m:f", limits=own), Limits()).limits == own
    assert Job.of(Task(id="a", entry="m:f"), Limits(deadline_s=7)).limits.deadline_s == 7


def test_tasks_are_sent_at_once_and_after_the_last_it_hangs_up(pair: Pair) -> None:
    pair.lane.give(job("one"), now_s=3.0)
    pair.lane.give(job("two"), now_s=4.0)

    assert pair.channel.makefile("rb").read() == job("one").line + job("two").line
    assert pair.lane.began_s == 3.0


def test_a_task_that_wants_to_be_alone_is_the_last(pair: Pair) -> None:
    pair.lane.give(replace(job("one"), alone=True), now_s=0.0)

    assert pair.lane.room == 0


def test_the_next_task_begins_when_the_one_before_it_is_done(pair: Pair) -> None:
    for name in ("one", "two"):
        pair.lane.give(job(name), now_s=0.0)
    pair.lane.output.feed(b"words of the first")
    done = pair.lane.finish_first(now_s=9.0)

    assert (done.task.id, pair.lane.jobs[0].task.id, pair.lane.began_s) == ("one", "two", 9.0)
    assert pair.lane.output.text() == ""


def test_a_large_task_is_sent_piece_by_piece(pair: Pair) -> None:
    big = Job.of(task("echo", {"text": "x" * 5_000_000}), Limits())
    pair.lane.give(big, now_s=0.0)
    received = b""
    while pair.lane.outbox:
        received += pair.channel.recv(1 << 20)
        pair.lane.send()
    while len(received) < len(big.line):
        received += pair.channel.recv(1 << 20)

    assert received == big.line


def test_lines_come_whole_however_they_are_cut(pair: Pair) -> None:
    assert pair.lane.read_lines() == ([], True)
    pair.channel.send(b"one\ntw")
    assert pair.lane.read_lines() == ([b"one"], True)
    pair.channel.send(b"o\nthr")
    pair.channel.close()

    assert pair.lane.read_last_lines() == [b"two"]
    assert pair.lane.unread == b"thr"
    assert pair.lane.read_lines() == ([], False)


def test_a_task_given_to_a_process_that_has_ended_does_no_harm(pair: Pair) -> None:
    pair.channel.close()
    pair.lane.give(job("one"), now_s=0.0)

    assert not pair.lane.outbox


def test_output_is_read_until_its_end(pair: Pair) -> None:
    assert pair.lane.read_output() is None
    os.write(pair.output, b"words")
    pair.lane.drain_output()
    os.close(pair.output)
    pair.output = -1

    assert pair.lane.output.text() == "words"
    assert pair.lane.read_output() == 0
