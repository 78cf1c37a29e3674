"""Every reader of files that others wrote, as a function of bytes, with small files that it accepts.

A reader returns something that can be compared with what the original gave, so that a damaged file which is accepted as
something else is counted. It goes as far as the commands do: what was read is also priced, rendered or summed up.
"""

import gzip
import io
import json
import pickle
import sqlite3
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from tests.check.results import check_result, finding, module
from tests.configs.samples import entry_v2, execution, master_v1, master_v2, new_tensor, old_arguments
from tests.configs.test_ttnn_graph import call
from tests.memory.test_torch_memory import snapshot
from tests.memory.test_ttnn_report import DEVICE, small_report
from tests.record.test_cost import sweep_of
from tests.record.test_repeats import layers
from tests.report.sections.test_port import verdict
from tests.report.sections.test_tenstorrent import MAPPING
from tests.report.test_checklist_text import checklist
from tests.report.traces import one_op, transformer
from tests.sweep.builders import mm, result, run, seen, vector
from torchstone.record import codec
from torchstone.record.analysis import Analysis, AnalysisStage, StageState
from torchstone.record.base import Document
from torchstone.record.check import CheckResult
from torchstone.record.config import OpLog, SourceEnding, TargetKind, TracedSource, TraceRun
from torchstone.record.cost import CostTable
from torchstone.record.memory import MemoryTimeline
from torchstone.record.reference import (
    Checklist,
    Comparison,
    GoldenData,
    GoldenTensor,
    Rebuild,
    Role,
    Saved,
    Status,
    Weights,
)
from torchstone.record.trace import Trace
from torchstone.record.unique import UniqueModules, unique_modules
from torchstone.record.vector import SweepHistory, SweepPlan, SweepRun, VectorFile

Read = Callable[[bytes], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """A reader, and files that it accepts."""

    read: Read
    corpus: Callable[[], list[bytes]]
    is_json: bool = False
    needs_torch: bool = False


@cache
def scratch() -> Path:
    """A folder in memory where there is one: readers that take paths are then as fast as the others."""
    memory = Path("/dev/shm")  # noqa: S108 - a folder of its own is made in it
    return Path(tempfile.mkdtemp(prefix="torchstone-fuzz-", dir=memory if memory.is_dir() else None))


def _from_path(read: Callable[[Path], object], name: str) -> Read:
    def from_bytes(content: bytes) -> object:
        path = scratch() / name
        path.write_bytes(content)
        return read(path)

    return from_bytes


# --- Records ---


def _record(kind: type[Document], use: Callable[[Any], object] | None = None) -> Read:
    def read(content: bytes) -> object:
        record = codec.decode(content, kind, origin="x.json")
        if use is not None:
            use(record)
        return codec.encode(record)

    return read


def _use_trace(trace: Trace) -> None:
    from torchstone.cost.price_trace import price
    from torchstone.report.text import failure_text

    price(trace)
    unique_modules(trace)
    failure_text(trace)
    len(trace.ops)


def _priced() -> CostTable:
    from torchstone.cost.price_trace import price

    return price(one_op())


def _golden() -> GoldenData:
    return GoldenData(
        model="net", rebuild=Rebuild(model="net.py::f"), seed=0, dtypes=("float32",), versions={}, threads=1,
        created="", inputs=None, outputs=Saved(name="outputs"), weights=Weights(sha256="00", tensors=1, size_bytes=4),
        tensors=(GoldenTensor(name="outputs", role=Role.OUTPUT, shape=(2, 3), dtype="float32"),),
    )  # fmt: skip


def _check_result() -> CheckResult:
    return check_result(
        finding(modules=("mod_net",)), modules=(module("net", "failed", outcome="crashed", findings=("finding_001",)),)
    )


def _timeline() -> MemoryTimeline:
    from torchstone.memory.read_log import parse_log

    return parse_log(_log().splitlines(keepends=True))


def _use_timeline(timeline: MemoryTimeline) -> None:
    from torchstone.memory.documents import memory_json, operations_json, registry_document, show_document
    from torchstone.memory.study import Study

    study = Study(timeline)
    show_document(study)
    registry_document(study, "x")
    for _ in (*memory_json(study, "x"), *operations_json(study, "x")):
        pass


def _op_log() -> OpLog:
    source = TracedSource(name="t", ending=SourceEnding.PASSED, calls=1, configurations=(seen(mm()),))
    return OpLog(target="t.py", kind=TargetKind.SCRIPT, run="r", created="", sources=(source,))


# --- Logs and memory of other tools ---


@cache
def _log() -> bytes:
    from tests.memory.log_generator.run import generate
    from tests.memory.timelines import two_graphs

    text, _ = generate(two_graphs(3)[:1], passes=1)
    return text


def _read_log(content: bytes) -> object:
    from torchstone.memory.read_log import parse_log

    timeline = parse_log(content.splitlines(keepends=True))
    return codec.encode(timeline)


def _read_memory_file(path: Path) -> object:
    from torchstone.memory.read_log import parse_log

    timeline = parse_log(path)
    _use_timeline(timeline)
    return codec.encode(timeline)


def _database() -> bytes:
    path = scratch() / "made.sqlite"
    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as connection:
        connection.executescript(
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


# --- Configurations ---


def _import(path: Path) -> object:
    from torchstone.configs.export import write_master
    from torchstone.configs.import_file import import_path

    found = import_path(path)
    write_master(found.seen)
    return [one.key for one in found.seen]


def _own_lines() -> bytes:
    from torchstone.configs.exchange import write_lines

    return b"".join(write_lines([TraceRun(source="t", run="r")], [seen(mm())]))


def _masters() -> list[bytes]:
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


def _load_master(path: Path) -> object:
    from torchstone.sweep.master_entries import read_master

    try:
        return str(read_master(path, "ttnn.add")[1])
    except ValueError as error:  # its callers turn it into a sentence
        return str(error)[:40]


# --- Formulas and settings ---


def _formulas(path: Path) -> object:
    from torchstone.formula.database.files import _read_entries

    return sorted(_read_entries(path)[0])


def _formula_file() -> bytes:
    from importlib.resources import files

    whole = json.loads(files("torchstone.formula").joinpath("module_db.json").read_bytes())
    name = next(key for key in whole["modules"] if key.endswith("Linear"))
    return json.dumps({"schema": whole["schema"], "modules": {name: whole["modules"][name]}}).encode()


def _template(content: bytes) -> object:
    from torchstone.formula.language.parse import parse

    return repr(parse(content.decode("utf-8", "replace")))


def _hardware(path: Path) -> object:
    from torchstone.cost.roofline import find_hardware

    return repr(find_hardware(str(path)))


def _tolerances(path: Path) -> object:
    from torchstone.check.settings import _from_file

    return repr(_from_file(path))


def _journal(path: Path) -> object:
    from torchstone.workers.journal import Journal

    return Journal.read(path)


# --- Documents that a report shows: read, laid out and written as a page ---


def _rendered(name: str) -> Read:
    """A document beside a capture, as `torchstone report` takes it."""

    def read(content: bytes) -> object:
        from torchstone.report.page import assemble, render_page
        from torchstone.report.render import SECTIONS, render_twin
        from torchstone.report.section import ReportFolder

        folder = scratch() / name
        if not folder.is_dir():
            folder.mkdir()
            codec.save(folder / "trace.json", transformer(1))
        (folder / name).write_bytes(content)
        report = assemble(ReportFolder(folder), [one for one in SECTIONS if name in one.files])
        render_twin(report)
        if zlib.crc32(content) % 64 == 0:  # the page is some hundred times as slow, and mostly scripts
            render_page(report)
        return repr(report)

    return read


def _traced() -> bytes:
    """A capture with the lines of its source, which no builder has."""
    import torch

    from tests.report.view.test_source_lines import Net
    from torchstone.capture.capture_model import capture

    return codec.encode(capture(Net(), torch.zeros(4, 8)))


def _analysis() -> Analysis:
    stage = AnalysisStage(name="cost", question="What does it cost", state=StageState.DONE, answers=("A.",), good=True)
    return Analysis(model="net", request="r", stages=(stage,), finished=True)


def _comparison() -> Comparison:
    verdicts = (verdict("model.layers.0", Status.PASSED), verdict("model.layers.1", Status.WRONG_VALUES))
    return Comparison(model="net", candidate="a.npz", passed=False, first_wrong=None, verdicts=verdicts)


# --- Archives, databases and settings of our own ---


def _plan() -> SweepPlan:
    return SweepPlan(run=run("r"), vectors=(vector(mm()),))


def _bundle_file() -> bytes:
    from torchstone.check.bundle import ABOUT, Bundle

    about = Bundle(
        model="net", backend="b", backend_version="1", backend_options={}, python="3", platform="x", finding=finding()
    )
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo(ABOUT), msgspec.json.encode(about))
        archive.writestr(zipfile.ZipInfo("repro.py"), "import torch\n")
    return file.getvalue()


def _bundle(path: Path) -> object:
    from torchstone.check.bundle import unpack

    folder = scratch() / "unpacked"
    folder.mkdir(exist_ok=True)
    return repr(unpack(path, folder))


def _store_file() -> bytes:
    from torchstone.store.database import Store
    from torchstone.store.sweeps import add_sweep

    path = scratch() / "made.db"
    path.unlink(missing_ok=True)
    with Store.open(str(path)) as store:
        store.add([seen(mm())])
        add_sweep(store, run("r", result("k1")))
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
        connection.execute("VACUUM")
    connection.close()
    return path.read_bytes()


def _store(path: Path) -> object:
    from torchstone.store.database import Store
    from torchstone.store.sweeps import newest_statuses, read_sweep, sweep_runs

    for beside in ("-wal", "-shm", "-journal"):
        Path(f"{path}{beside}").unlink(missing_ok=True)
    with Store.open(str(path), create=False) as store:
        runs = [read_sweep(store, one.run) for one in sweep_runs(store)]
        return repr((runs, newest_statuses(store, "eager"), store.info(), list(store.configurations()), store.faults()))


def _settings(path: Path) -> object:
    from torchstone.cli.cost import command
    from torchstone.cli.project_settings import find_settings

    found = find_settings(path.parent)
    return None if found is None else repr(found.defaults("cost", command))


def _setup(path: Path) -> object:
    from torchstone.reference.setup_differences import read_setup

    return repr(read_setup(path))


# --- Tensor files and exported programs, which need torch ---


def _tensors(path: Path) -> object:
    from torchstone.reference.port_files import read_candidate

    return {
        name: (tuple(one.shape), str(one.dtype), str(one.flatten()[:1000].tolist()))
        for name, one in read_candidate(path).items()
    }


def _own_tensors(path: Path) -> object:
    from torchstone.errors import UnreadableFileError
    from torchstone.numerics.tensor_files import TensorFileError, read_tensors

    try:
        return {name: (tuple(one.shape), str(one.dtype)) for name, one in read_tensors(path).items()}
    except TensorFileError as error:  # its callers turn it into a sentence
        raise UnreadableFileError(str(error)) from error


def _safetensors() -> bytes:
    header = json.dumps({"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(24)


def _npy() -> bytes:
    import numpy as np

    file = io.BytesIO()
    np.save(file, np.arange(6, dtype=np.float32).reshape(2, 3))
    return file.getvalue()


def _npz() -> bytes:
    import numpy as np

    file = io.BytesIO()
    np.savez_compressed(file, a=np.arange(6, dtype=np.float32))
    return file.getvalue()


def _pt() -> bytes:
    import torch

    file = io.BytesIO()
    torch.save({"a": torch.arange(6)}, file)
    return file.getvalue()


def _program() -> bytes:
    import torch

    file = io.BytesIO()
    torch.export.save(torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),)), file)
    return file.getvalue()


def _exported(path: Path) -> object:
    from torchstone.errors import UnreadableFileError
    from torchstone.models.exported_archive import check_archive

    try:
        check_archive(path)
    except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnreadableFileError(str(error)[:80]) from error
    return "harmless"


def _json(*records: Document) -> Callable[[], list[bytes]]:
    return lambda: [codec.encode(record) for record in records]


READERS: dict[str, Reader] = {
    "trace": Reader(read=_record(Trace, _use_trace), corpus=_json(one_op(), layers()), is_json=True),
    "trace-large": Reader(read=_record(Trace, _use_trace), corpus=_json(transformer(2)), is_json=True),
    "unique-modules": Reader(
        read=_record(UniqueModules), corpus=lambda: [codec.encode(unique_modules(transformer(1)))], is_json=True
    ),
    "cost": Reader(read=_record(CostTable), corpus=lambda: [codec.encode(_priced())], is_json=True),
    "check": Reader(read=_record(CheckResult), corpus=_json(_check_result()), is_json=True),
    "golden-data": Reader(read=_record(GoldenData), corpus=_json(_golden()), is_json=True),
    "checklist": Reader(read=_record(Checklist), corpus=_json(checklist()), is_json=True),
    "vectors": Reader(
        read=_record(VectorFile), corpus=_json(VectorFile(module="m", vectors=(vector(mm()),))), is_json=True
    ),
    "sweep-run": Reader(read=_record(SweepRun), corpus=_json(run("r", result("k1"))), is_json=True),
    "op-log": Reader(read=_record(OpLog), corpus=_json(_op_log()), is_json=True),
    "timeline": Reader(
        read=_record(MemoryTimeline, _use_timeline), corpus=lambda: [codec.encode(_timeline())], is_json=True
    ),
    "plan": Reader(read=_record(SweepPlan), corpus=lambda: [codec.encode(_plan())], is_json=True),
    "check-page": Reader(read=_rendered("check.json"), corpus=_json(_check_result()), is_json=True),
    "trace-page": Reader(read=_rendered("trace.json"), corpus=lambda: [_traced()], is_json=True, needs_torch=True),
    "analysis-page": Reader(read=_rendered("analysis.json"), corpus=_json(_analysis()), is_json=True),
    "mapping-page": Reader(read=_rendered("mapping.json"), corpus=_json(MAPPING), is_json=True),
    "port-page": Reader(read=_rendered("comparison.json"), corpus=_json(_comparison()), is_json=True),
    "sweep-page": Reader(
        read=_rendered("sweep_history.json"), corpus=_json(SweepHistory(runs=(run("1", result("a")),))), is_json=True
    ),
    "cost-sweep-page": Reader(read=_rendered("cost_sweep.json"), corpus=_json(sweep_of(1, 2, 4)), is_json=True),
    "bundle": Reader(read=_from_path(_bundle, "b.zip"), corpus=lambda: [_bundle_file()]),
    "store": Reader(read=_from_path(_store, "x.db"), corpus=lambda: [_store_file()]),
    "settings": Reader(
        read=_from_path(_settings, "pyproject.toml"),
        corpus=lambda: [b'[tool.torchstone.cost]\nhardware = "n150"\nseq-len = 16\n[tool.x]\ny = [1]\n'],
    ),
    "setup": Reader(
        read=_from_path(_setup, "setup.json"),
        corpus=lambda: [b'{"dtype": "float32", "seed": 1, "versions": {"a": "1"}}'],
        is_json=True,
        needs_torch=True,
    ),
    "log": Reader(read=_read_log, corpus=lambda: [_log()[:6000]]),
    "log-gz": Reader(
        read=_from_path(_read_memory_file, "x.log.gz"), corpus=lambda: [gzip.compress(_log()[:6000], mtime=0)]
    ),
    "snapshot": Reader(
        read=_from_path(_read_memory_file, "snapshot.pickle"), corpus=lambda: [pickle.dumps(snapshot())]
    ),
    "ttnn-report": Reader(
        read=_from_path(_read_memory_file, "report.json"),
        corpus=lambda: [json.dumps({"version": 1, "graph": small_report(), "devices": [DEVICE]}).encode()],
        is_json=True,
    ),
    "ttnn-database": Reader(read=_from_path(_read_memory_file, "db.sqlite"), corpus=lambda: [_database()]),
    "master": Reader(read=_from_path(_import, "master.json"), corpus=_masters, is_json=True),
    "master-loader": Reader(read=_from_path(_load_master, "loader.json"), corpus=_masters, is_json=True),
    "ttnn-graph": Reader(
        read=_from_path(_import, "graph.json"),
        corpus=lambda: [json.dumps(call(1, "ttnn::relu")).encode()],
        is_json=True,
    ),
    "aten-text": Reader(read=_from_path(_import, "aten.txt"), corpus=lambda: [ATEN]),
    "own-lines": Reader(read=_from_path(_import, "x.jsonl"), corpus=lambda: [_own_lines()]),
    "formulas": Reader(read=_from_path(_formulas, "module_db.json"), corpus=lambda: [_formula_file()], is_json=True),
    "template": Reader(read=_template, corpus=lambda: [b"2 * B * S * ${D} ** 2 + ceil(B / 3) * max(S, 4)"]),
    "hardware": Reader(
        read=_from_path(_hardware, "h.toml"),
        corpus=lambda: [
            b'[x]\ntitle = "X"\npeak_tflops = { float32 = 1.5 }\nvector_tflops = 0.5\nmemory_gb = 12\n'
            b'bandwidth_gb_per_s = 288\nlaunch_us = 1.5\nsource = "a page"\n'
        ],
    ),
    "tolerances": Reader(
        read=_from_path(_tolerances, "t.toml"),
        corpus=lambda: [b'pcc = 0.98\n[dtype.bfloat16]\npcc = 0.95\n[pattern."layers.*"]\nrtol = 0.1\n'],
    ),
    "journal": Reader(
        read=_from_path(_journal, "j.jsonl"),
        corpus=lambda: [b'{"schema": "torchstone/journal/1"}\n{"key":"a","document":{"x":1}}\n'],
    ),
    "safetensors": Reader(
        read=_from_path(_tensors, "x.safetensors"), corpus=lambda: [_safetensors()], needs_torch=True
    ),
    "own-tensors": Reader(
        read=_from_path(_own_tensors, "own.safetensors"), corpus=lambda: [_safetensors()], needs_torch=True
    ),
    "npy": Reader(read=_from_path(_tensors, "x.npy"), corpus=lambda: [_npy()], needs_torch=True),
    "npz": Reader(read=_from_path(_tensors, "x.npz"), corpus=lambda: [_npz()], needs_torch=True),
    "pt": Reader(read=_from_path(_tensors, "x.pt"), corpus=lambda: [_pt()], needs_torch=True),
    "tensorbin": Reader(
        read=_from_path(_tensors, "x.tensorbin"),
        corpus=lambda: [(Path(__file__).parents[1] / "reference/tensorbins/bfloat16_rows.tensorbin").read_bytes()],
        needs_torch=True,
    ),
    "pt2": Reader(read=_from_path(_exported, "x.pt2"), corpus=lambda: [_program()], needs_torch=True),
}
