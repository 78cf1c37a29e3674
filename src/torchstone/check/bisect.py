"""The first environment in which the script of a bundle fails; for inductor, which part of the compiler is at fault."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from torchstone.backends.registry import describe
from torchstone.check.bug_report import SCRIPT, ScriptRun
from torchstone.check.bundle import run_script, unpack
from torchstone.errors import InputError, TorchstoneError
from torchstone.record.task import Limits
from torchstone.temporary import temporary_folder
from torchstone.workers.limits import wait_within
from torchstone.workers.version_search import Bisected, Tried, search_environments

_RESULT = re.compile(
    r"BisectionResult\(backend='(?P<backend>\w+)', subsystem=(?:None|'(?P<part>\w+)'), "
    r"bisect_number=(?:None|(?P<number>\d+)), debug_info=(?P<about>.+)\)\s*$",
    re.MULTILINE,
)


def bisect(
    bundle: Path, pythons: Sequence[str], *, deadline_s: float, say: Callable[[str], None] = lambda _: None
) -> Bisected:
    """Find the first of these environments, oldest first, in which a bundle fails.

    Raises InputError for fewer than two environments, and for a bundle without a script.
    """
    with temporary_folder("bisect") as temporary:
        about = unpack(bundle, temporary)
        script = temporary / SCRIPT
        if not script.is_file():
            msg = f"{bundle} has no script, so there is nothing to run"
            raise InputError(msg)

        def try_in(python: str) -> Tried:
            run = run_script(script, python, deadline_s)
            return Tried(
                python=python, version=_version(about.backend, python), state=run.state, detail=_last_line(run)
            )

        return search_environments(pythons, try_in, say=say)


def _version(backend: str, python: str) -> str:
    try:
        return describe(backend, python=python).version or "unknown"
    except TorchstoneError:  # a backend from a file that is not here; the script may bring its own
        return "unknown"


def _last_line(run: ScriptRun) -> str:
    return run.last_lines.splitlines()[-1] if run.last_lines else ""


# --- The compiler itself: torch has a bisector for the passes of inductor ---


def bisect_compiler(bundle: Path, python: str = "", *, deadline_s: float) -> Bisected:
    """The part of inductor at fault, as torch's compiler_bisector finds it with the script of a bundle.

    Raises InputError for a bundle of another backend: no other compiler has such a bisector.
    """
    python = python or sys.executable
    with temporary_folder("bisect") as temporary:
        about = unpack(bundle, temporary)
        if about.backend != "inductor":
            msg = f"{bundle} is about {about.backend}; torch can bisect inductor only, so give two or more --python"
            raise InputError(msg)
        output = temporary / "bisector.log"
        command = [python, "-m", "torch._inductor.compiler_bisector", "run", python, SCRIPT]
        with output.open("wb") as file:
            process = subprocess.Popen(  # noqa: S603 - the user asked to run this bundle
                command, cwd=temporary, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
                start_new_session=True, env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(temporary / "cache")},
            )  # fmt: skip
            stopped = wait_within(process, Limits(deadline_s=deadline_s))
            if stopped is not None:
                process.kill()
                process.wait()
        text = output.read_text(encoding="utf-8", errors="replace")
    return Bisected(verdict=_compiler_verdict(text, "" if stopped is None else stopped.value))


def _compiler_verdict(text: str, stopped: str) -> str:
    found = _RESULT.search(text)
    if found is not None:
        part = f", {found['part']}" if found["part"] else ""
        number = f", number {found['number']}" if found["number"] else ""
        about = "" if found["about"] == "None" else f": {found['about']}"
        return f"at fault: {found['backend']}{part}{number}{about}"
    if "no issue found" in text:
        return "the bisector found no part whose absence ends the failure"
    last = text.strip().splitlines()[-1:] or ["it printed nothing"]
    return f"the bisector gave no result ({stopped or 'it ended'}): {last[0]}"
