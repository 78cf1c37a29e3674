"""Record the numbers of torchstone's commands on public models, and compare two such records.

    python tools/replay.py record DIR [--quick] [--logs FOLDER] [--only PATTERN] [--jobs N]
    python tools/replay.py compare BEFORE AFTER [--most N] [--texts]

A refactoring must not change a number. `record` runs `inspect`, `cost`, `check`, `formula`, `memory` and `sweep`
with `--json` and writes each document without its provenance (times, versions, folders). It calls nothing but the
command line of the torchstone that its Python has installed, so that the same script records any version.
`compare` lists each difference by its JSON path and exits with 1 if there is one. Sentences that changed and keys
that were added are counted apart: neither is a changed number.
"""

import argparse
import fnmatch
import gzip
import json
import os
import re
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from tests.capture.architectures import PUBLIC, STEP_BY_STEP  # noqa: E402 - found by the path above

Json = dict[str, "Json"] | list["Json"] | str | int | float | bool | None

DEADLINE_S = 3600  # on a busy machine; of all command lines of one job
RUNS_MODELS = ("check/", "sweep/", "tiny/", "zoo/")
CHECKED = ("bert", "llama", "resnet", "mixtral")
CHECK_BACKENDS = ("aot_eager", "onnxruntime")
TRACED = ("bert", "resnet")
DECODED = ("openai-community/gpt2", "meta-llama/Llama-3.1-8B", "mistralai/Mixtral-8x7B-v0.1", "deepseek-ai/DeepSeek-V3")
BACKWARD = ("openai-community/gpt2", "microsoft/resnet-50", "google-bert/bert-base-uncased", "Qwen/Qwen3-0.6B")
SWEPT_OPS = ("aten.addmm.default", "aten.native_layer_norm.default", "aten.convolution.default", "aten.add.Tensor")
SWEEP_BACKENDS = ("eager", "aot_eager")
QUICK_MODELS = ("openai-community/gpt2", "meta-llama/Llama-3.1-8B", "microsoft/resnet-18", "google-t5/t5-small")
QUICK_TYPES = ("bert", "llama", "mixtral", "t5", "mamba", "resnet", "whisper", "clip")
FORMULAS_PER_JOB = 60
SIZES = {
    "B": 2, "S": 48, "S_encoder": 32, "S_decoder": 24, "cache_len": 16, "batch_elements": 96, "elements": 4096,
    "tokens": 96, "distinct_tokens": 50, "hidden_size": 64, "d_model": 64, "embed_dim": 64, "intermediate_size": 160,
    "moe_intermediate_size": 48, "d_ff": 160, "dim_feedforward": 160, "num_heads": 8, "nhead": 8, "num_kv_heads": 4,
    "head_dim": 8, "vocab_size": 1000, "num_hidden_layers": 4, "n_layer": 4, "num_layers": 4, "num_decoder_layers": 3,
    "num_experts_per_tok": 2, "num_local_experts": 8, "n_routed_experts": 8, "n_group": 4, "topk_group": 2,
    "image_size": 32, "patch_size": 4, "height": 16, "width": 12, "kernel_size": 3, "stride": 1, "padding": 1,
    "dilation": 1, "groups": 1, "dtype_bytes": 2, "first_k_dense_replace": 1, "num_channels": 3,
}  # fmt: skip
OTHER_SIZE = 16
SWITCHES = re.compile(r"^(is|has|need)_|^bias$|affine$")
"""Parameters that are 0 or 1."""

PROVENANCE = {
    "elapsed_s", "expected_s", "started", "created", "created_at", "finished_at", "timestamp", "date", "command", "run",
    "database", "version", "versions", "torchstone_version", "backend_version", "environment", "host", "machine",
    "traceback", "last_output", "python", "provenance",
}  # fmt: skip
MEASURED_IN_SWEEP = {"peak_bytes", "timing"}
"""In a sweep these are of the process that ran the vector; in a cost they are numbers of the model."""

SENTENCES = {
    "notes", "note", "reason", "detail", "details", "hint", "hints", "message", "error", "ir_error", "pcc_reason",
    "thinking_process", "assumptions", "advice", "title", "label", "explanation", "warning", "warnings",
}  # fmt: skip
IDENTITIES = ("path", "id", "key", "name", "op")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One command line, and the documents that it writes beside the one it prints."""

    name: str
    arguments: tuple[str, ...]
    written: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Command lines that run one after the other in one process and one folder."""

    name: str
    lines: tuple[Line, ...]
    inputs: dict[str, bytes] = field(default_factory=dict)


def main() -> int:
    """Record or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    record = commands.add_parser("record", help="write the documents of this version to a new folder")
    record.add_argument("folder", type=Path)
    record.add_argument("--quick", action="store_true", help="a part that takes a few minutes")
    record.add_argument("--logs", type=Path, help="a folder whose *.log files are read by memory, too")
    record.add_argument("--only", default="*", help="only jobs whose name matches, such as 'cost/*'")
    record.add_argument("--jobs", type=int, default=2, help="jobs at the same time")
    compare = commands.add_parser("compare", help="list the differences of two folders")
    compare.add_argument("before", type=Path)
    compare.add_argument("after", type=Path)
    compare.add_argument("--most", type=int, default=10, help="differences to list for each document")
    compare.add_argument("--texts", action="store_true", help="list changed sentences and added keys, too")
    arguments = parser.parse_args()
    if arguments.command == "compare":
        return compare_folders(arguments.before, arguments.after, most=arguments.most, texts=arguments.texts)
    return record_all(
        arguments.folder, quick=arguments.quick, logs=arguments.logs, only=arguments.only, jobs=arguments.jobs
    )


# --- what is run ------------------------------------------------------------------------------------------------------


def all_jobs(*, quick: bool, logs: Path | None) -> Iterator[Job]:
    """Every job of a record, the long ones first."""
    yield from _check_jobs(quick=quick)
    yield from _sweep_jobs(quick=quick)
    yield from _zoo_jobs(quick=quick)
    yield from _tiny_jobs(quick=quick)
    yield from _formula_jobs(quick=quick)
    yield from _memory_jobs(logs)


def _zoo_jobs(*, quick: bool) -> Iterator[Job]:
    models = QUICK_MODELS if quick else tuple(str(model["id"]) for model in _document(("models", "--json"))["models"])
    for model in models:
        lines = [
            Line(name="inspect", arguments=("inspect", model, "--json")),
            Line(name="cost", arguments=("cost", model, "--json")),
        ]
        if model in DECODED:
            decode = ("--phase", "decode", "--cache-len", "128")
            lines.append(Line(name="cost-decode", arguments=("cost", model, *decode, "--hardware", "n150", "--json")))
            lines.append(Line(name="inspect-decode", arguments=("inspect", model, *decode, "--json")))
        if model in BACKWARD:
            lines.append(
                Line(name="cost-backward", arguments=("cost", model, "--backward", "--optimizer", "adamw", "--json"))
            )
            lines.append(Line(name="cost-saved", arguments=("cost", "kept", "--json")))
            lines[0] = Line(name="inspect", arguments=("inspect", model, "--dir", "kept", "--json"))
        yield Job(name=f"zoo/{model.replace('/', '--')}", lines=tuple(lines))


def _tiny_jobs(*, quick: bool) -> Iterator[Job]:
    for kind in QUICK_TYPES if quick else PUBLIC:
        size = ("--seq-len", "16") if kind in STEP_BY_STEP else ()  # a Python loop over tokens: kept short
        model = (f"tiny:{kind}", *size)
        lines = (
            Line(
                name="inspect",
                arguments=("inspect", *model, "--dir", "kept", "--json"),
                written=("kept/unique_modules.json",),
            ),
            Line(name="cost", arguments=("cost", *model, "--json")),
            Line(name="cost-saved", arguments=("cost", "kept", "--count", "macs", "--causal", "half", "--json")),
            Line(name="cost-unreused", arguments=("cost", *model, "--no-reuse", "--json")),
        )
        yield Job(name=f"tiny/{kind}", lines=lines)


def _check_jobs(*, quick: bool) -> Iterator[Job]:
    for kind in CHECKED[:2] if quick else CHECKED:
        for backend in CHECK_BACKENDS[:1] if quick else CHECK_BACKENDS:
            arguments = ("check", f"tiny:{kind}", "--layers", "1", "--backend", backend, "--jobs", "1")
            line = Line(
                name="check",
                arguments=(*arguments, "--dir", "checked", "--json"),
                written=("checked/unique_modules.json",),
            )
            yield Job(name=f"check/{kind}-{backend}", lines=(line,))


def _sweep_jobs(*, quick: bool) -> Iterator[Job]:
    kinds = TRACED[:1] if quick else TRACED
    lines = [
        Line(name=f"trace-{kind}", arguments=("trace", f"tiny:{kind}", "--db", "configs.db", "--json"))
        for kind in kinds
    ]
    lines.append(Line(name="ops", arguments=("ops", "--db", "configs.db", "--json")))
    lines.append(Line(name="db-info", arguments=("db", "info", "--db", "configs.db", "--json")))
    for op in SWEPT_OPS[:2] if quick else SWEPT_OPS:
        where = ("--db", "configs.db", "--dir", f"sweep-{op}")
        neighbours = ("--neighbours",) if op == SWEPT_OPS[0] and not quick else ()
        lines.append(
            Line(name=f"generate-{op}", arguments=("sweep", "generate", "--op", op, *neighbours, *where, "--json"))
        )
        for backend in SWEEP_BACKENDS[:1] if quick else SWEEP_BACKENDS:
            run = ("sweep", "run", "--backend", backend, "--jobs", "1", *where, "--json")
            lines.append(Line(name=f"run-{op}-{backend}", arguments=run))
    yield Job(name="sweep/traced", lines=tuple(lines))


def _formula_jobs(*, quick: bool) -> Iterator[Job]:
    listed = ("formula", "list", "--check", "--json")
    entries = _document(("formula", "list", "--json"))["formulas"]
    chosen = entries[:: 8 if quick else 1]
    yield Job(name="formula/list", lines=(Line(name="list", arguments=listed),))
    for start in range(0, len(chosen), FORMULAS_PER_JOB):
        lines = [line for entry in chosen[start : start + FORMULAS_PER_JOB] for line in _formula_lines(entry)]
        yield Job(name=f"formula/entries-{start:03}", lines=tuple(lines))


def _formula_lines(entry: dict[str, Json]) -> Iterator[Line]:
    key, parameters = str(entry["key"]), entry["parameters"]
    assert isinstance(parameters, list)  # noqa: S101 - the document of `formula list`
    values = tuple(f"{name}={_size_of(str(name))}" for name in parameters)
    yield Line(name=f"show-{key}", arguments=("formula", "show", key, "--json"))
    yield Line(name=f"expand-{key}", arguments=("formula", "show", key, "--expand", "--json"))
    yield Line(name=f"eval-{key}", arguments=("formula", "eval", key, *values, "--json"))


def _size_of(parameter: str) -> int:
    return SIZES.get(parameter, 1 if SWITCHES.search(parameter) else OTHER_SIZE)


def _memory_jobs(folder: Path | None) -> Iterator[Job]:
    shipped = sorted(Path(str(files("torchstone"))).rglob("*.log.gz"))
    logs = {path.name.removesuffix(".gz"): gzip.decompress(path.read_bytes()) for path in shipped}
    if folder is not None:
        logs |= {path.name: path.read_bytes() for path in sorted(folder.rglob("*.log"))}
    for name, text in logs.items():
        stem = name.removesuffix(".log").replace(".", "-")
        lines = (
            Line(name="show", arguments=("memory", "show", name, "--top", "1000", "--json")),
            Line(name="show-op", arguments=("memory", "show", name, "--op", "20", "--json")),
            Line(
                name="parse",
                arguments=("memory", "parse", name, "--name", stem, "--dir", "parsed", "--json"),
                written=tuple(f"parsed/{stem}_{part}.json" for part in ("memory", "operations", "inputs_registry")),
            ),
        )
        yield Job(name=f"memory/{stem}", lines=lines, inputs={name: text})


def _document(arguments: tuple[str, ...]) -> dict[str, list[dict[str, Json]]]:
    """What a command that needs no model prints, from a process of its own."""
    with tempfile.TemporaryDirectory(prefix="replay-") as folder:
        child = os.fork()
        if child == 0:
            os.chdir(folder)
            answer = _run_line(Line(name="asked", arguments=arguments))
            Path("answer.json").write_text(json.dumps(answer))
            os._exit(0)
        os.waitpid(child, 0)
        document = json.loads((Path(folder) / "answer.json").read_text())["document"]
    if not isinstance(document, dict):
        sys.exit(f"replay: torchstone {' '.join(arguments)} printed no document")
    return document


# --- recording --------------------------------------------------------------------------------------------------------


def record_all(folder: Path, *, quick: bool, logs: Path | None, only: str, jobs: int) -> int:
    """Run every job, some at a time, each in a forked process: a crash or a hang is a line of the record."""
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        sys.exit(f"replay: {folder} is not empty; give a new folder")
    began = time.monotonic()
    _leave_the_user_out()
    waiting = [job for job in all_jobs(quick=quick, logs=logs) if fnmatch.fnmatch(job.name, only)]
    if any(job.name.startswith(RUNS_MODELS) for job in waiting):
        _load_the_heavy_packages()
    running: dict[int, tuple[Job, int, float, str]] = {}
    taken: dict[str, float] = {}
    total = len(waiting)
    while waiting or running:
        while waiting and len(running) < jobs:
            job = waiting.pop(0)
            work = tempfile.mkdtemp(prefix="replay-")
            child = _start(job, Path(work), folder.resolve())
            running[child] = (job, os.pidfd_open(child), time.monotonic(), work)
        for child in _ended(running):
            job, descriptor, started, work = running.pop(child)
            os.close(descriptor)
            _, status = os.waitpid(child, 0)
            taken[job.name] = time.monotonic() - started
            shutil.rmtree(work, ignore_errors=True)
            if status != 0:
                _write(folder / job.name / "_job.json", {"ended": f"wait status {status}"})
            print(f"{len(taken)}/{total}  {taken[job.name]:6.1f} s  {job.name}", file=sys.stderr, flush=True)
    slowest = sorted(taken.items(), key=lambda item: -item[1])[:5]
    documents = sum(1 for _ in folder.rglob("*.json"))
    print(f"{documents} documents in {time.monotonic() - began:.0f} s; slowest: {slowest}")
    return 0


def _leave_the_user_out() -> None:
    """Without the caches, files, settings and network of who records."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "NO_COLOR": "1", "PYTHONHASHSEED": "0"}
    for name in (
        "TORCHSTONE_DB",
        "TORCHSTONE_HOME",
        "TTMEM_HOME",
        "XDG_CACHE_HOME",
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
    ):
        os.environ.pop(name, None)


def _load_the_heavy_packages() -> None:
    """Import torch and transformers once, before any fork: that takes longer than most jobs."""
    import torch

    torch.set_num_threads(1)  # a forked process cannot use the threads of its parent
    for model in ("tiny:llama", "tiny:t5"):
        answer = _run_line(Line(name="warm", arguments=("cost", model, "--layers", "1", "--json")))
        if answer["exit_code"] != 0:
            sys.exit(f"replay: torchstone cost {model} does not work here: {answer['error']}")


def _start(job: Job, work: Path, folder: Path) -> int:
    child = os.fork()
    if child != 0:
        return child
    status = 1
    try:
        os.setpgid(0, 0)
        os.environ["HOME"] = str(work / "home")
        (work / "home").mkdir()
        os.chdir(work)
        for name, content in job.inputs.items():
            (work / name).write_bytes(content)
        signal.alarm(DEADLINE_S)
        for line in job.lines:
            _write(folder / job.name / f"{line.name}.json", _cleaned(_run_line(line), job, work))
        status = 0
    except BaseException:  # noqa: BLE001 - the outermost frame of a forked process
        traceback.print_exc(file=sys.__stderr__)
    finally:
        os._exit(status)


def _ended(running: dict[int, tuple[Job, int, float, str]]) -> list[int]:
    ready, _, _ = select.select([descriptor for _, descriptor, _, _ in running.values()], [], [])
    return [child for child, (_, descriptor, _, _) in running.items() if descriptor in ready]


def _run_line(line: Line) -> dict[str, Json]:
    """Run one command line in this process, with its outputs in files: workers inherit them as they are."""
    from torchstone.cli.main import run

    kept = os.dup(1), os.dup(2)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        try:
            code = run([*line.arguments, "--quiet"])
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os.dup2(kept[0], 1)
            os.dup2(kept[1], 2)
            os.close(kept[0])
            os.close(kept[1])
        out.seek(0)
        err.seek(0)
        printed, said = out.read().decode(), err.read().decode()
    first = next(iter(said.splitlines()), "") if code not in {0, 1} else ""
    answer: dict[str, Json] = {"arguments": list(line.arguments), "exit_code": code, "error": first}
    answer["document"] = _parsed(printed)
    for path in line.written:
        answer[Path(path).name] = _parsed(Path(path).read_text()) if Path(path).is_file() else None
    return answer


def _parsed(text: str) -> Json:
    try:
        document: Json = json.loads(text)
    except ValueError:
        return text[:1000]
    return document


def _cleaned(value: Json, job: Job, work: Path) -> Json:
    dropped = PROVENANCE | MEASURED_IN_SWEEP if job.name.startswith("sweep/") else PROVENANCE
    return _without(value, dropped, str(work))


def _without(value: Json, dropped: set[str], work: str) -> Json:
    if isinstance(value, dict):
        return {key: _without(item, dropped, work) for key, item in value.items() if key not in dropped}
    if isinstance(value, list):
        return [_without(item, dropped, work) for item in value]
    return value.replace(work, "WORK") if isinstance(value, str) else value


def _write(path: Path, document: Json) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, sort_keys=True, separators=(",", ":")) + "\n")


# --- comparing --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Where two documents differ, and how: `changed` and `missing` are findings, `added` and `text` are not."""

    kind: str
    path: str
    before: Json = None
    after: Json = None

    def __str__(self) -> str:
        """One line."""
        match self.kind:
            case "missing":
                return f"{self.path}: missing, was {_short(self.before)}"
            case "added":
                return f"{self.path}: added: {_short(self.after)}"
            case _:
                return f"{self.path}: {_short(self.before)} -> {_short(self.after)}"


def compare_folders(before: Path, after: Path, *, most: int, texts: bool) -> int:
    """Print every difference of two records; 1 when a number differs or a document is missing."""
    names = {path.relative_to(before).as_posix() for path in before.rglob("*.json")}
    others = {path.relative_to(after).as_posix() for path in after.rglob("*.json")}
    if not names or not others:
        sys.exit(f"replay: no documents in {after if names else before}")
    counts = {"changed": 0, "missing": 0, "added": 0, "text": 0}
    differing = 0
    for name in sorted(names & others):
        found = list(differences(_read(before / name), _read(after / name)))
        for difference in found:
            counts[difference.kind] += 1
        shown = found if texts else [item for item in found if item.kind in {"changed", "missing"}]
        differing += any(item.kind in {"changed", "missing"} for item in found)
        if shown:
            print(name)
            print("\n".join(f"  {item}" for item in shown[:most]))
            if len(shown) > most:
                print(f"  ... and {len(shown) - most} more")
    for name in sorted(names - others):
        print(f"{name}: not recorded after")
    for name in sorted(others - names):
        print(f"{name}: not recorded before")
    print(
        f"{len(names & others)} documents compared, {differing} differ: {counts['changed']} values changed, "
        f"{counts['missing']} missing; {counts['added']} keys added and {counts['text']} sentences changed "
        f"(--texts lists them); {len(names - others)} documents only before, {len(others - names)} only after"
    )
    return 1 if differing or names - others else 0


def differences(before: Json, after: Json, path: str = "$", *, prose: bool = False) -> Iterator[Difference]:
    """Each place where two documents differ; `prose` is below a key that holds sentences."""
    if isinstance(before, dict) and isinstance(after, dict):
        yield from _of_objects(before, after, path, prose=prose)
    elif isinstance(before, list) and isinstance(after, list):
        yield from _of_lists(before, after, path, prose=prose)
    elif type(before) is not type(after) or before != after:
        is_text = prose and isinstance(before, str) and isinstance(after, str) and bool(before) and bool(after)
        yield Difference(kind="text" if is_text else "changed", path=path, before=before, after=after)


def _of_objects(before: dict[str, Json], after: dict[str, Json], path: str, *, prose: bool) -> Iterator[Difference]:
    for key, value in before.items():
        where = f"{path}.{key}" if key.isidentifier() else f"{path}[{key!r}]"
        if key in after:
            yield from differences(value, after[key], where, prose=prose or key in SENTENCES)
        else:
            yield Difference(kind="missing", path=where, before=value)
    for key in after.keys() - before.keys():
        yield Difference(kind="added", path=f"{path}.{key}", after=after[key])


def _of_lists(before: list[Json], after: list[Json], path: str, *, prose: bool) -> Iterator[Difference]:
    """By identity where every row has one, so that one more row is one difference; else by position."""
    old, new = _by_identity(before), _by_identity(after)
    if prose and len(before) != len(after):
        yield Difference(kind="text", path=path, before=before, after=after)
    elif old is None or new is None or len(before) == len(after):
        for index, (first, second) in enumerate(zip(before, after, strict=False)):
            yield from differences(first, second, f"{path}[{index}]", prose=prose)
        for index in range(len(after), len(before)):
            yield Difference(kind="missing", path=f"{path}[{index}]", before=before[index])
        for index in range(len(before), len(after)):
            yield Difference(kind="changed", path=f"{path}[{index}]", after=after[index])
    else:
        for key, row in old.items():
            if key in new:
                yield from differences(row, new[key], f"{path}[{key}]", prose=prose)
            else:
                yield Difference(kind="missing", path=f"{path}[{key}]", before=row)
        for key in new.keys() - old.keys():
            yield Difference(kind="changed", path=f"{path}[{key}]", after=new[key])


def _by_identity(rows: Sequence[Json]) -> dict[str, Json] | None:
    for key in IDENTITIES:
        found: dict[str, Json] = {str(row[key]): row for row in rows if isinstance(row, dict) and key in row}
        if len(found) == len(rows) > 0:
            return found
    return None


def _read(path: Path) -> Json:
    document: Json = json.loads(path.read_text())
    return document


def _short(value: Json) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."  # noqa: PLR2004 - a line of a terminal


if __name__ == "__main__":
    sys.exit(main())
