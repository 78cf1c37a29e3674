"""How fast configurations come into a database and out again, beside plain `executemany` of the same rows.

    python benchmarks/config_import.py [--count 1000000] [--master FILE]

Both sides write the same rows into the same tables with the same indexes; the plain side has its rows made already.
Seconds are CPU seconds of this process, so that neighbours on the machine do not count.
"""

import argparse
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from torchstone.configs.import_file import import_path
from torchstone.record.config import Configuration, Occurrence, SeenConfiguration
from torchstone.record.op import Phase
from torchstone.record.tensor import TensorSpec
from torchstone.record.value import Argument
from torchstone.store.database import Store
from torchstone.store.rows import Query

OPS, MODELS, LAYERS = 200, 7, 50
TABLES = ("configuration", "origin", "place", "occurrence", "trace_run")
QUERIES = 20


def synthetic(number: int) -> SeenConfiguration:
    """One of as many different configurations as are asked for, spread over ops, models and layers."""
    rows = number // OPS + 1
    left = TensorSpec(shape=(rows, 64, 128), dtype="float32", stride=(8192, 128, 1))
    right = TensorSpec(
        shape=(128, number % 977 + 1), dtype="bfloat16", stride=(number % 977 + 1, 1), requires_grad=True
    )
    arguments = (
        Argument(name="self", value=left, position=0),
        Argument(name="other", value=right, position=1),
        Argument(name="alpha", value=number % 3),
    )
    place = Occurrence(
        source="synthetic.py",
        run="1",
        model=f"model-{number % MODELS}",
        phase=Phase.FORWARD,
        module_path=f"layers.{number % LAYERS}.mlp",
        count=number % 9 + 1,
    )
    configuration = Configuration(op=f"aten.op{number % OPS}.default", arguments=arguments)
    return SeenConfiguration(configuration=configuration, occurrences=(place,))


def in_order_of_the_count(count: int) -> Iterator[SeenConfiguration]:
    """The configurations, made one by one: what a recorder hands over."""
    return map(synthetic, range(count))


def plain_s(filled: Path, target: Path) -> float:
    """Seconds that `executemany` takes for the rows of a filled database, in transactions of the same size."""
    source = sqlite3.connect(filled)
    rows = {table: source.execute(f"SELECT * FROM {table}").fetchall() for table in TABLES}  # noqa: S608 - our own tables
    Store.open(str(target)).close()
    plain = sqlite3.connect(target, isolation_level=None)
    plain.execute("PRAGMA synchronous=NORMAL")
    plain.execute("PRAGMA foreign_keys=ON")
    start = time.process_time()
    for table, content in rows.items():
        marks = ",".join("?" * len(content[0])) if content else ""
        for begin in range(0, len(content), 5_000):
            plain.execute("BEGIN IMMEDIATE")
            plain.executemany(f"INSERT INTO {table} VALUES ({marks})", content[begin : begin + 5_000])  # noqa: S608 - ours
            plain.execute("COMMIT")
    elapsed = time.process_time() - start
    plain.close()
    source.close()
    return elapsed


def timed(ask: Callable[[str], object]) -> str:
    """How long a question about an op takes, over several ops: CPU and clock."""
    cpu, clock = [], []
    for number in range(QUERIES):
        start, begun = time.process_time(), time.perf_counter()
        ask(f"aten.op{number * 7 % OPS}.default")
        cpu.append(time.process_time() - start)
        clock.append(time.perf_counter() - begun)
    return f"CPU {median(cpu) * 1e3:.1f} ms, clock {median(clock) * 1e3:.1f} ms (worst {max(clock) * 1e3:.1f} ms)"


def measure_million(count: int, folder: Path) -> None:
    """Import synthetic configurations, then ask."""
    filled = folder / "store.db"
    with Store.open(str(filled)) as store:
        start = time.process_time()
        store.add(in_order_of_the_count(count))
        ours = time.process_time() - start
        start = time.process_time()
        for _ in in_order_of_the_count(count):
            pass
        making = time.process_time() - start
        first = timed(lambda op: list(islice(store.configurations(Query(op=op)), 100)))
        counted = timed(lambda op: store.operations(Query(op=op)))
    plain = plain_s(filled, folder / "plain.db")
    size = filled.stat().st_size / count
    print(f"import of {count} synthetic configurations: {ours:.1f} s, {count / ours:.0f}/s, {size:.0f} bytes each")
    print(f"  of which making the records: {making:.1f} s")
    print(f"plain executemany of the same rows: {plain:.1f} s, {count / plain:.0f}/s")
    print(f"ratio: {ours / plain:.2f} with making them, {(ours - making) / plain:.2f} without")
    print(f"query by op, first 100 configurations: {first}")
    print(f"query by op, all counted: {counted}")


def measure_master(path: Path, folder: Path) -> None:
    """Read a master file, verify its hashes and store it, as `torchstone db import` does."""
    times = []
    for number in range(5):
        with Store.open(str(folder / f"master{number}.db")) as store:
            start = time.process_time()
            imported = import_path(path)
            added = store.add(imported.seen, runs=imported.runs)
            times.append(time.process_time() - start)
    best, worst = min(times), max(times)
    print(f"{path.name}: {added.new} configurations in {best:.2f} s (best of {len(times)}, worst {worst:.2f} s)")


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1_000_000, help="synthetic configurations (0: none)")
    parser.add_argument("--master", type=Path, help="a real master file")
    given = parser.parse_args()
    with TemporaryDirectory(prefix="torchstone-bench-") as folder:
        if given.master is not None:
            measure_master(given.master, Path(folder))
        if given.count:
            measure_million(given.count, Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
