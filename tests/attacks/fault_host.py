"""Runs torchstone commands, each in a fork of its own, with one system call that fails: see faults.c.

Reads a line of JSON for each run from stdin and answers with one. Whatever the commands import stays imported, so that
a run costs a fork and not a start of Python.
"""

import ctypes
import io
import json
import os
import signal
import sys
from contextlib import redirect_stderr, redirect_stdout, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

PACKAGES = ("torchstone", "msgspec", "sqlalchemy", "jinja2", "markupsafe", "sqlite3", "rich", "torch", "numpy")


def warm_up(loaded: list[str]) -> None:
    """Import what a run imported: the next ones then find it."""
    for name in loaded:
        with suppress(ImportError, AttributeError, RuntimeError):
            import_module(name)


def run_once(order: dict[str, Any], answer: int) -> None:
    """Run one command line in this process, and write what came of it."""
    shim = ctypes.CDLL(os.environ["LD_PRELOAD"])
    from torchstone.cli.main import run

    os.chdir(order["cwd"])
    os.environ.update(order["environment"])
    fault = order["fault"]
    if fault and fault["in_children"]:
        parts = (order["below"], fault["call"], fault["nth"], fault["errno"])
        os.environ["FAULT_IN_CHILDREN"] = "|".join(map(str, parts))
        os.environ["FAULT_MARK"] = order["mark"]
    elif fault:
        shim.fault_arm(order["below"].encode(), fault["call"].encode(), fault["nth"], fault["errno"])
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run(order["arguments"])
    document = {
        "code": code,
        "loaded": [name for name in sys.modules if name.startswith(PACKAGES)],
        "fired": Path(order["mark"]).exists() or bool(shim.fault_fired()),
        "calls": shim.fault_seen(),
        "out": out.getvalue()[-4000:],
        "err": err.getvalue()[-4000:],
    }
    os.write(answer, json.dumps(document).encode())


def say(line: str) -> None:
    """One line to whoever gives the orders."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    """Answer orders until stdin ends."""
    warm_up(sys.argv[1:])
    say("ready")
    for line in sys.stdin:
        order = json.loads(line)
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)
            os.close(reading)
            run_once(order, writing)
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            answer = pipe.read()
        _, status = os.waitpid(pid, 0)
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # what a command left behind
        if not order["fault"] and answer:
            warm_up(json.loads(answer)["loaded"])
        say((answer or json.dumps({"died": status}).encode()).decode())


if __name__ == "__main__":
    main()
