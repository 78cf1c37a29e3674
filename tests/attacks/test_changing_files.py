"""Files that another process changes while a command reads them: at each call that looks at one of them.

The answer is that for the files before the change, or that for those after it, or a sentence: never a mixture, an
internal error, a process that waits for a pipe or one that dies of a mapped file that became shorter.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.fault_runs import COUNT_ALL, Fault, Host
from tests.attacks.readers import READERS
from tests.attacks.test_faults import host
from tests.report.traces import transformer
from torchstone.record import codec

__all__ = ["host"]  # a fixture

CHANGES = {"cut": -2, "emptied": -3, "replaced": -4, "a pipe": -5, "gone": -6, "a link": -7}  # as in faults.c
CALLS = ("open", "read", "stat", "list", "mmap")
IN, OTHER, GONE, OUT = "in", "in_other", "in_gone", "out"
LIGHT = {"cost": "cost in/model", "memory show": "memory show in/my.log"}
HEAVY = LIGHT | {
    "inspect": "inspect in/model",
    "diff": "diff in/model in/second",
    "memory parse": "memory parse in/my.log --dir out/m",
    "memory report": "memory report in/my.log --dir out/m",
    "db import": "db import in/master.json --db out/x.db",
}


def fill(work: Path) -> Path:
    """What the commands read, and another version of each of these files."""
    kept = work / "kept"
    for folder, layers in ((IN, 1), (OTHER, 3)):
        for name in ("model", "second"):
            (kept / folder / name).mkdir(parents=True)
            codec.save(kept / folder / name / "trace.json", transformer(layers + (name == "second")))
    log, master = READERS["log"].corpus(), READERS["master"].corpus()
    (kept / IN / "my.log").write_bytes(log[0])
    (kept / OTHER / "my.log").write_bytes(log[0] + log[-1])
    (kept / IN / "master.json").write_bytes(master[0])
    (kept / OTHER / "master.json").write_bytes(master[-1])
    return work


def prepare(work: Path) -> None:
    for name in (IN, OTHER, GONE, OUT, "cache", "tmp"):
        path = work / name
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    for name in (IN, OTHER):
        shutil.copytree(work / "kept" / name, work / name)
    for name in (OUT, "cache", "tmp"):
        (work / name).mkdir()


def answer_of(answer: dict[str, Any]) -> tuple[object, ...]:
    """What a user gets: the exit code and what was printed."""
    return answer.get("code"), answer.get("out")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return fill(tmp_path)


def wrong_after(host: Host, work: Path, command: str, fault: Fault) -> Iterator[str]:
    """Run a command while one of its files changes; gives what must not be."""
    prepare(work)
    before = answer_of(host.run(work, command))
    prepare(work)
    answer = host.run(work, command, fault)
    if not answer.get("fired", True):
        return
    host.counts["change"] += 1
    if "died" in answer:
        yield "it hangs" if answer.get("hung") else f"it died with {answer['died']}"
        return
    for name in (OUT, "cache"):
        shutil.rmtree(work / name)
        (work / name).mkdir()
    after = answer_of(host.run(work, command))  # on the files as they are now
    if answer["code"] == 2:
        last = answer["err"].splitlines()[-1:]
        if not last or not last[0].startswith(("torchstone: error: ", "Error: ")):
            yield f"no sentence: {answer['err'][-300:]}"
    elif answer["code"] not in (0, 1) or "Traceback" in answer["err"]:
        yield f"exit code {answer['code']}: {answer['err'][-600:]}"
    elif answer_of(answer) not in (before, after):
        yield f"the answer is neither that before nor that after: {answer['out'][:300]}"


def change_at(host: Host, work: Path, command: str, *, most: int) -> list[str]:
    """Change a file at up to `most` of the calls of each kind, in each way."""
    problems = []
    for call in CALLS:
        prepare(work)
        found = host.run(work, command, Fault(call=call, error=0, nth=COUNT_ALL, below=IN))["calls"]
        places = range(1, found + 1) if found <= most else {1 + at * (found - 1) // (most - 1) for at in range(most)}
        for nth in sorted(places):
            for name, code in CHANGES.items():
                fault = Fault(call=call, error=code, nth=nth, below=IN)
                problems += [
                    f"{command}: {call} number {nth}, {name}: {one}" for one in wrong_after(host, work, command, fault)
                ]
    return problems


@pytest.mark.parametrize("name", LIGHT)
def test_a_file_that_changes_gives_one_of_two_answers(name: str, host: Host, work: Path) -> None:
    before = host.counts["change"]
    assert change_at(host, work, LIGHT[name], most=2) == []
    assert host.counts["change"] > before


@pytest.mark.heavy
@pytest.mark.parametrize("name", HEAVY)
def test_a_file_may_change_at_every_call(name: str, host: Host, work: Path) -> None:
    before = host.counts["change"]
    assert change_at(host, work, HEAVY[name], most=40) == []
    assert host.counts["change"] > before
