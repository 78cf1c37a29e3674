"""kill -9 at system calls, and signals at any time, then the same command again: the files of an undisturbed run."""

import os
import random
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.attacks.fault_commands import HEAVY, IMPORTED, LIGHT, WITH_TORCH, WITH_WORKERS
from tests.attacks.fault_runs import (
    KILL,
    Command,
    Fault,
    Host,
    Signal,
    build_shim,
    numbers,
    open_host,
    survive,
    survive_signal,
    undisturbed,
)
from tests.attacks.test_faults import host, work

CALLS = ("write", "fsync", "rename", "open", "mkdir")

SIGNALS = (
    (signal.SIGKILL, "parent"),
    (signal.SIGKILL, "worker"),
    (signal.SIGKILL, "everything"),
    (signal.SIGTERM, "parent"),
    (signal.SIGTERM, "group"),
    (signal.SIGINT, "group"),
)
SIGNALS_OF_A_KIND = int(os.environ.get("SIGNALS_OF_A_KIND", "17"))  # 102 of each command

__all__ = ["host", "work"]  # fixtures


@pytest.fixture(scope="module")
def warm_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A host that has imported torch, whose workers are forks of it."""
    shim = build_shim(tmp_path_factory.mktemp("shim"))
    if shim is None:
        pytest.skip("there is no C compiler, or the system does not preload libraries")
    with open_host(shim, IMPORTED) as opened:
        opened.warm_workers = True
        yield opened
        print("\ninjected:", dict(opened.counts))  # noqa: T201 - shown with -s: how many kills and signals there were


def kill_some(host: Host, command: Command, work: Path, *, most: int) -> list[str]:
    """Kill a command at up to `most` of its calls, drawn from all of them."""
    expected = undisturbed(host, command, work)
    points = [(call, nth) for call in CALLS for nth in numbers(host, command, work, call, most=100_000, below="out")]
    dice = random.Random(command.arguments)  # noqa: S311 - points, not secrets
    before = host.counts["kill"]
    problems = [
        problem
        for call, nth in dice.sample(points, min(most, len(points)))
        for problem in survive(host, command, work, Fault(call=call, error=KILL, nth=nth, below="out"), expected)
    ]
    assert host.counts["kill"] > before
    return problems


@pytest.mark.parametrize("name", LIGHT)
def test_a_killed_command_can_be_run_again(name: str, host: Host, work: Path) -> None:
    assert kill_some(host, LIGHT[name], work, most=8) == []


@pytest.mark.heavy
@pytest.mark.parametrize("name", LIGHT | HEAVY)
def test_a_command_killed_at_any_call_can_be_run_again(name: str, host: Host, work: Path) -> None:
    assert kill_some(host, (LIGHT | HEAVY)[name], work, most=100) == []


@pytest.mark.heavy
@pytest.mark.torch
@pytest.mark.parametrize("name", WITH_TORCH)
def test_a_killed_command_with_torch_can_be_run_again(name: str, warm_host: Host, work: Path) -> None:
    assert kill_some(warm_host, WITH_TORCH[name], work, most=100) == []


@pytest.mark.heavy
@pytest.mark.torch
@pytest.mark.parametrize("name", WITH_WORKERS)
def test_a_killed_command_with_workers_is_resumed(name: str, warm_host: Host, work: Path) -> None:
    assert kill_some(warm_host, WITH_WORKERS[name], work, most=100) == []


def signal_some(
    host: Host, command: Command, work: Path, *, most: int, kinds: Sequence[tuple[signal.Signals, str]] = SIGNALS
) -> list[str]:
    """Send each kind of signal `most` times, at times drawn from the whole of an undisturbed run."""
    undisturbed(host, command, work)  # the first run imports
    began_s = time.monotonic()
    expected = undisturbed(host, command, work)
    usual_s = (time.monotonic() - began_s) / 2
    dice = random.Random(f"signals of {command.arguments}")  # noqa: S311 - times, not secrets
    problems = []
    for number, target in kinds:
        for _ in range(most):
            sent = Signal(number=number, target=target, after_s=dice.random() * usual_s, which=dice.randrange(1_000))
            problems += survive_signal(host, command, work, sent, expected)
    assert sum(count for name, count in host.counts.items() if name.startswith("SIG")) > 0
    return problems


@pytest.mark.heavy
@pytest.mark.torch
@pytest.mark.parametrize("name", WITH_WORKERS)
def test_a_signal_at_any_time_leaves_nothing_behind(name: str, warm_host: Host, work: Path) -> None:
    assert signal_some(warm_host, WITH_WORKERS[name], work, most=SIGNALS_OF_A_KIND) == []


@pytest.mark.heavy
@pytest.mark.torch
@pytest.mark.parametrize(
    "name", ["memory", "formula derive"]
)  # too few system calls for a hundred kills; some come too late
def test_a_command_killed_at_any_time_can_be_run_again(name: str, warm_host: Host, work: Path) -> None:
    everything = [(signal.SIGKILL, "everything")]
    assert signal_some(warm_host, (LIGHT | WITH_TORCH)[name], work, most=300, kinds=everything) == []
