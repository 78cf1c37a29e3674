"""kill -9 at system calls of commands that write, then the same command again: the files of an undisturbed run."""

import random
from pathlib import Path

import pytest

from tests.attacks.fault_runs import KILL, Command, Fault, Host, numbers, survive, undisturbed
from tests.attacks.test_faults import HEAVY, LIGHT, WITH_TORCH, WITH_WORKERS, host, work

CALLS = ("write", "fsync", "rename", "open", "mkdir")

__all__ = ["host", "work"]  # fixtures


def kill_some(host: Host, command: Command, work: Path, *, most: int) -> list[str]:
    """Kill a command at up to `most` of its calls, drawn from all of them."""
    expected = undisturbed(host, command, work)
    points = [(call, nth) for call in CALLS for nth in numbers(host, command, work, call, most=100_000)]
    dice = random.Random(command.arguments)  # noqa: S311 - points, not secrets
    before = host.counts["kill"]
    problems = [
        problem
        for call, nth in dice.sample(points, min(most, len(points)))
        for problem in survive(host, command, work, Fault(call=call, error=KILL, nth=nth), expected)
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
def test_a_killed_command_with_torch_can_be_run_again(name: str, host: Host, work: Path) -> None:
    assert kill_some(host, WITH_TORCH[name], work, most=100) == []


@pytest.mark.heavy
@pytest.mark.torch
@pytest.mark.parametrize("name", WITH_WORKERS)
def test_a_killed_command_with_workers_is_resumed(name: str, host: Host, work: Path) -> None:
    assert kill_some(host, WITH_WORKERS[name], work, most=25) == []
