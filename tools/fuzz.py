"""Feed damaged files to every reader, in one process, and count what became of them.

    python tools/fuzz.py --minutes 5                 # all readers by turns
    python tools/fuzz.py --reader trace --mutants 1000000

A mutant is rejected (an error of one sentence, exit code 2), accepted as equal to the original, or accepted as
something else: a silent change, which is counted. Anything else is a failure: another exception, more than a few
seconds, or more memory than the limit. The bytes of each failure are kept in the folder of --failures; add them to
tests/attacks/mutants.
"""

import argparse
import gc
import json
import logging
import random
import resource
import signal
import sqlite3
import sys
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Engine, create_engine, event
from sqlalchemy.pool import StaticPool

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.attacks.mutations import _NO_LOG, mutate_bytes  # noqa: E402 - the repository must be on the path first
from tests.attacks.readers import READERS, Reader  # noqa: E402
from torchstone.errors import EXIT_BAD_INPUT, TorchstoneError  # noqa: E402
from torchstone.memory.dialects import registry  # noqa: E402
from torchstone.store import database  # noqa: E402
from torchstone.store.engine import _set_up_sqlite, engine_for  # noqa: E402

HANG_S = 10.0  # of CPU time
MEMORY_BYTES = 1 << 30  # beyond what the process has when it begins
TURN_S = 15.0
LONGEST_ERROR = 4_000
REJECTED, EQUAL, DIFFERENT = "rejected", "accepted, equal", "accepted, different"
FAILED = "failed"
_LARGE_ONE_IN = 32
_FILE_ONE_IN = 32


class HangError(Exception):
    """A reader took too long."""


# --- One reader ---


class Campaign:
    """The mutants of one reader, and what became of them."""

    def __init__(self, name: str, reader: Reader, *, seed: int, failures: Path) -> None:
        self.name, self._reader, self._failures = name, reader, failures
        self._dice = random.Random(f"{seed} {name}")  # noqa: S311 - mutants, not secrets
        read = reader.original or reader.read
        self._small, self._large = ([(one, read(one)) for one in corpus()] for corpus in (reader.corpus, reader.large))
        self.counts: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self.slowest_s = 0.0
        self.elapsed_s = 0.0

    @property
    def mutants(self) -> int:
        """How many were tried."""
        return sum(self.counts.values())

    def run(self, *, seconds: float, most: int) -> None:
        """Try mutants for some time, or up to a number of them."""
        began_s = time.monotonic()
        while self.mutants < most and time.monotonic() - began_s < seconds:
            for _ in range(min(50, most - self.mutants)):
                self._try_one()
        self.elapsed_s += time.monotonic() - began_s

    def _try_one(self) -> None:
        dice = self._dice
        files = self._large if self._large and not dice.randrange(_LARGE_ONE_IN) else self._small
        content, original = files[dice.randrange(len(files))]
        structures = self._reader.structures
        mutate = dice.choice(structures) if structures and dice.randrange(3) else mutate_bytes
        mutant = mutate(content, dice)
        outcome = attempt(self._reader.read, mutant, original)
        self.counts[outcome.split(":")[0]] += 1
        if outcome.startswith(FAILED):
            kind = outcome[:160]
            self.kinds[kind] += 1
            if self.kinds[kind] == 1:
                self._failures.joinpath(self.name).mkdir(parents=True, exist_ok=True)
                self._failures.joinpath(self.name, sha256(mutant).hexdigest()[:16]).write_bytes(mutant)


def attempt(read: Callable[[bytes], object], mutant: bytes, original: object) -> str:
    """What became of a mutant."""
    signal.setitimer(signal.ITIMER_PROF, HANG_S)  # of CPU time: a busy machine is no hang
    try:
        result = read(mutant)
    except TorchstoneError as error:
        if isinstance(error.__cause__, MemoryError):
            return f"{FAILED}: it asked for more than {MEMORY_BYTES >> 20} MiB"
        long = len(str(error)) > LONGEST_ERROR
        fine = error.exit_code == EXIT_BAD_INPUT and not long
        return REJECTED if fine else f"{FAILED}: {type(error).__name__} {'too long' if long else error}"
    except Exception as error:  # noqa: BLE001 - whatever escapes a reader is what we look for
        place = error.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        where = f"{Path(place.tb_frame.f_code.co_filename).name}:{place.tb_lineno}" if place else ""
        return f"{FAILED}: {type(error).__name__} {where} {str(error)[:60]}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return EQUAL if result == original else DIFFERENT


def _hang(_signal: int, _frame: object) -> None:
    msg = f"more than {HANG_S:g} s of CPU time"
    raise HangError(msg)


signal.signal(signal.SIGPROF, _hang)


def _limit_memory() -> None:
    used_bytes = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used_bytes + MEMORY_BYTES, resource.RLIM_INFINITY))


def _prepare_once() -> None:
    """Do once what a command does once, and what takes longer than to read a mutant.

    Each log is offered to the formats of installed packages. An engine keeps the statements that it compiled, and its
    connection reads the bytes of the mutant from memory; one in some is opened as a file, as commands do.
    """
    found = entry_points(group=registry.GROUP)
    vars(registry)["entry_points"] = lambda group: found if group == registry.GROUP else []
    from_file, in_memory = lru_cache(maxsize=None)(engine_for), lru_cache(maxsize=None)(_memory_engine)

    def engine_of_mutant(address: URL) -> Engine:
        content = Path(str(address.database)).read_bytes()
        if zlib.crc32(content) % _FILE_ONE_IN == 0:
            return from_file(address)
        engine, connection = in_memory(address)
        try:
            connection.rollback()
        except sqlite3.ProgrammingError:  # some damage makes the pool close it
            in_memory.cache_clear()
            engine, connection = in_memory(address)
        connection.deserialize(content[:18] + _NO_LOG + content[20:] if len(content) > len(_NO_LOG) else content)
        return engine

    vars(database)["engine_for"] = engine_of_mutant


def _memory_engine(address: URL) -> tuple[Engine, sqlite3.Connection]:
    """An engine whose only connection is to a database in memory, and stays open."""
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    engine = create_engine(address, creator=lambda: connection, poolclass=StaticPool)
    event.listen(engine, "connect", _set_up_sqlite)
    vars(engine)["dispose"] = lambda: None
    return engine, connection


def _report(campaigns: list[Campaign]) -> dict[str, Any]:
    return {
        one.name: {
            "mutants": one.mutants, **one.counts, "per_second": round(one.mutants / max(one.elapsed_s, 1e-9)),
            "kinds": dict(one.kinds),
        }
        for one in campaigns
    }  # fmt: skip


def main() -> int:
    """Run the readers by turns until the time is over; 1 where a mutant failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0, help="how long, for all readers together")
    parser.add_argument("--mutants", type=int, default=1_000_000, help="at most this many for each reader")
    parser.add_argument("--reader", action="append", choices=list(READERS), help="only this one; may be repeated")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--failures", type=Path, default=Path("fuzz-failures"))
    parser.add_argument("--json", type=Path, help="write the counts to this file after every turn")
    chosen = parser.parse_args()
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    campaigns = [
        Campaign(name, READERS[name], seed=chosen.seed, failures=chosen.failures) for name in chosen.reader or READERS
    ]
    _prepare_once()
    gc.freeze()  # torch and the corpus are not looked through again and again
    _limit_memory()
    until_s = time.monotonic() + chosen.minutes * 60
    waiting = list(campaigns)
    while waiting and (left_s := until_s - time.monotonic()) > 0:
        for campaign in waiting:
            campaign.run(seconds=min(TURN_S, left_s / len(waiting)), most=chosen.mutants)
            if chosen.json:
                chosen.json.write_text(json.dumps(_report(campaigns), indent=1), encoding="utf-8")
        waiting = [one for one in waiting if one.mutants < chosen.mutants]
    for name, counts in _report(campaigns).items():
        print(f"{name:16}", ", ".join(f"{key} {value}" for key, value in counts.items() if key != "kinds"))
        for kind, times in counts["kinds"].items():
            print(f"    {times} x {kind}")
    return int(any(one.kinds for one in campaigns))


if __name__ == "__main__":
    sys.exit(main())
