"""Records that contradict themselves are refused when they are decoded, so that no stage meets them."""

import copy
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.attacks import corpora
from tests.record.test_repeats import layers
from tests.report.test_checklist_text import checklist
from tests.report.traces import transformer
from torchstone.cost.price_trace import price
from torchstone.errors import UnreadableFileError
from torchstone.record.base import Document
from torchstone.record.codec import decode, encode
from torchstone.record.memory import IntColumn, MemoryTimeline, MemoryType
from torchstone.record.trace import Trace
from torchstone.record.unique import UniqueModules, unique_modules

Change = Callable[[dict[str, Any]], object]


def refused(document: dict[str, Any], record: Any) -> str:
    with pytest.raises(UnreadableFileError, match=r"^x\.json is not a (consistent|readable)") as raised:
        decode(msgspec.json.encode(document), record, origin="x.json")
    return str(raised.value)


def changed(record: Any, change: Change) -> dict[str, Any]:
    document = copy.deepcopy(msgspec.json.decode(encode(record)))
    change(document)
    return document


TRACE_CHANGES: dict[str, Change] = {
    "a column is shorter": lambda t: t["ops"]["inputs"].pop(),
    "a column is longer": lambda t: t["module_calls"]["parents"].append(0),
    "storages are missing": lambda t: t["tensors"].pop("storage_of"),
    "a tensor that is not there": lambda t: t["ops"]["inputs"][0].__setitem__(0, 10**9),
    "a negative tensor": lambda t: t["ops"]["outputs"][0].__setitem__(0, -1),
    "a signature that is not there": lambda t: t["ops"]["signature_of"].__setitem__(0, 10**6),
    "a spec that is not there": lambda t: t["tensors"]["spec_of"].__setitem__(0, -3),
    "a module call that is not there": lambda t: t["ops"]["module_calls"].__setitem__(0, 10**6),
    "a module that is not there": lambda t: t["module_calls"]["modules"].__setitem__(0, 10**6),
    "a call that ends before it begins": lambda t: t["module_calls"]["end_ops"].__setitem__(1, -1),
    "a call inside a later one": lambda t: t["module_calls"]["parents"].__setitem__(1, 5),
    "a module inside a later one": lambda t: t["modules"][1].__setitem__("parent", 3),
    "a module inside itself": lambda t: t["modules"][1].__setitem__("parent", 1),
    "two modules of one path": lambda t: t["modules"][2].__setitem__("path", t["modules"][1]["path"]),
    "no modules": lambda t: t.__setitem__("modules", []),
    "a parameter that is not there": lambda t: next(m for m in t["modules"] if m.get("parameters"))["parameters"][
        0
    ].__setitem__("tensor", 10**7),
    "a write of a call that is not there": lambda t: t["ops"].__setitem__("writes", {"99999": [0]}),
    "a write to a tensor that the call is not given": lambda t: t["ops"].__setitem__(
        "writes", {"0": [len(t["tensors"]["spec_of"]) - 1]}
    ),
    "more forward calls than calls": lambda t: t["ops"].__setitem__("forward_calls", 10**6),
    "an input too many for its signature": lambda t: t["ops"]["inputs"][0].append(0),
    "a negative size": lambda t: t["tensors"]["specs"][0].__setitem__("shape", [-5]),
    "a size beyond 64 bits": lambda t: t["tensors"]["specs"][0].__setitem__("shape", [1 << 70]),
}


@pytest.mark.parametrize("name", TRACE_CHANGES)
def test_a_trace_that_contradicts_itself_is_refused(name: str) -> None:
    refused(changed(transformer(2), TRACE_CHANGES[name]), Trace)


REPEAT_CHANGES: dict[str, Change] = {
    "copies beyond the limit": lambda t: t["repeats"][0].__setitem__("copies", 10**12),
    "an external tensor that is not named": lambda t: t["repeats"][0].__setitem__("external", []),
    "an external tensor that is not there": lambda t: t["repeats"][0]["external"][0].__setitem__(1, 10**6),
    "steps that lead beyond the tensors": lambda t: t["repeats"][0]["external"][0].__setitem__(2, 10**6),
    "modules that are not there": lambda t: t["repeats"][0].__setitem__("module_shift", 10**6),
    "steps that lead beyond the modules": lambda t: t["repeats"][0].__setitem__("module_step", 10**6),
    "a call that reads what a later copy makes": lambda t: t["ops"]["inputs"][1].__setitem__(0, 11),
    "a call that makes what a later copy makes": lambda t: t["ops"]["outputs"][1].__setitem__(0, 11),
    "a parent that is not there": lambda t: t["repeats"][0].__setitem__("parent", 10**6),
    "rows that were not recorded": lambda t: t["repeats"][0].__setitem__("at", [500, 500, 500, 500]),
    "an op of a copied call": lambda t: t["ops"]["module_calls"].__setitem__(2, 3),
}


@pytest.mark.parametrize("name", REPEAT_CHANGES)
def test_repeats_that_contradict_the_tables_are_refused(name: str) -> None:
    refused(changed(layers(), REPEAT_CHANGES[name]), Trace)


def test_what_is_accepted_can_be_priced() -> None:
    trace = transformer(3)

    assert price(decode(encode(trace), Trace, origin="x.json")).totals == price(trace).totals


def timeline(**columns: IntColumn) -> MemoryTimeline:
    return MemoryTimeline(dialect="x", memories=(MemoryType(name="DRAM", **columns),))


EIGHT = IntColumn.of([1], width_bytes=8)


@pytest.mark.parametrize(
    "columns",
    [
        {"banks": IntColumn.of([1])},
        {"allocated": EIGHT},
        {"banks": IntColumn(width_bytes=3, data=b"123")},
        {"banks": IntColumn(width_bytes=0, data=b"123")},
        {"allocated": IntColumn(width_bytes=8, data=b"1234567")},
        {"state_of": IntColumn.of([0])},
        {"state_of": IntColumn.of([-2])},
    ],
)
def test_a_timeline_with_unequal_columns_is_refused(columns: dict[str, IntColumn]) -> None:
    refused(msgspec.json.decode(encode(timeline(**columns))), MemoryTimeline)


def test_unique_modules_have_parents_that_are_there() -> None:
    whole = unique_modules(transformer(1))

    assert decode(encode(whole), UniqueModules, origin="x.json") == whole
    assert "'nobody', which is not there" in refused(
        changed(whole, lambda d: d["modules"][1].__setitem__("parent", "nobody")), UniqueModules
    )
    refused(changed(whole, lambda d: d["modules"][0]["input_dtypes"].append("float32")), UniqueModules)


@pytest.mark.parametrize(
    ("record", "place"),
    [
        (corpora.priced, ("totals", "flops")),
        (corpora.priced, ("traffic", "fused", "read_bytes", "weights")),
        (corpora.priced, ("timeline_bytes", 0)),
        (corpora.check_result, ("totals", "op_calls")),
        (corpora.golden, ("tensors", 0, "shape", 0)),
        (corpora.golden, ("weights", "size_bytes")),
        (corpora.plan, ("vectors", 0, "calls")),
        (corpora.op_log, ("sources", 0, "configurations", 0, "occurrences", 0, "count")),
        (lambda: unique_modules(layers()), ("modules", 0, "parameters")),
        (lambda: corpora.timeline(corpora.small_logs()[0]), ("evidence", "op_lines")),
    ],
)
def test_a_count_below_zero_is_refused(record: Callable[[], Document], place: tuple[str | int, ...]) -> None:
    made = record()
    document: Any = json.loads(encode(made))
    holder = document
    for key in place[:-1]:
        holder = holder[key]
    assert holder[place[-1]] >= 0
    holder[place[-1]] = -1

    with pytest.raises(UnreadableFileError, match=r"Expected `int` >= 0"):
        decode(json.dumps(document).encode(), type(made), origin="x.json")


@pytest.mark.parametrize("file", ["../../outside", "/outside", "a/../../outside"])
def test_golden_data_and_checklists_name_no_file_outside_of_their_folder(file: str) -> None:
    golden, boxes = corpora.golden(), checklist()
    outside = [
        replace(golden, weights=replace(golden.weights, file=file)),
        replace(boxes, seals={file: "00"}),
        replace(boxes, boxes=(replace(boxes.boxes[0], files=(file,)),)),
    ]
    for one in outside:
        with pytest.raises(UnreadableFileError, match="which is not a file below the folder of results"):
            decode(encode(one), type(one), origin="x.json")
