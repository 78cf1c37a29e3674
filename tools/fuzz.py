"""Feed damaged files to every reader, in one process, and count what became of them.

    python tools/fuzz.py --minutes 5                 # all readers by turns
    python tools/fuzz.py --reader trace --mutants 1000000

A mutant is rejected (an error of one sentence, exit code 2), accepted as equal to the original, or accepted as
something else: a silent change, which is counted. Anything else is a failure: another exception, more than a few
seconds, or more memory than the limit. The bytes of each failure are kept in the folder of --failures; add them to
tests/attacks/mutants.
"""

import argparse
import copy
import json
import logging
import marshal
import random
import resource
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.attacks.readers import READERS, Reader  # noqa: E402 - the repository must be on the path first
from torchstone.errors import EXIT_BAD_INPUT, TorchstoneError  # noqa: E402
from torchstone.memory.dialects import registry  # noqa: E402

HANG_S = 10.0  # of CPU time
MEMORY_BYTES = 1 << 30  # beyond what the process has when it begins
TURN_S = 15.0
LONGEST_ERROR = 4_000
REJECTED, EQUAL, DIFFERENT = "rejected", "accepted, equal", "accepted, different"
FAILED = "failed"
_TOKENS = (
    b"-1", b"0", b"1e999", b"9" * 30, b"null", b"true", b"[]", b"{}", b'""', b"\xff", b"\x00", b"\x1b[31m", b"NaN",
    b"\\u0000", b"[[[[", b'"', b"\n", b"18446744073709551616",
)  # fmt: skip
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63), 10**40, 1.5, 1e308, -0.0, "", "x", "\x1b]0;t\x07", "\ud800",
    "a" * 300, [], {}, [[]], [0], [-1], {"a": 1}, [None] * 40,
)  # fmt: skip


class HangError(Exception):
    """A reader took too long."""


# --- Mutation ---


def mutate_bytes(content: bytes, dice: random.Random) -> bytes:
    """Flip, delete, repeat, insert or cut, one to four times."""
    data = bytearray(content)
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(data) + 1)
        end = min(len(data), at + dice.choice((1, 1, 2, 8, 64)))
        match dice.randrange(7):
            case 0 if at < len(data):
                data[at] ^= 1 << dice.randrange(8)
            case 1 if at < len(data):
                data[at] = dice.randrange(256)
            case 2:
                del data[at:end]
            case 3:
                data[at:at] = data[at:end]
            case 4:
                data[at:end] = dice.choice(_TOKENS)
            case 5:
                data[at:at] = dice.choice(_TOKENS)
            case _:
                if dice.randrange(8) == 0:
                    del data[at:]
    return bytes(data)


def mutate_json(content: bytes, dice: random.Random) -> bytes:
    """Change one to three values of a document: to another value, a near number, or by moving parts about."""
    document = [marshal.loads(_packed(content))]  # noqa: S302 - packed below, in this process
    for _ in range(dice.randint(1, 3)):
        holder, key = _place(document, dice)
        _change(holder, key, dice)
    try:
        return msgspec.json.encode(document[0])
    except (UnicodeEncodeError, OverflowError):  # half a character, or a number that only Python has
        return json.dumps(document[0]).encode("utf-8", "surrogatepass")


@lru_cache(maxsize=256)
def _packed(content: bytes) -> bytes:
    """A document in the form that Python reads fastest: it is read for each mutant."""
    return marshal.dumps(json.loads(content))


def _place(document: list[Any], dice: random.Random) -> tuple[Any, Any]:
    """A random place: deeper with every step, so that all levels are met."""
    holder: Any = document
    key: Any = 0
    while isinstance(holder[key], dict | list) and holder[key] and dice.randrange(6):
        holder = holder[key]
        key = dice.choice(list(holder)) if isinstance(holder, dict) else dice.randrange(len(holder))
    return holder, key


def _change(holder: Any, key: Any, dice: random.Random) -> None:
    value = holder[key]
    match dice.randrange(6):
        case 0 if isinstance(value, int) and not isinstance(value, bool):
            holder[key] = value + dice.choice((-1, 1, 2, 100, -100))
        case 1 if isinstance(holder, list) and len(holder) > 1:
            other = dice.randrange(len(holder))
            holder[key], holder[other] = holder[other], holder[key]
        case 2 if isinstance(holder, dict):
            del holder[key]
        case 3 if isinstance(value, list) and value:
            value.append(value[dice.randrange(len(value))])
        case 4 if isinstance(value, list) and value:
            del value[dice.randrange(len(value))]
        case _:
            holder[key] = copy.deepcopy(dice.choice(_VALUES))  # later mutations must not change the table


# --- One reader ---


class Campaign:
    """The mutants of one reader, and what became of them."""

    def __init__(self, name: str, reader: Reader, *, seed: int, failures: Path) -> None:
        self.name, self._reader, self._failures = name, reader, failures
        self._dice = random.Random(f"{seed} {name}")  # noqa: S311 - mutants, not secrets
        self._corpus = reader.corpus()
        self._originals = [reader.read(content) for content in self._corpus]
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
        number = self._dice.randrange(len(self._corpus))
        by_structure = self._reader.is_json and self._dice.randrange(3)
        mutate: Callable[[bytes, random.Random], bytes] = mutate_json if by_structure else mutate_bytes
        mutant = mutate(self._corpus[number], self._dice)
        outcome = attempt(self._reader.read, mutant, self._originals[number])
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


def _look_for_dialects_once() -> None:
    """Each log is offered to the formats of installed packages; to find those takes longer than to read a mutant."""
    found = entry_points(group=registry.GROUP)
    vars(registry)["entry_points"] = lambda group: found if group == registry.GROUP else []


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
    _look_for_dialects_once()
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
