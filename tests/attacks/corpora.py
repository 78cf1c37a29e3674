"""Small files that the readers accept, and a few larger ones, as bytes or as records.

Small ones are better targets: nearly every byte of them means something, and a reader takes many of them a second.
"""

import io
import json
import sqlite3
import tempfile
import wave
import zipfile
from functools import cache, partial
from pathlib import Path

import msgspec

from tests.check import results
from tests.check.results import finding, module
from tests.configs.samples import entry_v2, execution, master_v1, master_v2, new_tensor, old_arguments
from tests.report.sections.test_port import verdict
from tests.report.traces import one_op, transformer
from tests.sweep.builders import mm, result, run, seen, vector
from torchstone.record import codec
from torchstone.record.analysis import Analysis, AnalysisStage, StageState
from torchstone.record.check import CheckComparison, CheckResult
from torchstone.record.config import OpLog, SourceEnding, TargetKind, TracedSource, TraceRun
from torchstone.record.cost import CostTable
from torchstone.record.diff import FolderDiff
from torchstone.record.memory import MemoryTimeline
from torchstone.record.memory_findings import MemoryComparison
from torchstone.record.reference import Comparison, GoldenData, GoldenTensor, Rebuild, Role, Saved, Status, Weights
from torchstone.record.vector import Quarantine, QuarantineEntry, SweepPlan


@cache
def scratch() -> Path:
    """A folder in memory where there is one: readers that take paths are then as fast as the others."""
    memory = Path("/dev/shm")  # noqa: S108 - a folder of its own is made in it
    return Path(tempfile.mkdtemp(prefix="torchstone-fuzz-", dir=memory if memory.is_dir() else None))


def priced() -> CostTable:
    from torchstone.cost.price_trace import price

    return price(one_op())


def golden() -> GoldenData:
    return GoldenData(
        model="net", rebuild=Rebuild(model="net.py::f"), seed=0, dtypes=("float32",), versions={}, threads=1,
        created="", inputs=None, outputs=Saved(name="outputs"), weights=Weights(sha256="00", tensors=1, size_bytes=4),
        tensors=(GoldenTensor(name="outputs", role=Role.OUTPUT, shape=(2, 3), dtype="float32"),),
    )  # fmt: skip


def check_result() -> CheckResult:
    return results.check_result(
        finding(modules=("mod_net",)), modules=(module("net", "failed", outcome="crashed", findings=("finding_001",)),)
    )


def timeline(text: bytes) -> MemoryTimeline:
    """What a log says."""
    from torchstone.memory.read_log import parse_log

    return parse_log(text.splitlines(keepends=True))


def op_log() -> OpLog:
    source = TracedSource(name="t", ending=SourceEnding.PASSED, calls=1, configurations=(seen(mm()),))
    return OpLog(target="t.py", kind=TargetKind.SCRIPT, run="r", created="", sources=(source,))


@cache
def log() -> bytes:
    """A log of some fifty kilobytes."""
    from tests.memory.log_generator.run import generate
    from tests.memory.timelines import two_graphs

    text, _ = generate(two_graphs(3)[:1], passes=1)
    return text


@cache
def small_logs() -> tuple[bytes, ...]:
    """The first ops of a graph: as they run, after the graph that was compiled, and in other styles of writing."""
    from tests.memory.log_generator.graphs import random_graph
    from tests.memory.log_generator.run import generate
    from tests.memory.log_generator.style import Style

    write = partial(generate, [random_graph(2, num_ops=0)], passes=1)
    plain = write(style=Style(dumps=False))[0].splitlines(keepends=True)
    compiled = write(style=Style(stages=("ttnn",)))[0].splitlines(keepends=True)
    other = write(style=Style(dumps=False, new_dialect=True, stamped=True))[0].splitlines(keepends=True)
    ranked = write(style=Style(dumps=False, ranks=2, ansi=True))[0].splitlines(keepends=True)
    end = next(number for number, line in enumerate(compiled) if b"END OF MLIR" in line)
    return tuple(b"".join(one) for one in (plain[:6], plain, compiled[: end + 6], other[:7], ranked[:8]))


def database() -> bytes:
    path = scratch() / "made.sqlite"
    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as connection:
        connection.executescript(
            "PRAGMA page_size=512;"  # few bytes that mean nothing
            "CREATE TABLE devices (device_id int, l1_num_banks int, worker_l1_size int);"
            "INSERT INTO devices VALUES (0, 64, 1499136);"
            "CREATE TABLE operations (operation_id int, name text, duration float);"
            "INSERT INTO operations VALUES (1, 'ttnn.silu', 0.1), (2, 'ttnn.add', 0.1);"
            "CREATE TABLE buffers (operation_id int, device_id int, address int, max_size_per_bank int,"
            " buffer_type int);"
            "INSERT INTO buffers VALUES (1, 0, 1400000, 4096, 1), (2, 0, 1300000, 4096, 1);"
        )
    connection.close()
    return path.read_bytes()


def own_lines() -> bytes:
    from torchstone.configs.exchange import write_lines

    return b"".join(write_lines([TraceRun(source="t", run="r")], [seen(mm())]))


def masters() -> list[bytes]:
    tensors = {"arg0": new_tensor([1, 32, 64]), "arg1": 3}
    return [
        json.dumps(master_v2(entry_v2(tensors, executions=[execution()]))).encode(),
        json.dumps(master_v1({"arguments": old_arguments(), "source": "x"})).encode(),
    ]


ATEN = b"""Operator: aten.mm.default
cnt: 2, ((T([2, 3], f32), T([3, 4], f32)), {})
Operator: aten.add.Tensor
cnt: 1, ((T([2, 4], f32), T([4], f32)), {'alpha': 2})
"""


def formula_file() -> bytes:
    from importlib.resources import files

    whole = json.loads(files("torchstone.formula").joinpath("module_db.json").read_bytes())
    name = next(key for key in whole["modules"] if key.endswith("Linear"))
    return json.dumps({"schema": whole["schema"], "modules": {name: whole["modules"][name]}}).encode()


def traced() -> bytes:
    """A capture with the lines of its source, which no builder has."""
    import torch

    from tests.report.view.test_source_lines import Net
    from torchstone.capture.capture_model import capture

    return codec.encode(capture(Net(), torch.zeros(4, 8)))


def analysis() -> Analysis:
    stage = AnalysisStage(name="cost", question="What does it cost", state=StageState.DONE, answers=("A.",), good=True)
    return Analysis(model="net", request="r", stages=(stage,), finished=True)


def comparison() -> Comparison:
    verdicts = (verdict("model.layers.0", Status.PASSED), verdict("model.layers.1", Status.WRONG_VALUES))
    return Comparison(model="net", candidate="a.npz", passed=False, first_wrong=None, verdicts=verdicts)


def plan() -> SweepPlan:
    return SweepPlan(run=run("r"), vectors=(vector(mm()),))


def bundle_file() -> bytes:
    from torchstone.check.bundle import ABOUT, Bundle

    about = Bundle(
        model="net", backend="b", backend_version="1", backend_options={}, python="3", platform="x", finding=finding()
    )
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo(ABOUT), msgspec.json.encode(about))
        archive.writestr(zipfile.ZipInfo("repro.py"), "import torch\n")
    return file.getvalue()


def store_file() -> bytes:
    from torchstone.store.database import Store
    from torchstone.store.sweeps import add_sweep

    path = scratch() / "made.db"
    path.unlink(missing_ok=True)
    with Store.open(str(path)) as store:
        store.add([seen(mm())])
        add_sweep(store, run("r", result("k1")))
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
        connection.execute("PRAGMA page_size=512")  # few bytes that mean nothing
        connection.execute("VACUUM")
        connection.execute("PRAGMA journal_mode=WAL")  # as the store leaves it
    connection.close()
    return path.read_bytes()


def master_database_file() -> bytes:
    """The tables of a database that a sweep module reads, without the log for which SQLite makes files beside it."""
    path = scratch() / "tables.db"
    path.write_bytes(store_file())
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            if name not in {"configuration", "occurrence", "origin", "place"}:
                connection.execute(f'DROP TABLE "{name}"')
        connection.execute("VACUUM")
    connection.close()
    return path.read_bytes()


def safetensors_file() -> bytes:
    header = json.dumps({"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(24)


def npy_file() -> bytes:
    import numpy as np

    file = io.BytesIO()
    np.save(file, np.arange(6, dtype=np.float32).reshape(2, 3))
    return file.getvalue()


def npz_file() -> bytes:
    import numpy as np

    file = io.BytesIO()
    np.savez_compressed(file, a=np.arange(6, dtype=np.float32))
    return file.getvalue()


def pt_file() -> bytes:
    import torch

    file = io.BytesIO()
    torch.save({"a": torch.arange(6)}, file)
    return file.getvalue()


def program() -> bytes:
    import torch

    file = io.BytesIO()
    torch.export.save(torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),)), file)
    return file.getvalue()


def transformer_cost() -> CostTable:
    """The cost of the capture that pages are rendered with."""
    from torchstone.cost.price_trace import price

    return price(transformer(1))


def folder_diff() -> FolderDiff:
    """Two folders of results, compared."""
    from torchstone.workflows.diff import diff_folders

    before, after = (scratch() / name for name in ("before", "after"))
    for folder, trace in ((before, transformer(1)), (after, transformer(2))):
        folder.mkdir(exist_ok=True)
        codec.save(folder / "trace.json", trace)
    return diff_folders(before, after)


def check_comparison() -> CheckComparison:
    from torchstone.check.summary import compare

    return compare([results.check_result(), results.check_result(finding(), backend="b")], ["a", "b"])


def memory_comparison() -> MemoryComparison:
    from torchstone.memory.compare import compare
    from torchstone.memory.study import Study

    first, second = (Study(timeline(text)) for text in small_logs()[1:3])
    return compare(first, second)


def quarantine() -> Quarantine:
    return Quarantine(entries=(QuarantineEntry(vector="k1", backend="b", reason="r", added="2026-01-01"),))


def file_states() -> bytes:
    """A file that is as it was, and one that is not there."""
    from torchstone.workflows.code_files import _state

    (scratch() / "seen.txt").write_bytes(b"seen")
    return msgspec.json.encode([_state(str(scratch() / "seen.txt")), _state(str(scratch() / "absent.txt"))])


# --- Files of other tools ---


def published_formulas() -> bytes:
    """A database of formulas as others publish it, without a schema."""
    whole = json.loads(formula_file())
    return json.dumps({"modules": whole["modules"]}).encode()


def tt_metal_files() -> list[bytes]:
    """Vectors and results of tt-metal's sweeps."""
    from torchstone.sweep.tt_metal_files import MANIFEST, results_export, vectors_export

    vectors = vectors_export([vector(mm())])
    results = results_export(run("1", result("k1"), started="2026-01-01T00:00:00"))
    files = {**vectors, **{name: text for name, text in results.items() if not name.startswith("oprun_")}}
    return [text.encode() for name, text in files.items() if name != MANIFEST]


def profile() -> bytes:
    """A trace of torch.profiler with memory events."""
    events = [
        {"ph": "i", "name": "[memory]", "ts": 10 * number, "pid": 1, "tid": 1, "args": {
            "Total Allocated": total, "Bytes": size, "Addr": 4096, "Device Id": -1, "Device Type": 0,
        }}
        for number, (size, total) in enumerate(((1024, 1024), (512, 1536), (-1024, 512)))
    ]  # fmt: skip
    call = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 5, "dur": 3, "args": {}}
    return json.dumps({"schemaVersion": 1, "deviceProperties": [], "traceEvents": [call, *events]}).encode()


MODEL_CONFIG = (
    b'{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 8, "n_head": 2, "n_layer": 1, '
    b'"n_positions": 16, "vocab_size": 32, "initializer_range": {"__float__": "Infinity"}}'
)


def png_file() -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", (4, 3), (1, 2, 3)).save(file, format="PNG")
    return file.getvalue()


def other_images() -> list[bytes]:
    """The same in other formats that the library reads."""
    from PIL import Image

    found = []
    for kind in ("JPEG", "GIF", "BMP", "WEBP"):
        file = io.BytesIO()
        Image.new("RGB", (16, 16), (1, 2, 3)).save(file, format=kind)
        found.append(file.getvalue())
    return found


def wav_file() -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as audio:
        audio.setnchannels(2)
        audio.setsampwidth(2)
        audio.setframerate(16_000)
        audio.writeframes(bytes(range(40)))
    return file.getvalue()
