"""Where vectors are checked and run: what the processes are set up with."""

import sys
from pathlib import Path
from typing import Any

from torchstone.record.task import Environment
from torchstone.sweep.generating import WARM_UP

DESCRIBE_MODULE = "torchstone.sweep.child.module:describe"  # the vectors of a sweep module, in its environment
WRITE_SCRIPT = "torchstone.sweep.child.repro:source"  # one failing vector as a script, in a backend's environment
RECORD_AGAIN = "torchstone.sweep.child.retrace:retrace"  # what a vector executes, in eager's environment
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # many small vectors side by side, not one on all cores


def checking_environment() -> Environment:
    """For asking the meta device."""
    return Environment(python=sys.executable, variables=_ONE_THREAD, setup=WARM_UP)


def backend_environment(
    backend: str, options: dict[str, Any], *, python: str = "", forks: bool = True, threads: int = 1
) -> Environment:
    """For running ops on a backend."""
    variables = {name: str(threads) for name in _ONE_THREAD}
    return Environment(
        python=python or sys.executable,
        variables=variables,
        setup="torchstone.sweep.child.run:set_up",
        setup_payload={"backend": backend, "options": options, "threads": threads},
        forks=forks,
    )


def module_environment(
    path: Path, *, python: str = "", variables: dict[str, str] | None = None, extra_paths: tuple[str, ...] = ()
) -> Environment:
    """For the vectors of a sweep module."""
    return Environment(
        python=python or sys.executable,
        variables={**_ONE_THREAD, **(variables or {})},
        setup="torchstone.sweep.child.module:set_up",
        setup_payload={"path": str(path)},
        extra_paths=(*extra_paths, str(path.parent)),
    )
