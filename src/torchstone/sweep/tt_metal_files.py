"""Vectors and runs <-> the files of tt-metal's sweeps: vectors_export/ and results_export/."""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeGuard

from torchstone.errors import UnreadableFileError
from torchstone.record.check import Outcome
from torchstone.record.files import matching, read_json, shortened
from torchstone.record.vector import Status, SweepRun, Timing, Validity, Vector, VectorResult, status_of
from torchstone.sweep.folder import file_name

MANIFEST = "generation_manifest.json"
_TIME = "%Y-%m-%d_%H-%M-%S"
_FRAME = ("suite_name", "validity", "invalid_reason", "status", "sweep_name", "timestamp", "input_hash", "tag")
_GROUPING = re.compile(r"\.(?:mesh_\d+x\d+|hw_.+_\d+c)$")
_WORDS = {Status.PASS: "pass", Status.NOT_RUN: "skipped"}
_OUTCOMES = {
    "pass": Outcome.PASSED,
    "fail_assert_exception": Outcome.RAISED,
    "fail_crash_hang": Outcome.CRASHED,
    "fail_l1_out_of_mem": Outcome.OUT_OF_MEMORY,
    "fail_watcher": Outcome.RAISED,
    "fail_unsupported_device_perf": Outcome.NOT_RUN,
    "skipped": Outcome.NOT_RUN,
    "not_run": Outcome.NOT_RUN,
    "xfail": Outcome.RAISED,
    "xpass": Outcome.PASSED,
}


# --- Vectors ---


def vectors_export(vectors: Iterable[Vector], *, tag: str = "") -> dict[str, str]:
    """The texts of the vector files by name, with the manifest that tt-metal's runner asks for."""
    modules: dict[str, dict[str, dict[str, object]]] = {}
    now = datetime.now(tz=UTC)
    for vector in vectors:
        frame = {
            "suite_name": vector.suite,
            "validity": f"VectorValidity.{vector.validity.name}",
            "invalid_reason": vector.reason,
            "status": "VectorStatus.CURRENT",
            "sweep_name": vector.module,
            "timestamp": f"{now:{_TIME}}",
            "input_hash": vector.id,
            "tag": tag,
        }
        given = {name: _exported(value) for name, value in vector.parameters.items()}
        modules.setdefault(vector.module, {}).setdefault(vector.suite, {})[vector.id] = {**given, **frame}
    files = {
        f"{file_name(module)}.json": json.dumps(suites, indent=2) + "\n" for module, suites in sorted(modules.items())
    }
    manifest = {
        "generated_at_utc": now.isoformat(timespec="seconds"),
        "vector_grouping_mode": None,
        "module_name": ",".join(sorted(modules)),
        "model_traced": None,
        "suite_name": None,
        "vector_files": list(files),
    }
    return {**files, MANIFEST: json.dumps(manifest, indent=2) + "\n"}


def _exported(value: object) -> object:
    """A parameter as tt-metal's reader takes it: a list of plain values is the text of a tuple."""
    plain = isinstance(value, list) and all(isinstance(part, int | float | str | bool) for part in value)
    return str(tuple(value)) if plain and isinstance(value, list) else value


def has_vectors(path: Path) -> bool:
    """Whether a file, or the first of a folder, has vectors, and not results."""
    paths = [one for one in matching(path, "*.json") if one.name != MANIFEST] if path.is_dir() else [path]
    return bool(paths) and isinstance(_document(paths[0]), dict) and not paths[0].name.startswith("oprun_")


def read_vectors_export(path: Path) -> list[Vector]:
    """The vectors of one file or of a folder of them; raises UnreadableFileError for something else."""
    paths = [one for one in matching(path, "*.json") if one.name != MANIFEST] if path.is_dir() else [path]
    return [vector for one in paths for vector in _vectors_in(one)]


def _vectors_in(path: Path) -> Iterator[Vector]:
    document = _document(path)
    if not isinstance(document, dict) or not all(map(_is_suite, document.values())):
        msg = f"{path} is not a vector file of tt-metal: it has no suites of vectors"
        raise UnreadableFileError(msg)
    for suite, vectors in document.items():
        for identity, given in vectors.items():
            module = str(given.get("sweep_name") or _GROUPING.sub("", path.stem))
            is_valid = "INVALID" not in str(given.get("validity"))
            yield Vector(
                id=identity,
                module=module,
                suite=suite,
                op=module.rpartition(".")[2],
                validity=Validity.VALID if is_valid else Validity.INVALID,
                reason="" if is_valid else str(given.get("invalid_reason") or "its file says so"),
                parameters={name: value for name, value in given.items() if name not in _FRAME},
                models=tuple(_texts(given.get("traced_source"))),
            )


def _is_suite(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(one, dict) for one in value.values())


def _texts(value: object) -> Iterator[str]:
    yield from map(str, value if isinstance(value, list) else [] if value is None else [value])


# --- Results ---


def results_export(run: SweepRun) -> dict[str, str]:
    """The texts of the result files by name: a list for each module and suite, and the run."""
    try:
        started = datetime.fromisoformat(run.started) if run.started else datetime.now(tz=UTC)
        ended = started + timedelta(seconds=run.elapsed_s)
    except (ValueError, OverflowError) as error:
        msg = f"the run {run.run} has a time that cannot be ({shortened(error)}); correct it in its run.json"
        raise UnreadableFileError(msg) from error
    groups: dict[tuple[str, str], list[VectorResult]] = {}
    for result in run.results:
        groups.setdefault((result.module, result.suite), []).append(result)
    files = {}
    for (module, suite), results in sorted(groups.items()):
        digest = sha256(f"{module}.{suite}".encode()).hexdigest()[:12]
        name = f"{file_name(module.partition('.')[0])}_{digest}_{started:{_TIME}}.json"
        files[name] = json.dumps([_result_row(run, one, started, ended) for one in results], indent=2) + "\n"
    head = {
        "initiated_by": "torchstone", "host": run.environment.get("host", ""), "git_sha": run.commit,
        "git_branch_name": run.branch, "run_start_ts": started.isoformat(), "run_end_ts": ended.isoformat(),
        "status": "fail" if any(one.status not in _WORDS for one in run.results) else "success",
        "card_type": run.backend, "tests": sum(map(len, groups.values())),
    }  # fmt: skip
    digest = sha256(run.run.encode()).hexdigest()[:12]
    return {
        **files,
        f"oprun_{file_name(run.backend)}_{digest}_{started:{_TIME}}.json": json.dumps(head, indent=2) + "\n",
    }


def _result_row(run: SweepRun, result: VectorResult, started: datetime, ended: datetime) -> dict[str, object]:
    failed = result.status not in _WORDS
    text = result.traceback or result.detail if failed else ""
    message = (result.verdict or {}).get("message")
    word = "fail_l1_out_of_mem" if result.outcome is Outcome.OUT_OF_MEMORY else result.status.value.lower()
    metrics = (
        [] if result.timing is None else [{"metric_name": "e2e_perf_ms", "metric_value": result.timing.median_s * 1e3}]
    )
    return {
        "full_test_name": result.module, "test_case_name": result.suite, "input_hash": result.id,
        "status": _WORDS.get(result.status, word), "success": result.status is Status.PASS,
        "skipped": result.status is Status.NOT_RUN, "message": message or result.detail, "exception": text or None,
        "error_hash": sha256(text.encode()).hexdigest() if text else None,
        "model_name": result.models[0] if result.models else None, "op_kind": result.module.partition(".")[0],
        "op_name": result.op, "test_start_ts": started.isoformat(), "test_end_ts": ended.isoformat(),
        "git_sha": run.commit, "card_type": run.backend, "metrics": metrics, "op_params_set": [],
    }  # fmt: skip


def read_results_export(path: Path) -> SweepRun:
    """One run from a result file or a folder of them; raises UnreadableFileError for something else."""
    paths = matching(path, "*.json") if path.is_dir() else [path]
    rows = [row for one in paths if not one.name.startswith("oprun_") for row in _rows(one)]
    if not rows:
        msg = f"{path} has no results of tt-metal's sweeps"
        raise UnreadableFileError(msg)
    started = min((str(row.get("test_start_ts") or "") for row in rows), default="")
    commits = {str(row.get("git_sha") or "") for row in rows}
    digest = sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()[:12]
    return SweepRun(
        run=f"tt-metal-{digest}",  # the same files give the same run
        backend=str(next((row["card_type"] for row in rows if row.get("card_type")), "tt-metal")),
        started=started,
        commit=commits.pop() if len(commits) == 1 else "",
        finished=True,
        selected=len(rows),
        results=tuple(map(_result_of, rows)),
    )


def _rows(path: Path) -> list[dict[str, object]]:
    document = _document(path)
    if not isinstance(document, list) or not all(isinstance(row, dict) and "input_hash" in row for row in document):
        msg = f"{path} is not a result file of tt-metal: it has no list of results"
        raise UnreadableFileError(msg)
    return document


def _result_of(row: Mapping[str, Any]) -> VectorResult:
    word = str(row.get("status") or "").lower()
    if word not in _OUTCOMES:
        msg = f"the result {row['input_hash']} has an unknown status {row.get('status')!r}"
        raise UnreadableFileError(msg)
    outcome = _OUTCOMES[word]
    if word == "fail_assert_exception" and not row.get("exception"):
        outcome = Outcome.WRONG
    suite = str(row.get("test_case_name") or "")
    given = row.get("metrics")
    listed = [one for one in given if isinstance(one, dict)] if isinstance(given, list) else []
    metrics = {str(one.get("metric_name")): one.get("metric_value") for one in listed}
    took_ms = metrics.get("e2e_perf_ms", metrics.get("e2e_perf_uncached_ms"))
    return VectorResult(
        id=str(row["input_hash"]),
        module=str(row.get("full_test_name") or ""),
        suite=suite,
        op=str(row.get("op_name") or row.get("full_test_name") or ""),
        status=status_of(outcome, expected_to_fail=word in ("xfail", "xpass")),
        outcome=outcome,
        detail=""
        if outcome is Outcome.PASSED
        else str(row.get("exception") or row.get("message") or "").split("\n")[0],
        traceback=str(row.get("exception") or ""),
        timing=Timing(median_s=took_ms / 1e3, mad_s=0.0, runs=1) if _is_time(took_ms) else None,
        models=tuple(_texts(row.get("model_name"))),
    )


def _is_time(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


def _document(path: Path) -> object:
    document: object = read_json(path)
    return document
