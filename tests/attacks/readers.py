"""Every reader of files that others wrote, as a function of bytes, with small files that it accepts.

A reader returns something that can be compared with what the original gave, so that a damaged file which is accepted as
something else is counted.
"""

import gzip
import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.attacks import corpora, reading
from tests.attacks.mutations import (
    Mutate,
    mutate_gzip,
    mutate_in_place,
    mutate_json,
    mutate_json_lines,
    mutate_npy,
    mutate_safetensors,
    mutate_sqlite,
    mutate_zip,
)
from tests.configs.test_ttnn_graph import call
from tests.configs.test_ttnn_operations import call as operation
from tests.memory.test_torch_memory import snapshot
from tests.memory.test_ttnn_report import DEVICE, small_report
from tests.record.test_cost import sweep_of
from tests.record.test_repeats import layers
from tests.report.sections.test_reference import GOLDEN
from tests.report.sections.test_tenstorrent import MAPPING
from tests.report.test_checklist_text import checklist
from tests.report.traces import one_op, transformer
from tests.sweep.builders import mm, result, run, vector
from torchstone.record import codec
from torchstone.record.base import Document
from torchstone.record.check import CheckResult
from torchstone.record.config import OpLog
from torchstone.record.cost import CostTable
from torchstone.record.memory import MemoryTimeline
from torchstone.record.reference import Checklist, GoldenData
from torchstone.record.trace import Trace
from torchstone.record.unique import UniqueModules, unique_modules
from torchstone.record.vector import Quarantine, SweepHistory, SweepPlan, SweepRun, VectorFile

Corpus = Callable[[], list[bytes]]


def nothing() -> list[bytes]:
    """No files."""
    return []


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """A reader, and files that it accepts."""

    read: reading.Read
    corpus: Corpus
    large: Corpus = nothing  # larger files, which are taken now and then: they are slow
    structures: tuple[Mutate, ...] = ()  # besides damage to bytes
    original: reading.Read | None = None  # what a mutant is compared with, where it is not what `read` gives
    needs_torch: bool = False


def _encoded(record: Document | Callable[[], Document]) -> list[bytes]:
    return [codec.encode(record if isinstance(record, Document) else record())]


def _document(
    kind: type[Document], *records: Document | Callable[[], Document], use: Callable[..., object] | None = None
) -> Reader:
    return Reader(
        read=reading.record_of(kind, use),
        corpus=lambda: [one for record in records for one in _encoded(record)],
        structures=(mutate_json,),
    )


def _page(
    name: str, record: Document | Callable[[], Document], beside: Callable[[], dict[str, Document]] = dict
) -> Reader:
    def kind() -> type[Document]:
        return type(record if isinstance(record, Document) else record())

    return Reader(
        read=reading.rendered(name, kind, beside), corpus=partial(_encoded, record), structures=(mutate_json,)
    )


def _file(
    name: str, read: Callable[[Path], object], content: bytes | Callable[[], bytes], *structures: Mutate
) -> Reader:
    return Reader(
        read=reading.from_path(read, name),
        corpus=lambda: [content if isinstance(content, bytes) else content()],
        structures=structures,
    )


def _tensors(name: str, content: Callable[[], bytes], *structures: Mutate) -> Reader:
    read = reading.from_path(reading.tensors, name)
    return Reader(read=read, corpus=lambda: [content()], structures=structures, needs_torch=True)


_SETTINGS = b'[tool.torchstone.cost]\nhardware = "n150"\nseq-len = 16\n[tool.x]\ny = [1]\n'
_HARDWARE = (
    b'[x]\ntitle = "X"\npeak_tflops = { float32 = 1.5 }\nvector_tflops = 0.5\nmemory_gb = 12\n'
    b'bandwidth_gb_per_s = 288\nlaunch_us = 1.5\nsource = "a page"\n'
)
_TOLERANCES = b'pcc = 0.98\n[dtype.bfloat16]\npcc = 0.95\n[pattern."layers.*"]\nrtol = 0.1\n'
_JOURNAL = b'{"schema": "torchstone/journal/1"}\n{"key":"a","document":{"x":1}}\n'
_TENSORBIN = Path(__file__).parents[1] / "reference/tensorbins/bfloat16_rows.tensorbin"


def _small_timelines() -> list[bytes]:
    return [codec.encode(corpora.timeline(text)) for text in corpora.small_logs()]


READERS: dict[str, Reader] = {
    # Records
    "trace": _document(Trace, one_op(), layers(), use=reading.use_trace),
    "trace-large": _document(Trace, transformer(2), use=reading.use_trace),
    "unique-modules": _document(UniqueModules, lambda: unique_modules(transformer(1))),
    "cost": _document(CostTable, corpora.priced),
    "check": _document(CheckResult, corpora.check_result),
    "golden-data": _document(GoldenData, corpora.golden),
    "checklist": _document(Checklist, checklist()),
    "vectors": _document(VectorFile, VectorFile(module="m", vectors=(vector(mm()),))),
    "sweep-run": _document(SweepRun, run("r", result("k1"))),
    "op-log": _document(OpLog, corpora.op_log),
    "timeline": Reader(
        read=reading.record_of(MemoryTimeline, reading.use_timeline),
        corpus=_small_timelines,
        large=lambda: _encoded(corpora.timeline(corpora.log())),
        structures=(mutate_json,),
    ),
    "plan": _document(SweepPlan, corpora.plan),
    # Documents that a report shows
    "check-page": _page("check.json", corpora.check_result),
    "trace-page": Reader(
        read=reading.rendered("trace.json", lambda: Trace),
        corpus=lambda: [corpora.traced()],
        structures=(mutate_json,),
        needs_torch=True,
    ),
    "analysis-page": _page("analysis.json", corpora.analysis),
    "mapping-page": _page("mapping.json", MAPPING),
    "port-page": _page("comparison.json", corpora.comparison),
    "sweep-page": _page("sweep_history.json", SweepHistory(runs=(run("1", result("a")),))),
    "cost-sweep-page": _page("cost_sweep.json", sweep_of(1, 2, 4)),
    "cost-page": _page("cost.json", corpora.transformer_cost),
    "diff-page": _page("diff.json", corpora.folder_diff),
    "backends-page": _page("check_comparison.json", corpora.check_comparison),
    "memory-comparison-page": _page("memory_comparison.json", corpora.memory_comparison),
    "golden-page": _page("golden_data.json", GOLDEN, beside=lambda: {"checklist.json": checklist()}),
    "checklist-page": _page("checklist.json", checklist(), beside=lambda: {"golden_data.json": GOLDEN}),
    "memory-page": Reader(
        read=reading.rendered("net_timeline.json.gz", lambda: MemoryTimeline),
        corpus=lambda: [gzip.compress(text, mtime=0) for text in _small_timelines()],
        structures=(mutate_gzip,),
    ),
    "reports": _file(
        "report.json", reading.reports, b'{"schema": "torchstone/report/1", "title": "x", "failed": true}'
    ),
    # Archives, databases and settings
    "bundle": _file("b.zip", reading.bundle, corpora.bundle_file, mutate_zip),
    "store": Reader(
        read=reading.from_path(reading.store, "x.db"),
        original=reading.from_path(partial(reading.store, whole=True), "whole.db"),
        corpus=lambda: [corpora.store_file()],
        structures=(mutate_sqlite, mutate_in_place),
    ),
    "settings": _file("pyproject.toml", reading.settings, _SETTINGS),
    "setup": Reader(
        read=reading.from_path(reading.setup, "setup.json"),
        corpus=lambda: [b'{"dtype": "float32", "seed": 1, "versions": {"a": "1"}}'],
        structures=(mutate_json,),
        needs_torch=True,
    ),
    "hardware": _file("h.toml", reading.hardware, _HARDWARE),
    "tolerances": _file("t.toml", reading.tolerances, _TOLERANCES),
    "journal": _file("j.jsonl", reading.journal, _JOURNAL, mutate_json_lines),
    # Logs and memory of other tools
    "log": Reader(
        read=reading.read_log, corpus=lambda: list(corpora.small_logs()), large=lambda: [corpora.log()[:6000]]
    ),
    "log-gz": Reader(
        read=reading.from_path(reading.read_memory_file, "x.log.gz"),
        corpus=lambda: [gzip.compress(corpora.small_logs()[0], mtime=0)],
        large=lambda: [gzip.compress(text, mtime=0) for text in (*corpora.small_logs(), corpora.log()[:6000])],
        structures=(mutate_gzip,),
    ),
    "snapshot": _file("snapshot.pickle", reading.read_memory_file, lambda: pickle.dumps(snapshot())),
    "ttnn-report": _file(
        "report.json",
        reading.read_memory_file,
        lambda: json.dumps({"version": 1, "graph": small_report(), "devices": [DEVICE]}).encode(),
        mutate_json,
    ),
    "ttnn-database": _file("db.sqlite", reading.read_memory_file, corpora.database, mutate_sqlite, mutate_in_place),
    "profile": _file("profile.json", reading.read_memory_file, corpora.profile, mutate_json),
    # Configurations and formulas
    "master": Reader(
        read=reading.from_path(reading.import_any, "master.json"), corpus=corpora.masters, structures=(mutate_json,)
    ),
    "master-loader": Reader(
        read=reading.from_path(reading.load_master, "loader.json"), corpus=corpora.masters, structures=(mutate_json,)
    ),
    "ttnn-graph": _file(
        "graph.json", reading.import_any, lambda: json.dumps(call(1, "ttnn::relu")).encode(), mutate_json
    ),
    "ttnn-operation": _file(
        "operation.json", reading.import_any, lambda: json.dumps(operation(values=[1.0, 2.0])).encode(), mutate_json
    ),
    "master-database": Reader(
        read=reading.from_path(reading.master_database, "master.db"),
        corpus=lambda: [corpora.master_database_file()],
        large=lambda: [corpora.store_file()],
        structures=(mutate_sqlite, mutate_in_place),
    ),
    "tt-metal": Reader(
        read=reading.from_path(reading.tt_metal, "tt_metal.json"),
        corpus=corpora.tt_metal_files,
        structures=(mutate_json,),
    ),
    "quarantine": _document(Quarantine, corpora.quarantine),
    "aten-text": _file("aten.txt", reading.import_any, corpora.ATEN),
    "own-lines": _file("x.jsonl", reading.import_any, corpora.own_lines, mutate_json_lines),
    "formulas": Reader(
        read=reading.from_path(reading.formulas, "module_db.json"),
        corpus=lambda: [corpora.formula_file(), corpora.published_formulas()],
        structures=(mutate_json,),
    ),
    "template": Reader(read=reading.template, corpus=lambda: [b"2 * B * S * ${D} ** 2 + ceil(B / 3) * max(S, 4)"]),
    # Tensor files and exported programs
    "safetensors": _tensors("x.safetensors", corpora.safetensors_file, mutate_safetensors),
    "own-tensors": Reader(
        read=reading.from_path(reading.own_tensors, "own.safetensors"),
        corpus=lambda: [corpora.safetensors_file()],
        structures=(mutate_safetensors,),
        needs_torch=True,
    ),
    "npy": _tensors("x.npy", corpora.npy_file, mutate_npy),
    "npz": _tensors("x.npz", corpora.npz_file, mutate_zip),
    "pt": _tensors("x.pt", corpora.pt_file, mutate_zip),
    "tensorbin": _tensors("x.tensorbin", _TENSORBIN.read_bytes),
    "pt2": Reader(
        read=reading.from_path(reading.exported, "x.pt2"),
        corpus=lambda: [corpora.program()],
        structures=(mutate_zip,),
        needs_torch=True,
    ),
    # What a model and its inputs are made from
    "name-map": _file("map.toml", reading.name_map, b'"port.a" = "logits"\nb.c = ["x", "y"]\n"layers.*.q" = "z"\n'),
    "model-config": Reader(
        read=reading.from_path(reading.model_config, "config.json"),
        corpus=lambda: [corpora.MODEL_CONFIG],
        structures=(mutate_json,),
        needs_torch=True,
    ),
    "weight-index": Reader(
        read=reading.from_path(reading.weight_index, "model.safetensors.index.json"),
        corpus=lambda: [b'{"metadata": {}, "weight_map": {"a": "model-1.safetensors", "b": "model-1.safetensors"}}'],
        structures=(mutate_json,),
        needs_torch=True,
    ),
    "image": Reader(
        read=reading.from_path(reading.image, "x.png"),
        corpus=lambda: [corpora.png_file(), *corpora.other_images()],
        structures=(mutate_in_place,),
        needs_torch=True,
    ),
    "audio": Reader(
        read=reading.from_path(reading.audio, "x.wav"),
        corpus=lambda: [corpora.wav_file()],
        structures=(mutate_in_place,),
        needs_torch=True,
    ),
    "python-file": Reader(
        read=reading.from_path(reading.python_file, "net.py"),
        corpus=lambda: [b"from .a import b\n\n\ndef load_model():\n    return b(1, x=[2, 'c'])\n"],
        needs_torch=True,
    ),
    # What one run keeps for another, and what child processes say
    "kept-files": _file("kept.files", reading.kept_files, corpora.file_states, mutate_json),
    "kept-dependencies": _file(
        "dependencies.json",
        reading.kept_dependencies,
        b'{"backend":"b","backend_version":"1","torchstone":"1","torch":"2","environment":{"A":"0"},'
        b'"files":{"net.py":"00"},"weights":{},"inputs":"1"}',
        mutate_json,
    ),
    "worker": Reader(
        read=reading.answer_of_worker,
        corpus=lambda: [b'{"answer":{"a":[1,"x"]},"elapsed_s":0.5,"peak_bytes":1024}', b'{"ready":12,"own_bytes":3}'],
        structures=(mutate_json,),
    ),
}
