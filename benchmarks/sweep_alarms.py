"""Sweeps of traced models on real backends: every wrong verdict must be shown by its script.

    PYTHONPATH=src:. python benchmarks/sweep_alarms.py FOLDER [--backends aot_eager,onnxruntime,inductor] [--most 40]
                                                       [--models tiny:bert,tiny:llama]

Each model is traced with --chains. Single calls and chains become vectors; of each kind, the most called of each
cluster come first (`--most` of them). Every vector that a backend gets wrong is written as a script and run in an empty
folder. A wrong verdict that no script shows is a false alarm. FOLDER keeps everything: a second call goes on.
"""

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

from torchstone.record.check import Outcome
from torchstone.record.vector import SweepRun, Vector
from torchstone.sweep.generate import choose
from torchstone.workflows.executors import ExecutorRequest
from torchstone.workflows.model_source import ModelRequest
from torchstone.workflows.sweep_generate import CHAINS, GenerateRequest, generate_vectors
from torchstone.workflows.sweep_repro import ReproRequest, write_repro
from torchstone.workflows.sweep_run import PlannedSweep, RunRequest, run_sweep
from torchstone.workflows.trace_ops import TraceRequest, trace_ops

MODELS = ("tiny:bert", "tiny:llama", "tiny:t5", "tiny:vit", "tiny:gemma2", "tiny:convnext")
BACKENDS = ("aot_eager", "onnxruntime", "inductor")
SUITES = ("model_traced", CHAINS)
TIMEOUT_S = 300.0
Row = dict[str, Any]


def vectors_of(model: str, folder: Path) -> dict[str, tuple[Vector, ...]]:
    """The vectors of a model by suite."""
    database = str(folder / "traces.db")
    trace_ops(TraceRequest(model=ModelRequest(model=model), chains=True, ttnn=False, database=database))
    return {
        suite: generate_vectors(
            GenerateRequest(model=model, suite=suite, folder=folder / suite, database=database)
        ).vectors
        for suite in SUITES
    }


def most_called(vectors: tuple[Vector, ...], most: int) -> tuple[Vector, ...]:
    """The first of a choice: one of each cluster, then the most called."""
    valid = [one for one in vectors if not one.reason]
    for budget_s in (0.01 * most * factor for factor in range(1, 50)):
        chosen = choose(valid, budget_s).vectors
        if len(chosen) >= min(most, len(valid)):
            return chosen[:most]
    return tuple(valid[:most])


def run_on(backend: str, vectors: tuple[Vector, ...], folder: Path) -> SweepRun:
    """Run vectors on a backend."""
    request = RunRequest(
        folder=folder, backend=backend, timeout_s=TIMEOUT_S, executor=ExecutorRequest(jobs=2, tasks_per_child=64)
    )
    return run_sweep(request, plan=PlannedSweep(vectors=vectors))


def row_of(model: str, suite: str, run: SweepRun, folder: Path) -> Row:
    """The endings of a run, and what became of each wrong vector."""
    wrong = []
    for result in run.results:
        if result.outcome is Outcome.WRONG:
            shown = write_repro(ReproRequest(vector_id=result.id, run=run.run, folder=folder))
            wrong.append(
                {"op": result.op, "detail": result.detail, "confirmed": shown.fails, "script": str(shown.path)}
            )
    counts = dict(Counter(one.outcome.value for one in run.results))
    return {
        "model": model,
        "suite": suite,
        "backend": run.backend,
        "version": run.backend_version,
        "vectors": len(run.results),
        "suspicious": len(run.suspicious),
        "outcomes": counts,
        "wrong": wrong,
    }


def table(rows: list[Row]) -> str:
    """The rows as markdown."""
    lines = [
        "| backend | suite | models | vectors | passed | suspicious | wrong | confirmed | other |",
        f"|{'---|' * 9}",
    ]
    groups: dict[tuple[object, object], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["backend"], row["suite"]), []).append(row)
    for (backend, suite), group in sorted(groups.items(), key=str):
        outcomes: Counter[str] = Counter()
        for row in group:
            outcomes.update(row["outcomes"])
        wrong = [one for row in group for one in row["wrong"]]
        other = ", ".join(f"{n} {name}" for name, n in sorted(outcomes.items()) if name not in ("passed", "wrong"))
        lines.append(
            f"| {backend} | {suite} | {len(group)} | {sum(outcomes.values())} | {outcomes['passed']} | "
            f"{sum(row['suspicious'] for row in group)} | {len(wrong)} | "
            f"{sum(bool(one['confirmed']) for one in wrong)} | {other} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Run what is not there yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--backends", default=",".join(BACKENDS))
    parser.add_argument("--most", type=int, default=40)
    asked = parser.parse_args()
    kept = asked.folder / "rows.jsonl"
    rows = [json.loads(line) for line in kept.read_text().splitlines()] if kept.is_file() else []
    done = {(row["model"], row["suite"], row["backend"]) for row in rows}
    for model in asked.models.split(","):
        place = asked.folder / model.replace(":", "-")
        missing = [
            (suite, backend)
            for backend in asked.backends.split(",")
            for suite in SUITES
            if (model, suite, backend) not in done
        ]
        vectors = vectors_of(model, place) if missing else {}
        for suite, backend in missing:
            run = run_on(backend, most_called(vectors[suite], asked.most), place / suite)
            rows.append(row_of(model, suite, run, place / suite))
            with kept.open("a", encoding="utf-8") as file:
                file.write(json.dumps(rows[-1]) + "\n")
            print(model, suite, backend, rows[-1]["outcomes"], rows[-1]["wrong"], flush=True)
    print(table(rows))


if __name__ == "__main__":
    main()
