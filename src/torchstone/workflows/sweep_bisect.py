"""One vector in several environments of a backend -> the first version in which it fails."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torchstone.errors import TorchstoneError
from torchstone.workflows.progress import SILENT, Progress
from torchstone.workflows.sweep_generate import DEFAULT_FOLDER
from torchstone.workflows.sweep_run import DEFAULT_TIMEOUT_S, RunRequest, plan_sweep, run_sweep

if TYPE_CHECKING:
    from torchstone.record.vector import SweepRun
    from torchstone.workers.version_search import Bisected, Tried


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectRequest:
    """A vector, by the beginning of its id, and the interpreters of the environments, oldest version first."""

    vector_id: str
    backend: str
    pythons: Sequence[str]
    folder: Path = DEFAULT_FOLDER
    timeout_s: float = DEFAULT_TIMEOUT_S


def bisect_sweep(request: BisectRequest, progress: Progress = SILENT) -> "Bisected":
    """Find the first environment in which a vector fails; each one that is tried is a run of the folder.

    Raises InputError where the beginning of the id matches no vector, or more than one, and for fewer than two
    environments.
    """
    from torchstone.workers.version_search import search_environments

    plan_sweep(RunRequest(folder=request.folder, vector_id=request.vector_id))  # it is one vector
    return search_environments(request.pythons, lambda python: _try_in(request, python), say=progress.note)


def _try_in(request: BisectRequest, python: str) -> "Tried":
    from torchstone.workers.version_search import Tried

    asked = RunRequest(
        folder=request.folder,
        vector_id=request.vector_id,
        backend=request.backend,
        python=python,
        timeout_s=request.timeout_s,
    )
    try:
        run = run_sweep(asked)
    except TorchstoneError as error:  # no backend there, or no interpreter: the next environment may have it
        why = str(error).partition("; it said:")[0].partition("\n")[0]  # the rest is the traceback of a process
        return Tried(python=python, version="unknown", state="could not run", detail=why)
    state, detail = _state_of(run)
    return Tried(python=python, version=run.backend_version or "unknown", state=state, detail=detail)


def _state_of(run: "SweepRun") -> tuple[str, str]:
    """Passes, fails or hangs; what was not run, or is not supported there, says nothing about the vector."""
    from torchstone.record.check import Outcome
    from torchstone.record.vector import FAILED, Status

    (result,) = run.results
    if result.status is Status.PASS:
        return "passes", ""
    if result.status in FAILED or result.status is Status.XFAIL:
        return "hangs" if result.outcome is Outcome.TIMED_OUT else "fails", result.detail
    return "could not run", result.detail
