"""Fail every system call of the commands that write files, one at a time, and count what became of it.

    python tools/faults.py                                    # every call of every command
    python tools/faults.py --command cost --call write        # a part
    python tools/faults.py --minutes 60                       # the same line continues where it stopped

A point is one call (tests/attacks/faults.c) with one error, in the command or in each of its workers. It is survived
when the command ends in success with the files of an undisturbed run, or with one sentence and the old files or the new
ones, and the same command then gives the files of an undisturbed run. Only calls on files below the working directory
fail: inputs, results, kept captures and temporary files, not the modules of Python. Each point is written to the file
of --progress when it is over. A point that stands there is not run again; with --again, those that failed or were not
reached are. With --distinct, of the calls that the same lines of Python lead to, only the first one fails: what handles
the error is the same code.
"""

import argparse
import errno
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.attacks.fault_commands import ALL, IMPORTED, WITH_TORCH, WITH_WORKERS, fill  # noqa: E402 - the repository is on the path
from tests.attacks.fault_runs import FAULTS, Fault, Host, attempt, build_shim, calls_of, open_host, undisturbed  # noqa: E402

SURVIVED, FAILED, NOT_REACHED = "survived", "failed", "not reached"
MISSED_IN_A_ROW = 3  # numbers that no worker reached: there are no later ones


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One call that fails, and what became of it."""

    command: str
    workers: bool
    call: str
    nth: int
    error: str
    outcome: str = ""
    problems: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, bool, str, int, str]:
        """What tells it from the others."""
        return self.command, self.workers, self.call, self.nth, self.error


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """How often an undisturbed run of a command calls a function."""

    command: str
    call: str
    calls: int
    distinct: int = 0  # code paths that lead to them


class Progress:
    """The points that are over, and how many there are: each a line of a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.points: dict[tuple[str, bool, str, int, str], Point] = {}
        self.calls: dict[tuple[str, str], Calls] = {}
        lines = path.read_bytes().split(b"\n") if path.exists() else [b""]
        if lines[-1]:  # the line of a process that was killed
            path.write_bytes(b"\n".join([*lines[:-1], b""]))
        for line in lines[:-1]:
            found = json.loads(line)
            if "calls" in found:
                self._remember(Calls(**found))
            else:
                self._remember(Point(**{**found, "problems": tuple(found["problems"])}))

    def _remember(self, known: Point | Calls) -> None:
        """A later line is that of a later try."""
        if isinstance(known, Calls):
            self.calls[known.command, known.call] = known
        else:
            self.points[known.key] = known

    def keep(self, known: Point | Calls) -> None:
        """Write what is known now."""
        self._remember(known)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(known)) + "\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is left to do."""

    calls: tuple[str, ...]
    until_s: float
    again: bool
    distinct: bool
    only_workers: bool


class OutOfTimeError(Exception):
    """The minutes are over."""


class Campaign:
    """The points of one command."""

    def __init__(self, name: str, host: Host, work: Path, progress: Progress, plan: Plan) -> None:
        self._name, self._host, self._work, self._progress, self._plan = name, host, work, progress, plan
        self._expected = undisturbed(host, ALL[name], work)

    def run(self) -> None:
        """Fail the calls of the command, then those of its workers, whose number is not known before."""
        chosen = {}
        for call in self._plan.calls:
            paths = calls_of(self._host, ALL[self._name], self._work, call)
            first = sorted(paths.index(one) + 1 for one in set(paths))
            self._progress.keep(Calls(command=self._name, call=call, calls=len(paths), distinct=len(first)))
            chosen[call] = first if self._plan.distinct else range(1, len(paths) + 1)
        for call, numbers in () if self._plan.only_workers else chosen.items():
            for nth in numbers:
                self._fail(call, nth, workers=False)
        for call in self._plan.calls if self._name in WITH_WORKERS else ():
            nth = missed = 0
            while missed < MISSED_IN_A_ROW:
                nth += 1
                missed = 0 if self._fail(call, nth, workers=True) else missed + 1

    def _fail(self, call: str, nth: int, *, workers: bool) -> bool:
        """Fail one call with each error; says whether it was reached."""
        outcomes = set()
        for error in FAULTS[call]:
            point = Point(command=self._name, workers=workers, call=call, nth=nth, error=errno.errorcode[error])
            known = self._progress.points.get(point.key)
            if known is None or (self._plan.again and known.outcome != SURVIVED):
                known = self._run(point, error)
            outcomes.add(known.outcome)
        return outcomes != {NOT_REACHED}

    def _run(self, point: Point, error: int) -> Point:
        if time.monotonic() > self._plan.until_s:
            raise OutOfTimeError
        fault = Fault(call=point.call, error=error, nth=point.nth, in_children=point.workers)
        problems = attempt(self._host, ALL[self._name], self._work, fault, self._expected)
        outcome = NOT_REACHED if problems is None else FAILED if problems else SURVIVED
        done = replace(point, outcome=outcome, problems=tuple(problems or ()))
        self._progress.keep(done)
        for problem in done.problems:
            print(problem, flush=True)
        return done


def totals(progress: Progress, names: list[str], plan: Plan) -> Iterator[str]:
    """A table by command and call; the calls of workers end where none of them comes to the next number."""
    outcomes = Counter((one.command, one.workers, one.call, one.outcome) for one in progress.points.values())
    sums = [0, 0, 0, 0, 0]
    yield "| command | call | points | survived | failed | not reached | left |"
    yield "|---|---|---:|---:|---:|---:|---:|"
    for name, workers, call in product(names, (False, True), plan.calls):
        survived, failed, missed = (outcomes[name, workers, call, one] for one in (SURVIVED, FAILED, NOT_REACHED))
        done = survived + failed + (0 if workers else missed)
        found = progress.calls.get((name, call))
        calls = 0 if found is None or workers else found.distinct if plan.distinct else found.calls
        points = max(done, calls * len(FAULTS[call]))
        row = [points, survived, failed, done - survived - failed, points - done]
        if any(row):
            sums = [one + more for one, more in zip(sums, row, strict=True)]
            yield f"| {name}{', workers' * workers} | {call} | {' | '.join(map(str, row))} |"
    yield f"| all | | {' | '.join(map(str, sums))} |"


def main() -> int:
    """Run the points that are left; 1 where one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", action="append", choices=list(ALL), help="only this one; may be repeated")
    parser.add_argument("--call", action="append", choices=list(FAULTS), help="only this one; may be repeated")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--progress", type=Path, default=Path("faults.jsonl"), help="the file of what is over")
    parser.add_argument("--again", action="store_true", help="run points again that failed or were not reached")
    parser.add_argument("--distinct", action="store_true", help="the first call of each code path that leads to it")
    parser.add_argument("--only-workers", action="store_true", help="the calls of workers, not of the command itself")
    parser.add_argument("--totals", action="store_true", help="run nothing, print what the file says")
    chosen = parser.parse_args()
    names = chosen.command or list(ALL)
    until_s = time.monotonic() + chosen.minutes * 60
    plan = Plan(
        calls=tuple(chosen.call or FAULTS),
        until_s=until_s,
        again=chosen.again,
        distinct=chosen.distinct,
        only_workers=chosen.only_workers,
    )
    progress = Progress(chosen.progress)
    left: list[str] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="faults-")))
        shim = build_shim(folder)
        if shim is None:
            sys.exit("there is no C compiler, or the system does not preload libraries")
        for number, name in enumerate([] if chosen.totals else names):
            work = folder / str(number)
            work.mkdir()
            with open_host(shim, IMPORTED if name in WITH_TORCH | WITH_WORKERS else ()) as host:
                host.warm_workers = True
                try:
                    Campaign(name, host, fill(work), progress, plan).run()
                except OutOfTimeError:
                    left.append(name)
    print("\n".join(totals(progress, names, plan)))
    if left:
        print(f"out of time, points are left: {', '.join(left)}; run the same line again")
    return int(any(one.outcome == FAILED and one.command in names for one in progress.points.values()))


if __name__ == "__main__":
    sys.exit(main())
