"""A full disk, a missing permission or an exhausted table at every single system call of the commands that write."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attacks.fault_runs import FAULTS, Command, Host, build_shim, fail_every_call, open_host, order_for
from tests.attacks.readers import READERS
from tests.report.traces import transformer
from torchstone.record import codec

NET = """import torch

def load_model():
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())

def get_inputs():
    return torch.ones(2, 4)
"""
LIGHT = {
    "report": Command(arguments="report out", inputs=("trace.json",)),
    "memory": Command(arguments="memory parse my.log --dir out/m"),
}
HEAVY = {
    "cost": Command(arguments="cost model --dir out/c"),
    "memory report": Command(arguments="memory report my.log --dir out/m"),
    "db import": Command(arguments="db import master.json --db out/x.db"),
    "formula generate": Command(arguments="formula generate --filter torch.nn.modules.linear --out out/g"),
}
WITH_TORCH = {
    "inspect": Command(arguments="inspect net.py::load_model --inputs net.py::get_inputs --dir out/i"),
    "reference": Command(arguments="reference net.py::load_model --inputs net.py::get_inputs --dir out/r"),
    "trace": Command(arguments="trace script.py --db out/t.db"),
}


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    codec.save(tmp_path / "trace.json", transformer(1))
    codec.save(tmp_path / "model" / "trace.json", transformer(1))
    (tmp_path / "my.log").write_bytes(READERS["log"].corpus()[0])
    (tmp_path / "master.json").write_bytes(READERS["master"].corpus()[0])
    (tmp_path / "net.py").write_text(NET, encoding="utf-8")
    (tmp_path / "script.py").write_text("import torch\ntorch.ones(2) + 1\n", encoding="utf-8")
    (tmp_path / "out").mkdir()
    return tmp_path


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    shim = build_shim(tmp_path_factory.mktemp("shim"))
    if shim is None:
        pytest.skip("there is no C compiler, or the system does not preload libraries")
    with open_host(shim) as opened:
        yield opened


def fail_all(host: Host, command: Command, work: Path, *, step: int = 1) -> list[str]:
    for name in command.inputs:
        (work / "out" / name).write_bytes((work / name).read_bytes())
    first = host.run(order_for(work, command.arguments))
    assert first["code"] == command.code, first["err"]
    before = sum(host.counts.values())
    problems = [
        problem
        for call, errors in FAULTS.items()
        for error in errors
        for problem in fail_every_call(host, command, work, call, error, step=step)
    ]
    assert sum(host.counts.values()) > before + 5, "too few calls failed to show anything"
    return problems


@pytest.mark.parametrize("name", LIGHT)
def test_a_failing_call_leaves_the_old_file_or_the_new_one(name: str, host: Host, work: Path) -> None:
    assert fail_all(host, LIGHT[name], work, step=2) == []


@pytest.mark.heavy
@pytest.mark.parametrize("name", HEAVY)
def test_every_failing_call_of_a_long_command_is_survived(name: str, host: Host, work: Path) -> None:
    assert fail_all(host, HEAVY[name], work) == []


@pytest.mark.heavy
@pytest.mark.torch
@pytest.mark.parametrize("name", WITH_TORCH)
def test_every_failing_call_of_a_command_with_torch_is_survived(name: str, host: Host, work: Path) -> None:
    assert fail_all(host, WITH_TORCH[name], work) == []
