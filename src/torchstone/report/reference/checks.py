"""The checks behind the other five boxes: each file is read back and compared with the run and the model."""

import csv
import io
import json
import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

from torchstone.errors import UnreadableFileError
from torchstone.record.base import Record
from torchstone.record.reference import DELIVERABLES, Box, Check
from torchstone.record.trace import Trace
from torchstone.report.reference.graph_files import GraphFiles
from torchstone.units import many

_DOT_BOX = re.compile(rb"^\s*(\w+) \[label=", re.MULTILINE)
_DOT_EDGE = re.compile(rb"^\s*(\w+) -> (\w+);", re.MULTILINE)
_SHOWN = 3
_AS_RUN = ("True", "weights")


class ModelFacts(Record, frozen=True, kw_only=True):
    """What a live model says of itself, asked without any capture."""

    parameters: int  # elements, each distinct tensor once
    parameter_bytes: int
    held: dict[str, tuple[str, str]]  # path -> shape as 2x3, element type; parameters and buffers, tied ones too
    modules: tuple[str, ...]  # paths
    function_calls: int | None  # of torch functions; None: the model fails while its function calls are recorded


def document_boxes(folder: Path, trace: Trace, facts: ModelFacts, graphs: Sequence[GraphFiles]) -> tuple[Box, ...]:
    """The five boxes; a file that cannot be read fails its checks."""
    return (
        Box(
            name="graph",
            title=DELIVERABLES["graph"],
            files=tuple(name for one in graphs for name in one.files),
            checks=tuple(check for one in graphs for check in _graph_checks(folder, one)),
        ),
        Box(
            name="summary",
            title=DELIVERABLES["summary"],
            files=("summary.txt", "summary.json", "summary.csv", "memory.csv"),
            checks=_guarded(
                "summary.json, summary.csv and memory.csv can be read", lambda: _summary_checks(folder, facts)
            ),
        ),
        Box(
            name="operators",
            title=DELIVERABLES["operators"],
            files=("operators.json", "operators.csv", "functions.csv"),
            checks=_guarded("the three files can be read", lambda: _operator_checks(folder, trace, facts)),
        ),
        Box(
            name="shapes",
            title=DELIVERABLES["shapes"],
            files=("tensors.csv", "hierarchy.txt", "unique_modules.json", "trace.json"),
            checks=_guarded("tensors.csv and hierarchy.txt can be read", lambda: _shape_checks(folder, trace, facts)),
        ),
        Box(
            name="parameters",
            title=DELIVERABLES["parameters"],
            files=("parameters.csv",),
            checks=_guarded("parameters.csv can be read", lambda: _parameter_checks(folder, facts)),
        ),
    )


def _guarded(title: str, checks: Callable[[], tuple[Check, ...]]) -> tuple[Check, ...]:
    try:
        return checks()
    except (OSError, ValueError, KeyError, TypeError, UnreadableFileError) as error:
        return (Check(title=title, passed=False, detail=f"{type(error).__name__}: {error}"),)


def _graph_checks(folder: Path, made: GraphFiles) -> tuple[Check, ...]:
    contents = {name: (folder / name).read_bytes() if (folder / name).is_file() else b"" for name in made.files}
    dot, pdf = (next(name for name in contents if name.endswith(kind)) for kind in (".dot", ".pdf"))
    pictures = {name: content for name, content in contents.items() if name.endswith(".svg")}
    return (
        _dot_check(dot, contents[dot], made),
        _pdf_check(pdf, contents[pdf], pages=len(made.pages.pages)),
        _svg_check(pictures, made),
        _coverage_check(dot.removesuffix(".dot"), made),
    )


def _dot_check(name: str, content: bytes, made: GraphFiles) -> Check:
    boxes, edges = len(made.graph.boxes), len(made.graph.edges)
    found = (len(set(_DOT_BOX.findall(content))), len(set(_DOT_EDGE.findall(content))))
    passed = found == (boxes, edges) and boxes > 0
    return Check(title=f"{name} has every box and edge", passed=passed, detail=f"{found[0]} boxes")


def _pdf_check(name: str, content: bytes, *, pages: int) -> Check:
    found = len(re.findall(rb"/Type /Page\b", content))
    whole = content.startswith(b"%PDF-") and b"%%EOF" in content[-32:] and found == pages > 0
    return Check(title=f"{name} is a whole PDF", passed=whole, detail=f"{many(found, 'page')}, {len(content):,} bytes")


def _svg_check(pictures: dict[str, bytes], made: GraphFiles) -> Check:
    """Each picture shows every label of its page."""
    shown = wanted = 0
    for content, page in zip(pictures.values(), made.pages.pages, strict=True):
        texts = _svg_texts(content)
        labels = {_start(box.label) for box in page.graph.boxes}
        wanted += len(labels)
        shown += sum(any(label in text for text in texts) for label in labels)
    first = next(iter(pictures))
    title = f"{first} shows every label" if len(pictures) == 1 else f"{first} and its other pages show every label"
    return Check(title=title, passed=shown == wanted > 0, detail=f"{shown} of {wanted} labels")


def _coverage_check(name: str, made: GraphFiles) -> Check:
    """Each box is drawn on one page, in a module that is drawn alike, or in one that is named as left out."""
    pages = made.pages
    drawn = sum(len(page.shown) for page in pages.pages)
    detail = f"{drawn} drawn, {pages.alike} in modules with the same structure"
    if pages.left_out:
        detail += f"; {pages.hidden} in {many(len(pages.left_out), 'module')} that only the graph in report.html shows"
    return Check(
        title=f"the pages of {name} account for every box",
        passed=drawn + pages.alike + pages.hidden == len(made.graph.boxes),
        detail=detail,
    )


def _start(label: str) -> str:
    return label[:40]


def _svg_texts(content: bytes) -> list[str]:
    try:
        root = Xml.fromstring(content)  # noqa: S314 - our own file
    except Xml.ParseError:
        return []
    return ["".join(element.itertext()) for element in root.iter() if element.tag.endswith("}text")]


def _summary_checks(folder: Path, facts: ModelFacts) -> tuple[Check, ...]:
    document = _json(folder / "summary.json")
    rows = _csv(folder / "summary.csv")
    counted = document["totals"]["parameters"]
    own = sum(row["own_multiply_adds"] for row in document["modules"])
    paths = {row["path"] for row in rows}
    weights = [row["weights_bytes"] for row in document["memory"] if row["captured"]]
    in_csv = [int(row["bytes"]) for row in _csv(folder / "memory.csv") if (row["captured"], row["part"]) == _AS_RUN]
    return (
        Check(
            title="the parameters are those that the model counts itself",
            passed=counted == facts.parameters,
            detail=f"{counted:,} and {facts.parameters:,}",
        ),
        Check(
            title="the weights are as large in memory as the model's own, in summary.json and memory.csv",
            passed=weights == in_csv == ([facts.parameter_bytes] if weights else []),
            detail=f"{facts.parameter_bytes:,} bytes",
        ),
        Check(
            title="every module has its line in summary.json and summary.csv",
            passed=paths == set(facts.modules) == {row["path"] for row in document["modules"]},
            detail=_difference(facts.modules, paths),
        ),
        Check(
            title="the multiply-adds of the modules add up to the total",
            passed=own == document["multiply_adds"],
            detail=f"{own:,} and {document['multiply_adds']:,}",
        ),
        Check(
            title="every op has a price",
            passed=not document["unpriced"],
            detail=", ".join(document["unpriced"]) or "none is missing",
        ),
    )


def _operator_checks(folder: Path, trace: Trace, facts: ModelFacts) -> tuple[Check, ...]:
    document = _json(folder / "operators.json")
    rows = _csv(folder / "operators.csv")
    listed = sum(row["calls"] for row in document["operators"])
    in_csv = sum(int(row["calls"]) for row in rows)
    modules = sum(row["modules"] for row in document["module_types"])
    functions = sum(row["calls"] for row in document["functions"])
    functions_in_csv = sum(int(row["calls"]) for row in _csv(folder / "functions.csv"))
    return (
        Check(
            title="the calls add up to the op calls of the run, in both files",
            passed=listed == in_csv == len(trace.ops) > 0,
            detail=f"{listed:,}, {in_csv:,} and {len(trace.ops):,}",
        ),
        Check(
            title="the calls of torch functions add up to those that a run made, in both files",
            passed=functions == functions_in_csv == facts.function_calls,
            detail="the model fails while its function calls are recorded"
            if facts.function_calls is None
            else f"{functions:,}, {functions_in_csv:,} and {facts.function_calls:,}",
        ),
        Check(
            title="the module types add up to all modules",
            passed=modules == len(trace.modules),
            detail=f"{modules:,} and {len(trace.modules):,}",
        ),
    )


def _shape_checks(folder: Path, trace: Trace, facts: ModelFacts) -> tuple[Check, ...]:
    rows = _csv(folder / "tensors.csv")
    lines = (folder / "hierarchy.txt").read_text(encoding="utf-8").splitlines()[1:]
    origins = [row for row in rows if row["kind"] == "unknown"]
    return (
        Check(
            title="every tensor of the run has its line in tensors.csv",
            passed=len(rows) == len(trace.tensors) > 0,
            detail=f"{len(rows):,} and {len(trace.tensors):,}",
        ),
        Check(
            title="it is known where every tensor comes from",
            passed=not origins,
            detail=f"{many(len(origins), 'tensor')} of unknown origin",
        ),
        Check(
            title="hierarchy.txt has a line for every module of the model",
            passed=len(lines) == len(facts.modules),
            detail=f"{len(lines):,} and {len(facts.modules):,}",
        ),
    )


def _parameter_checks(folder: Path, facts: ModelFacts) -> tuple[Check, ...]:
    found = {row["name"]: (row["shape"], row["dtype"]) for row in _csv(folder / "parameters.csv")}
    wrong = [name for name in found if name in facts.held and found[name] != facts.held[name]]
    return (
        Check(
            title="every parameter and buffer of the model has its line",
            passed=set(found) == set(facts.held),
            detail=_difference(facts.held, found),
        ),
        Check(
            title="the shapes and element types are those of the model",
            passed=not wrong,
            detail=", ".join(wrong[:_SHOWN]) or f"{len(found):,} compared",
        ),
    )


def _difference(wanted: Collection[str], found: Collection[str]) -> str:
    missing = [name or "(root)" for name in wanted if name not in found]
    return (
        f"{len(missing)} missing: {', '.join(missing[:_SHOWN])}" if missing else f"{len(wanted):,} of {len(wanted):,}"
    )


def _json(path: Path) -> Any:
    return json.loads(path.read_bytes())


def _csv(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))
