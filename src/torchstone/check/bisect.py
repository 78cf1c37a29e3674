"""The first environment in which the script of a bundle fails; for inductor, which part of the compiler is at fault."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from torchstone.backends.registry import describe
from torchstone.check.bug_report import SCRIPT, ScriptRun
from torchstone.check.bundle import Bundle, run_script, unpack
from torchstone.errors import InputError, TorchstoneError
from torchstone.record.base import Record
from torchstone.record.task import Limits
from torchstone.workers.limits import wait_within

PASSES, FAILS = ("passes",), ("fails", "hangs")
_FEWEST = 2
_RESULT = re.compile(
    r"BisectionResult\(backend='(?P<backend>\w+)', subsystem=(?:None|'(?P<part>\w+)'), "
    r"bisect_number=(?:None|(?P<number>\d+)), debug_info=(?P<about>.+)\)\s*$",
    re.MULTILINE,
)


class Tried(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One environment in which the script ran."""

    python: str
    version: str  # of the backend there
    state: str  # passes, fails, hangs, could not run
    detail: str = ""


class Bisected(Record, frozen=True, kw_only=True, omit_defaults=False):
    """What a bisection found."""

    verdict: str  # one sentence
    last_good: str = ""  # interpreter; "" where none passes
    first_bad: str = ""  # interpreter; "" where none fails
    tried: tuple[Tried, ...] = ()
    fails: bool = True  # somewhere, or it is not known


def bisect(
    bundle: Path, pythons: Sequence[str], *, deadline_s: float, say: Callable[[str], None] = lambda _: None
) -> Bisected:
    """Find the first of these environments, oldest first, in which a bundle fails; halving between both ends.

    The pair that is named was run: the first bad one failed and the last good one before it passed. Environments in
    which the script cannot be tried are passed over. Raises InputError for fewer than two environments.
    """
    if len(pythons) < _FEWEST:
        msg = "give two or more --python, the environment with the oldest version first"
        raise InputError(msg)
    with tempfile.TemporaryDirectory(prefix="torchstone-bisect-") as temporary:
        about = unpack(bundle, Path(temporary))
        script = Path(temporary) / SCRIPT
        if not script.is_file():
            msg = f"{bundle} has no script, so there is nothing to run"
            raise InputError(msg)
        search = _Search(about, script, pythons, deadline_s, say)
        return search.result(*search.ends())


class _Search:
    """Runs environments at most once each, in the order in which they are asked for."""

    def __init__(
        self, about: Bundle, script: Path, pythons: Sequence[str], deadline_s: float, say: Callable[[str], None]
    ) -> None:
        self._about = about
        self._script = script
        self._pythons = pythons
        self._deadline_s = deadline_s
        self._say = say
        self._tried: dict[int, Tried] = {}

    def ends(self) -> tuple[int | None, int | None]:
        """The last good and the first bad environment; None where there is none."""
        order = range(len(self._pythons))
        first = next((place for place in order if self._state(place) in PASSES + FAILS), None)
        last = next((place for place in reversed(order) if self._state(place) in PASSES + FAILS), None)
        if first is None or last is None or self._state(first) in FAILS:
            return None, first
        if self._state(last) in PASSES:
            return last, None
        good, bad = first, last
        while between := [place for place in range(good + 1, bad) if self._usable(place)]:
            middle = between[len(between) // 2]
            if self._state(middle) in PASSES:
                good = middle
            elif self._state(middle) in FAILS:
                bad = middle
        return good, bad

    def result(self, good: int | None, bad: int | None) -> Bisected:
        """What was found, in words."""
        tried = tuple(self._tried[place] for place in sorted(self._tried))
        if good is None and bad is None:
            return Bisected(verdict="the script could not be tried in any of these environments", tried=tried)
        if bad is None:
            assert good is not None  # noqa: S101 - one of them is known
            verdict = f"it passes in the first and in the last, {self._shown(good)}"
            return Bisected(verdict=verdict, last_good=self._pythons[good], tried=tried, fails=False)
        if good is None:
            verdict = f"it fails already in the first that could be tried, {self._shown(bad)}: give an older one"
            return Bisected(verdict=verdict, first_bad=self._pythons[bad], tried=tried)
        gap = "" if bad == good + 1 else "; those between them could not be tried"
        verdict = f"first bad: {self._shown(bad)}; it passes with {self._shown(good)}{gap}"
        return Bisected(
            verdict=verdict, last_good=self._pythons[good], first_bad=self._pythons[bad], tried=tried
        )  # fmt: skip

    def _usable(self, place: int) -> bool:
        return place not in self._tried or self._tried[place].state in PASSES + FAILS

    def _state(self, place: int) -> str:
        if place not in self._tried:
            python = self._pythons[place]
            self._say(f"running {python}")
            run = run_script(self._script, python, self._deadline_s)
            self._tried[place] = Tried(
                python=python, version=self._version(python), state=run.state, detail=_last_line(run)
            )
        return self._tried[place].state

    def _version(self, python: str) -> str:
        try:
            return describe(self._about.backend, python=python).version or "unknown"
        except TorchstoneError:  # a backend from a file that is not here; the script may bring its own
            return "unknown"

    def _shown(self, place: int) -> str:
        return f"{self._pythons[place]} ({self._tried[place].version})"


def _last_line(run: ScriptRun) -> str:
    return run.last_lines.splitlines()[-1] if run.last_lines else ""


# --- The compiler itself: torch has a bisector for the passes of inductor ---


def bisect_compiler(bundle: Path, python: str = "", *, deadline_s: float) -> Bisected:
    """The part of inductor at fault, as torch's compiler_bisector finds it with the script of a bundle.

    Raises InputError for a bundle of another backend: no other compiler has such a bisector.
    """
    python = python or sys.executable
    with tempfile.TemporaryDirectory(prefix="torchstone-bisect-") as temporary:
        about = unpack(bundle, Path(temporary))
        if about.backend != "inductor":
            msg = f"{bundle} is about {about.backend}; torch can bisect inductor only, so give two or more --python"
            raise InputError(msg)
        output = Path(temporary) / "bisector.log"
        command = [python, "-m", "torch._inductor.compiler_bisector", "run", python, SCRIPT]
        with output.open("wb") as file:
            process = subprocess.Popen(  # noqa: S603 - the user asked to run this bundle
                command, cwd=temporary, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
                start_new_session=True, env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(Path(temporary) / "cache")},
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
