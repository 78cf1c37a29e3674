"""A full disk, a missing permission or an exhausted table at the system calls of every command that writes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attacks.fault_commands import HEAVY, LIGHT, WITH_TORCH, WITH_WORKERS, fill
from tests.attacks.fault_runs import (
    FAULTS,
    Command,
    Fault,
    Host,
    build_shim,
    numbers,
    open_host,
    survive,
    undisturbed,
)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return fill(tmp_path)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    shim = build_shim(tmp_path_factory.mktemp("shim"))
    if shim is None:
        pytest.skip("there is no C compiler, or the system does not preload libraries")
    with open_host(shim) as opened:
        yield opened
        print("\ninjected:", dict(opened.counts))  # noqa: T201 - shown with -s: how many faults and kills there were


def fail_some(host: Host, command: Command, work: Path, *, most: int) -> list[str]:
    """Fail up to `most` calls of each function, in each way."""
    expected = undisturbed(host, command, work)
    before = sum(host.counts.values())
    problems = [
        problem
        for call, errors in FAULTS.items()
        for nth in numbers(host, command, work, call, most=most)
        for error in errors
        for problem in survive(host, command, work, Fault(call=call, error=error, nth=nth), expected)
    ]
    assert sum(host.counts.values()) > before + 5, "too few calls failed to show anything"
    return problems


@pytest.mark.parametrize("name", LIGHT)
def test_a_failing_call_leaves_the_old_file_or_the_new_one(name: str, host: Host, work: Path) -> None:
    assert fail_some(host, LIGHT[name], work, most=4) == []


@pytest.mark.heavy
@pytest.mark.parametrize("name", LIGHT | HEAVY)
def test_every_failing_call_is_survived(name: str, host: Host, work: Path) -> None:
    assert fail_some(host, (LIGHT | HEAVY)[name], work, most=400) == []


@pytest.mark.heavy
@pytest.mark.torch
@pytest.mark.parametrize("name", WITH_TORCH)
def test_failing_calls_of_a_command_with_torch_are_survived(name: str, host: Host, work: Path) -> None:
    assert fail_some(host, WITH_TORCH[name], work, most=12) == []


@pytest.mark.heavy
@pytest.mark.torch
@pytest.mark.parametrize("name", WITH_WORKERS)
def test_failing_calls_of_a_command_with_workers_are_survived(name: str, host: Host, work: Path) -> None:
    assert fail_some(host, WITH_WORKERS[name], work, most=4) == []


@pytest.mark.heavy
@pytest.mark.torch
@pytest.mark.parametrize("name", WITH_WORKERS)
def test_a_failing_call_of_a_worker_is_not_taken_for_a_failure_of_the_backend(
    name: str, host: Host, work: Path
) -> None:
    command = WITH_WORKERS[name]
    expected = undisturbed(host, command, work)
    problems = [
        problem
        for call in FAULTS
        for nth in (1, 2, 4)
        for problem in survive(
            host, command, work, Fault(call=call, error=FAULTS[call][0], nth=nth, in_children=True), expected
        )
    ]
    assert problems == []
