"""Every model type of transformers, one after the other, each in a forked child with limits; results in a file.

A result is appended to the file the moment it exists, and types that are in it are skipped: an interrupted run goes on
where it ended.
"""

import argparse
import gc
import json
import os
import resource
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

Row = dict[str, object]  # status, detail, and whatever a benchmark adds


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What is tried with a type, the limits of its child, and types that are tried once before the first fork."""

    attempt: Callable[[str], Row]
    processor_s: int
    memory_bytes: int
    warm: Sequence[str]


def arguments_of(description: str | None) -> argparse.ArgumentParser:
    """The arguments of every benchmark over model types."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("results", type=Path)
    parser.add_argument("types", nargs="*")
    parser.add_argument("--limit", type=int, default=None, help="stop after this many types")
    parser.add_argument("--summary", action="store_true", help="only print the counts of the file")
    parser.add_argument("--seed", type=int, default=0, help="order of the types")
    return parser


def run_types(trial: Trial, arguments: argparse.Namespace, done: dict[str, Row]) -> None:
    """Try the types that have no result yet, and print the counts of all."""
    if not arguments.summary:
        waiting = [one for one in arguments.types or _all_types(arguments.seed) if one not in done]
        for model_type in trial.warm if waiting else ():
            trial.attempt(model_type)  # what torch loads on its first use is then loaded before the forks
        gc.freeze()
        for model_type in waiting[: arguments.limit]:
            row = done[model_type] = _in_child(trial, model_type)
            with arguments.results.open("a") as file:
                file.write(json.dumps({"model_type": model_type, **row}) + "\n")
            print(f"{row['status']:8} {row['processor_s']:6.1f} s  {model_type:30} {row['detail']}", flush=True)
    print(dict(Counter(str(one["status"]) for one in done.values())))


def read_rows(path: Path) -> dict[str, Row]:
    """The results of a file by type; a line that was cut off is none."""
    if not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
    return {row.pop("model_type"): row for row in rows}


def _all_types(seed: int) -> list[str]:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    names = sorted(CONFIG_MAPPING_NAMES)
    Random(seed).shuffle(names)  # noqa: S311 - a slice is then a fair sample of all
    return names


def _in_child(trial: Trial, model_type: str) -> Row:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        gc.disable()  # a child is short-lived: what it leaves goes with it
        resource.setrlimit(resource.RLIMIT_AS, (trial.memory_bytes, trial.memory_bytes))
        resource.setrlimit(resource.RLIMIT_CPU, (trial.processor_s, trial.processor_s))
        os.write(writer, json.dumps(trial.attempt(model_type)).encode()[:60000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answers:
        answer = answers.read()
    _, status, usage = os.wait4(child, 0)
    row = json.loads(answer) if answer else _died(status, trial.processor_s)
    return {**row, "processor_s": round(usage.ru_utime + usage.ru_stime, 1)}


def _died(status: int, processor_s: int) -> Row:
    """The result of a child that gave no answer: ended at its time limit, killed for its memory, or broken."""
    code = os.waitstatus_to_exitcode(status)
    if -code in (signal.SIGXCPU, signal.SIGKILL):
        return {"status": "slow", "detail": f"no answer after {processor_s} s of processor time"}
    return {"status": "crashed", "detail": f"the process ended with exit code {code}"}
