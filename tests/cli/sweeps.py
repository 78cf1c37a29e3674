"""Folders of sweeps, made by hand or with the real command."""

import json
from pathlib import Path

from tests.sweep.builders import call, mm, run, seen, tensor, vector
from torchstone.record.config import Configuration
from torchstone.record.vector import SweepPlan, SweepSettings, VectorFile, VectorResult
from torchstone.store.database import Store
from torchstone.sweep.folder import new_run, write_vectors

FAULTS = {
    "aten.sin.default": "crash",
    "aten.cos.default": "hang",
    "aten.exp.default": "memory",
    "aten.neg.default": "wrong",
    "aten.abs.default": "unsupported",
    "aten.tanh.default": "nan",
    "aten.sqrt.default": "compile_error",
    "aten.erf.default": "raise",
    "aten.log.default": "no_answer",
}
OPTION = "faults=" + json.dumps([{"fault": fault, "op": op} for op, fault in FAULTS.items()])


def unary(op: str, *shape: int) -> Configuration:
    return call(op, self_=tensor(*shape or (3, 4)))


def database(path: Path, *configurations: Configuration) -> str:
    """A database that knows these calls."""
    with Store.open(str(path)) as store:
        store.add(seen(one, calls=number + 1) for number, one in enumerate(configurations))
    return str(path)


def vectors_in(folder: Path, *configurations: Configuration) -> None:
    """A folder with a vector for each call."""
    made = [vector(one, role="compute") for one in configurations]
    files = [
        VectorFile(module=op, vectors=tuple(one for one in made if one.op == op)) for op in {one.op for one in made}
    ]
    write_vectors(folder, files)


def finished_run(folder: Path, name: str, *results: VectorResult, backend: str = "eager") -> None:
    """A run that is over."""
    head = run(name, backend=backend, finished=False)
    vectors = tuple(vector(mm(), id=one.id) for one in results)
    made = new_run(folder, SweepPlan(run=head, vectors=vectors, settings=SweepSettings(perf_runs=1)))
    with made.journal() as journal:
        for one in results:
            journal.keep(one.id, one)
    made.finish(made.gathered(finished=True))
