"""What large inputs cost, and how the cost grows: modules, unique modules, op calls, vectors, configurations.

    python benchmarks/scale.py                      # at a sixteenth, an eighth, a quarter, half and the whole of each
    python benchmarks/scale.py --subject ops --share 0.25

Each point runs in a process of its own. Figures are CPU seconds and the most memory that the process held, that of
building the input included. The exponent is the slope from the smallest to the largest point on a logarithmic scale:
1 is linear, and n log n stays below 1.1 at these sizes.
"""

import argparse
import json
import math
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
SHARES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
Steps = Iterator[tuple[str, Callable[[], object]]]


def modules(count: int, folder: Path) -> Steps:
    """A tree of modules: saved, loaded, checked, priced, made unique and rendered."""
    from tests.report.traces import wide_tree
    from torchstone.report.render import write_report

    yield from _trace_steps(wide_tree(count, count), folder)
    yield "report", lambda: write_report(folder)


def unique(count: int, folder: Path) -> Steps:
    """As many distinct modules."""
    from tests.report.traces import wide_tree

    yield from _trace_steps(wide_tree(count, count, distinct=True), folder)


def ops(count: int, folder: Path) -> Steps:
    """Op calls in a tree of a thousand modules."""
    from tests.report.traces import wide_tree

    yield from _trace_steps(wide_tree(1_000, count), folder)


def _trace_steps(trace: object, folder: Path) -> Steps:
    from torchstone.cost.price_trace import price
    from torchstone.record import codec
    from torchstone.record.trace import Trace
    from torchstone.record.unique import unique_modules

    assert isinstance(trace, Trace)  # noqa: S101 - built by the caller
    path = folder / "trace.json"
    yield "save", lambda: codec.save(path, trace)
    yield "load and check", lambda: codec.load(path, Trace)
    yield "price", lambda: price(trace)
    yield "unique modules", lambda: unique_modules(trace)


def vectors(count: int, folder: Path) -> Steps:
    """Vectors of one op in one file."""
    from tests.sweep.builders import mm, vector
    from torchstone.record import codec
    from torchstone.record.vector import VectorFile

    made = VectorFile(module="aten.mm.default", vectors=tuple(vector(mm(rows=number + 1)) for number in range(count)))
    path = folder / "vectors.json"
    yield "save", lambda: codec.save(path, made)
    yield "load and check", lambda: codec.load(path, VectorFile)


def configurations(count: int, folder: Path) -> Steps:
    """Configurations added to a database, and added again."""
    from tests.sweep.builders import mm, seen
    from torchstone.record.config import TraceRun
    from torchstone.store.database import Store

    runs = [TraceRun(source="net", run="1")]
    with Store.open(str(folder / "x.db"), create=True) as store:
        yield "add", lambda: store.add((seen(mm(rows=number + 1)) for number in range(count)), runs=runs)
        yield "add again", lambda: store.add((seen(mm(rows=number + 1)) for number in range(count)), runs=runs)


SUBJECTS: dict[str, tuple[Callable[[int, Path], Steps], int]] = {
    "modules": (modules, 50_000),
    "unique": (unique, 10_000),
    "ops": (ops, 1_000_000),
    "vectors": (vectors, 100_000),
    "configurations": (configurations, 1_000_000),
}


def measure(subject: str, share: float) -> dict[str, float]:
    """The CPU seconds of each step, and the most memory of all of them."""
    steps, whole = SUBJECTS[subject]
    found: dict[str, float] = {}
    with TemporaryDirectory() as folder:
        for name, step in steps(int(whole * share), Path(folder)):
            began_s = time.process_time()
            step()
            found[name] = time.process_time() - began_s
    found["memory, MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return found


def main() -> None:
    """Measure the points of each subject, and print a row for each step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subject", choices=list(SUBJECTS), action="append")
    parser.add_argument("--share", type=float, help="one point alone, printed as JSON")
    parser.add_argument("--largest", type=float, default=1.0, help="leave out larger shares")
    given = parser.parse_args()
    chosen = given.subject or list(SUBJECTS)
    if given.share:
        print(json.dumps(measure(chosen[0], given.share)))
        return
    print("| subject | step | " + " | ".join(f"1/{round(1 / share)}" for share in SHARES) + " | exponent |")
    for subject in chosen:
        shares = [share for share in SHARES if share <= given.largest]
        points = [_in_a_process(subject, share) for share in shares]
        for name in points[-1]:
            values = [point[name] for point in points]
            slope = math.log(max(values[-1], 1e-3) / max(values[0], 1e-3)) / math.log(shares[-1] / shares[0])
            figures = " | ".join(f"{value:.2f}" for value in values)
            print(f"| {SUBJECTS[subject][1]:,} {subject} | {name} | {figures} | {slope:.2f} |", flush=True)


def _in_a_process(subject: str, share: float) -> dict[str, float]:
    command = [sys.executable, __file__, "--subject", subject, "--share", str(share)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    main()
