"""A folder of results for other viewers: a predicted timeline for Perfetto, and a graph for Model Explorer."""

from collections.abc import Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from typing import TypeVar

import msgspec

from torchstone.errors import InputError
from torchstone.record.base import Document
from torchstone.record.check import FAILED_STATUSES, CheckResult
from torchstone.record.codec import load, write_atomically
from torchstone.record.cost import CostTable
from torchstone.record.trace import Trace
from torchstone.record.value import show_value

PERFETTO_FILE = "timeline.perfetto.json"
GRAPH_FILE = "model_explorer.json"
FLOPS_FILE = "model_explorer_flops.json"
_MODULES, _OPS = 1, 2  # tracks of the timeline
_FAILED_COLOR = "#f4c7c3"
D = TypeVar("D", bound=Document)


def write_exports(folder: Path, formats: tuple[str, ...]) -> list[Path]:
    """Write the files of other viewers into a folder of results; gives their paths.

    Raises InputError where the folder lacks what a format needs, and what `load` raises for a damaged document.
    """
    trace = _document(folder, "trace.json", Trace, "torchstone inspect MODEL --dir")
    files: dict[str, object] = {}
    for name in dict.fromkeys(formats):
        if name == "perfetto":
            cost = _document(folder, "cost.json", CostTable, "torchstone cost MODEL --hardware H --dir")
            files[PERFETTO_FILE] = timeline(trace, cost)
        else:
            files |= graph_files(trace, _optional(folder, "cost.json", CostTable), _check_of(folder, trace))
    for name, content in files.items():
        write_atomically(folder / name, msgspec.json.encode(content))
    return [folder / name for name in files]


def _document(folder: Path, name: str, kind: type[D], command: str) -> D:
    if not (folder / name).is_file():
        msg = f"{folder} has no {name}; `{command} {folder}` writes it"
        raise InputError(msg)
    return load(folder / name, kind)


def _optional(folder: Path, name: str, kind: type[D]) -> D | None:
    return load(folder / name, kind) if (folder / name).is_file() else None


def _is_of(cost: CostTable, trace: Trace) -> bool:
    """Whether a cost has the modules, signatures and op calls of a trace."""
    same_modules = [one.path for one in cost.modules] == [one.path for one in trace.modules]
    same_ops = len(cost.signatures) == len(trace.ops.signatures) and cost.totals.op_calls == trace.size.op
    return same_modules and same_ops


def _check_of(folder: Path, trace: Trace) -> CheckResult | None:
    """The check in the folder, if it is one of the same model."""
    found = _optional(folder, "check.json", CheckResult)
    return found if found is not None and found.model == trace.provenance.model else None


# --- Perfetto and chrome://tracing: the trace event format ---


def timeline(trace: Trace, cost: CostTable) -> dict[str, object]:
    """The ops one after the other, each as long as the roofline says it takes at least, with the modules above.

    An op without a price has no length, and says so. The memory is the liveness of the trace.
    """
    predicted = cost.prediction
    if predicted is None:
        msg = "cost.json has no predicted times; run `torchstone cost` with --hardware"
        raise InputError(msg)
    if not _is_of(cost, trace):
        msg = "cost.json and trace.json are of two captures; run `torchstone cost` on this folder again"
        raise InputError(msg)
    times = [one.seconds if one is not None else 0.0 for one in predicted.signatures]
    ends_us = [0.0, *accumulate(times[signature] * 1e6 for signature in trace.ops.signature_of)]
    title = f"{trace.provenance.model} on {predicted.hardware.name}, predicted: no op takes less"
    names = {0: ("process_name", title), _MODULES: ("thread_name", "modules"), _OPS: ("thread_name", "ops")}
    events: list[dict[str, object]] = [
        {"ph": "M", "pid": 1, "tid": track, "name": kind, "args": {"name": name}}
        for track, (kind, name) in names.items()
    ]
    events += _module_events(trace, ends_us)
    events += _op_events(trace, cost, ends_us)
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _module_events(trace: Trace, ends_us: list[float]) -> Iterator[dict[str, object]]:
    calls = trace.module_calls
    for module, first, end in zip(calls.modules, calls.first_ops, calls.end_ops, strict=True):
        about = trace.modules[module]
        yield {
            "ph": "X", "pid": 1, "tid": _MODULES, "ts": ends_us[first], "dur": ends_us[end] - ends_us[first],
            "name": about.path or "(the model)", "args": {"class": about.class_name},
        }  # fmt: skip


def _op_events(trace: Trace, cost: CostTable, ends_us: list[float]) -> Iterator[dict[str, object]]:
    assert cost.prediction is not None  # noqa: S101 - `timeline` looked
    for index, signature in enumerate(trace.ops.signature_of):
        price, predicted = cost.signatures[signature], cost.prediction.signatures[signature]
        op = trace.ops.signatures[signature]
        given = ", ".join(show_value(argument.value) for argument in op.arguments)
        args: dict[str, object] = {"arguments": given, "result": show_value(op.output), "kind": price.kind.value}
        if predicted is None:
            args["price"] = price.reason or "none"
        else:
            args |= {"FLOPs": price.flops, "bytes read": price.bytes_read, "bytes written": price.bytes_written,
                     "waits for": predicted.bound.value}  # fmt: skip
        start = ends_us[index]
        yield {"ph": "X", "pid": 1, "tid": _OPS, "ts": start, "dur": ends_us[index + 1] - start, "name": op.op,
               "args": args}  # fmt: skip
        if index < len(cost.timeline_bytes):
            yield {"ph": "C", "pid": 1, "ts": start, "name": "live memory (bytes)",
                   "args": {"bytes": cost.timeline_bytes[index]}}  # fmt: skip


# --- Model Explorer: nodes with namespaces, and data to lay over them ---


def graph_files(trace: Trace, cost: CostTable | None, check: CheckResult | None) -> dict[str, object]:
    """The graph of ops, in the namespaces of their modules; with a cost, the FLOPs of each node in another file."""
    name = trace.provenance.model
    failed = _failed_paths(check)
    nodes = [*_external_nodes(trace), *_op_nodes(trace, failed)]
    graph = {"id": name, "nodes": nodes, "groupNodeAttributes": _module_attributes(trace, check)}
    files: dict[str, object] = {GRAPH_FILE: [{"label": name, "graphs": [graph]}]}
    if cost is not None and _is_of(cost, trace):
        results = {
            f"op{index}": {"value": cost.signatures[signature].flops}
            for index, signature in enumerate(trace.ops.signature_of)
            if not cost.signatures[signature].reason
        }
        gradient = [{"stop": 0, "bgColor": "white"}, {"stop": 1, "bgColor": "#e8710a"}]
        files[FLOPS_FILE] = {name: {"name": "FLOPs", "results": results, "gradient": gradient}}
    return files


def _failed_paths(check: CheckResult | None) -> frozenset[str]:
    modules = check.modules if check is not None else ()
    return frozenset(path for one in modules if one.status in FAILED_STATUSES for path in one.occurrences)


def _namespace(path: str) -> str:
    return path.replace(".", "/")


def _external_nodes(trace: Trace) -> Iterator[dict[str, object]]:
    """Inputs, and the parameters that ops read; each stands beside the module that owns it."""
    read = {number for inputs in trace.ops.inputs for number in inputs}
    for one in trace.tensors.external:
        if one.tensor in read or one.kind == "input":
            owner = one.name.rpartition(".")[0] if one.kind in ("parameter", "buffer") else ""
            yield {
                "id": f"tensor{one.tensor}", "label": one.name.rpartition(".")[2] or one.kind,
                "namespace": _namespace(owner), "attrs": _attributes({"kind": one.kind, "name": one.name}),
                "outputsMetadata": [_metadata(0, str(trace.tensors[one.tensor].spec))],
            }  # fmt: skip


def _op_nodes(trace: Trace, failed: frozenset[str]) -> Iterator[dict[str, object]]:
    made_by: dict[int, tuple[str, int]] = {one.tensor: (f"tensor{one.tensor}", 0) for one in trace.tensors.external}
    for call in trace.ops:
        node = f"op{call.index}"
        path = trace.module_path_of(call)
        given = {one.name: show_value(one.value) for one in call.signature.arguments}
        found: dict[str, object] = {
            "id": node, "label": call.op.removeprefix("aten."), "namespace": _namespace(path),
            "attrs": _attributes({"op": call.op, "module": path, **given}),
            "incomingEdges": [
                {"sourceNodeId": made_by[one][0], "sourceNodeOutputId": str(made_by[one][1]),
                 "targetNodeInputId": str(place)}
                for place, one in enumerate(call.inputs) if one in made_by
            ],
            "outputsMetadata": [_metadata(place, str(spec)) for place, spec in enumerate(call.signature.output_specs)],
        }  # fmt: skip
        if path in failed:
            found["style"] = {"backgroundColor": _FAILED_COLOR}
        yield found
        made_by |= {one: (node, place) for place, one in enumerate(call.outputs)}
        made_by |= dict.fromkeys(call.writes, (node, 0))


def _module_attributes(trace: Trace, check: CheckResult | None) -> dict[str, dict[str, str]]:
    """What a module's box shows: its class, and how it ended on the backend."""
    statuses: Mapping[str, str] = {
        path: f"{one.status}: {one.reason}" if one.reason else str(one.status)
        for one in (check.modules if check is not None else ())
        for path in one.occurrences
    }
    found = {}
    for module in trace.modules:
        shown = {"class": module.class_name}
        if module.path in statuses and check is not None:
            shown[check.backend] = statuses[module.path]
        found[_namespace(module.path)] = shown
    return found


def _attributes(pairs: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in pairs.items() if value]


def _metadata(place: int, shape: str) -> dict[str, object]:
    return {"id": str(place), "attrs": [{"key": "shape", "value": shape}]}
