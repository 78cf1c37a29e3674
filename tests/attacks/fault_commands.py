"""The commands that write files and are run with system calls that fail, and the files that they read."""

import os
from pathlib import Path

from tests.attacks.fault_runs import Command
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
    "inspect of a kept capture": Command(
        arguments=f"inspect {MODEL} --dir out/i", first=f"inspect {MODEL} --dir out/first"
    ),
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
ALL = LIGHT | HEAVY | WITH_TORCH | WITH_WORKERS
IMPORTED = (  # by workers; a run then costs a few forks
    "torch", "torch._dynamo", "torch.export", "torch._functorch.aot_autograd", "torch._dynamo.backends.debugging",
    "torchstone.check.child.repro", "torchstone.check.child.recording", "torchstone.backends.export",
    "torchstone.sweep.child.run",
)  # fmt: skip
_LONG_AGO_S = 1_700_000_000  # captures of code that has just been written are not kept


def fill(work: Path) -> Path:
    """Write what the commands read into a folder."""
    for folder, layers in (("model", 1), ("other", 2)):
        (work / folder).mkdir()
        codec.save(work / folder / "trace.json", transformer(layers))
    codec.save(work / "trace.json", transformer(1))
    (work / "my.log").write_bytes(READERS["log"].corpus()[0])
    (work / "master.json").write_bytes(READERS["master"].corpus()[0])
    for name, text in (("net.py", NET), ("script.py", "import torch\ntorch.ones(2) + 1\n")):
        (work / name).write_text(text, encoding="utf-8")
        os.utime(work / name, (_LONG_AGO_S, _LONG_AGO_S))
    vectors_in(work, unary("aten.sin.default"), unary("aten.cos.default"))
    (work / "out").mkdir()
    return work
