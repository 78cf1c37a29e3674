"""A full disk, a missing permission or an exhausted table at the system calls of every command that writes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

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
from tests.attacks.readers import READERS
from tests.cli.sweeps import unary, vectors_in
from tests.report.traces import transformer
from torchstone.record import codec

NET = """import torch

def load_model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())

def get_inputs():
    return torch.ones(2, 4)
"""
MODEL = "net.py::load_model --inputs net.py::get_inputs"
LIGHT = {
    "report": Command(arguments="report out", inputs=("trace.json",)),
    "memory": Command(arguments="memory parse my.log --dir out/m"),
    "diff": Command(arguments="diff model other --dir out/d", code=1),
}
HEAVY = {
    "cost": Command(arguments="cost model --dir out/c", first="cost other --dir out/c"),
    "memory report": Command(arguments="memory report my.log --dir out/m"),
    "db import": Command(arguments="db import master.json --db out/x.db"),
    "formula generate": Command(
        arguments="formula generate --filter torch.nn.modules.linear --out out/g",
        first="formula generate --filter torch.nn.modules.conv --out out/g",
    ),
}
WITH_TORCH = {
    "inspect": Command(arguments=f"inspect {MODEL} --dir out/i"),
    "reference": Command(arguments=f"reference {MODEL} --dir out/r"),
    "formula derive": Command(arguments="formula derive torch.nn.Tanh --out out/f.json"),
    "trace": Command(arguments="trace script.py --db out/t.db"),
}
_CHECK = f"check {MODEL} --backend faulty --backend-option fault=wrong --backend-option op=aten.relu.* --dir out/k"
_ANALYZE = f"analyze {MODEL} --backend aot_eager --dir out/a"
WITH_WORKERS = {
    "check": Command(arguments=_CHECK, again=f"{_CHECK} --resume", code=1),
    "sweep run": Command(arguments="sweep run --dir out", again="sweep run --dir out --resume", inputs=("vectors",)),
    "analyze": Command(arguments=_ANALYZE, again=f"{_ANALYZE} --resume"),
}


@pytest.fixture
def work(tmp_path: Path) -> Path:
    for folder, layers in (("model", 1), ("other", 2)):
        (tmp_path / folder).mkdir()
        codec.save(tmp_path / folder / "trace.json", transformer(layers))
    codec.save(tmp_path / "trace.json", transformer(1))
    (tmp_path / "my.log").write_bytes(READERS["log"].corpus()[0])
    (tmp_path / "master.json").write_bytes(READERS["master"].corpus()[0])
    (tmp_path / "net.py").write_text(NET, encoding="utf-8")
    (tmp_path / "script.py").write_text("import torch\ntorch.ones(2) + 1\n", encoding="utf-8")
    vectors_in(tmp_path, unary("aten.sin.default"), unary("aten.cos.default"))
    (tmp_path / "out").mkdir()
    return tmp_path


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
