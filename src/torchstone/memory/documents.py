"""MemoryTimeline -> the JSON documents that other programs read; the nth operation of one is the nth of the other."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from torchstone.memory.allocator import placements
from torchstone.memory.counterfactual import replay_changes
from torchstone.memory.growth import find_growth
from torchstone.memory.ledger import live_at_peak, live_before
from torchstone.memory.out_of_memory import diagnose, explain_last_failure
from torchstone.memory.study import UNKNOWN, Study, spans_host
from torchstone.memory.usage import LateFree, find_peaks, late_frees, padded_ops, place_of, plain_location
from torchstone.record.memory import NONE, MemoryState, OpCall, OpFlag, ProgramRun, Role
from torchstone.record.memory_findings import (
    Counterfactual,
    Growth,
    LiveSet,
    MemoryComparison,
    OutOfMemory,
    PaddedOp,
    Peak,
    Placement,
)

MEMORY_SCHEMA = "torchstone/memory/1"
OPERATIONS_SCHEMA = "torchstone/memory-operations/1"
REGISTRY_SCHEMA = "torchstone/memory-inputs-registry/1"
COMPARISON_SCHEMA = "torchstone/memory-comparison/1"
SUMMARY_SCHEMA = "torchstone/memory-summary/1"
OP_SCHEMA = "torchstone/memory-op/1"
RUNS_SCHEMA = "torchstone/memory-runs/1"

Document = dict[str, Any]  # JSON of any depth
_BATCH = 5000
_RETAINED = int(OpFlag.RETAINED)  # a plain int: it is compared a million times


def summary_document(study: Study) -> Document:
    """Peaks and counts."""
    timeline = study.timeline
    return {
        "peak": {peak.memory: _peak_document(study, peak) for peak in find_peaks(study)},
        "operations": len(timeline.ops),
        "passes": timeline.passes,
        "graphs": len(timeline.graphs),
        "passes_by_graph": [len(graph.runs) for graph in timeline.graphs],
        "unread_lines": timeline.unread_count,
        "lines": timeline.evidence.lines,
        "source": timeline.source,
        "dialect": timeline.dialect,
        "notes": list(diagnose(timeline)),
    }


def _peak_document(study: Study, peak: Peak) -> Document:
    mib = study.timeline.ticks_per_mib
    return {
        "allocated_mb_per_bank": peak.state.allocated / mib,
        "operation_index": None if peak.op == NONE else peak.op,
        "where": _where(study, peak),
        "banks": peak.state.banks,
        "capacity_mb_per_bank": peak.state.capacity / mib,
        "allocated_mb": peak.state.allocated * peak.state.banks / mib,
        "fragmentation": peak.state.fragmentation,
    }


def _where(study: Study, peak: Peak) -> str:
    if peak.op == NONE:
        return str(study.timeline.marks[peak.mark].moment)
    return f"before {study.name_of(peak.op)}"


def show_document(study: Study) -> Document:
    """The document of `memory show --json`."""
    failure = explain_last_failure(study)
    return {
        "schema": SUMMARY_SCHEMA,
        "summary": summary_document(study),
        "oom": None if failure is None else oom_document(study, failure),
        "padding": [padding_document(study, op) for op in padded_ops(study)],
        **_live_at_peak(study),
        "growth": [growth_document(one) for one in find_growth(study)],
        "changes": [change_document(one) for one in peak_changes(study)],
        "placement": [placement_document(one) for one in placements(study, list(study.readings))],
        "late_frees": [_late_document(study, late) for late in late_frees(study)],
    }


def peak_changes(study: Study) -> tuple[Counterfactual, ...]:
    """Changes that would lower the peaks of memories in use, each replayed."""
    peaks = [peak for peak in find_peaks(study) if peak.state.allocated > 0 and peak.op != NONE]
    return tuple(change for peak in peaks for change in replay_changes(study, peak.memory, peak.op))


def change_document(change: Counterfactual) -> Document:
    """A replayed change; sizes in bytes per bank."""
    return {
        "change": change.change,
        "memory": change.memory,
        "saved_bytes_per_bank": change.saved_bytes,
        "peak_bytes_per_bank": change.peak_bytes,
        "would_fit": change.fits,
    }


def placement_document(one: Placement) -> Document:
    """Whether the addresses of a memory are known, and how that was checked."""
    return {
        "memory": one.memory,
        "policy": one.policy or None,
        "passes": one.passes,
        "verified_passes": one.verified_passes,
        "checked_snapshots": one.checked,
        "other_upload_orders_agree": one.is_ambiguous,
        "reason": one.reason or None,
    }


def growth_document(growth: Growth) -> Document:
    """Growth from pass to pass; sizes in bytes per bank."""
    return {
        "memory": growth.memory,
        "graph": growth.graph,
        "passes": growth.passes,
        "bytes_per_bank_per_pass": growth.bytes_per_pass,
        "parts": [
            {"kind": part.kind, "owner": part.owner or None, "bytes_per_bank_per_pass": part.bytes_per_pass}
            for part in growth.parts
        ],
        "passes_left": growth.passes_left,
    }


def _late_document(study: Study, late: LateFree) -> Document:
    one = late.allocation
    call = study.call(one.last_use)
    return {
        "name": one.owner,
        "memory": one.memory,
        "address": one.address,
        "bytes_per_bank": one.bank_bytes,
        "last_use": one.last_use,
        "last_use_source": plain_location(call.location) if call else None,
        "idle_calls": late.idle_calls,
        "freed": late.is_freed,
    }


def _live_at_peak(study: Study) -> Document:
    """The tensors live at each peak; with those that have no owner they add up to the reading."""
    sets = [live for peak in find_peaks(study) if (live := live_at_peak(study, peak)) is not None]
    return {
        "live_at_peak": [row for live in sets for row in live_rows(study, live)],
        "measured_bytes_per_bank": {live.memory: live.measured_bytes for live in sets},
        "explained_bytes_per_bank": {live.memory: live.explained_bytes for live in sets},
        "unexplained_bytes_per_bank": {live.memory: live.unexplained_bytes for live in sets},
        "doubts": {live.memory: live.doubt for live in sets if live.doubt},
    }


def live_rows(study: Study, live: LiveSet) -> list[Document]:
    """The buffers of a live set."""
    return [
        {
            "memory": live.memory,
            "name": one.owner,
            "kind": one.origin.value,
            "bytes_per_bank": one.bank_bytes,
            "padded_bytes": one.padded_bytes,
            "logical_bytes": one.logical_bytes,
            "tensor": study.timeline.types[one.type].text,
            "value": one.value,
            "operation_index": None if one.op == NONE else one.op,
        }
        for one in live.buffers
    ]


def op_document(study: Study, op: int) -> Document:
    """The document of `memory show --op N --json`: one op, its effect, and the tensors live before it."""
    mib = study.timeline.ticks_per_mib
    sets = live_before(study, op)
    effects = {name: readings.effects[op] for name, readings in study.readings.items()}
    return {
        "schema": OP_SCHEMA,
        "operation_index": op,
        "operation": study.name_of(op),
        "effect": {name: None if change == UNKNOWN else change / mib for name, change in effects.items()},
        "live": [row for live in sets for row in live_rows(study, live)],
        "measured_bytes_per_bank": {live.memory: live.measured_bytes for live in sets},
        "explained_bytes_per_bank": {live.memory: live.explained_bytes for live in sets},
        "unexplained_bytes_per_bank": {live.memory: live.unexplained_bytes for live in sets},
        "doubts": {live.memory: live.doubt for live in sets if live.doubt},
    }


def oom_document(study: Study, failure: OutOfMemory) -> Document:
    """One failure; sizes in bytes per bank."""
    return {
        "verdict": failure.verdict.value,
        "operation_index": None if failure.op == NONE else failure.op,
        "operation": None if failure.op == NONE else study.name_of(failure.op),
        "memory": failure.failure.memory,
        "needed_bytes": failure.needed_bytes,
        "free_bytes": failure.free_bytes,
        "largest_block_bytes": failure.largest_block_bytes,
        "bank_bytes": failure.failure.bank_bytes,
        "buffer_bytes": failure.failure.buffer_bytes,
        "banks": failure.failure.banks,
        "from_snapshot": failure.is_measured,
        "recovered": failure.recovered,
        "line": failure.failure.line,
        "message": failure.failure.message,
        "advice": list(failure.advice),
        "changes": [change_document(change) for change in failure.changes],
    }


def padding_document(study: Study, padded: PaddedOp) -> Document:
    """One op that loses memory to padding; sizes in bytes on a device."""
    return {
        "operation_index": padded.op,
        "operation": study.name_of(padded.op),
        "tensor": study.timeline.types[padded.type].text,
        "logical_bytes": padded.logical_bytes,
        "padded_bytes": padded.padded_bytes,
        "runs": padded.runs,
        "reason": padded.reason,
    }


def memory_json(study: Study, name: str) -> Iterator[bytes]:
    """`<name>_memory.json`, in pieces."""
    head = {"schema": MEMORY_SCHEMA, "name": name, "summary": summary_document(study)}
    return _stream(head, "operations", _memory_rows(study))


def _memory_rows(study: Study) -> Iterator[bytes]:
    readings = study.readings
    mib = study.timeline.ticks_per_mib
    snapshots = study.timeline.ops.snapshots.values()
    known: dict[int, bytes] = {}
    effects_text: dict[tuple[int, ...], bytes] = {}
    effects = [one.effects for one in readings.values()]
    with_host = spans_host(study.timeline)
    for op, snapshot in enumerate(snapshots):
        if snapshot not in known:
            states = {name: _state_document(one.state(snapshot), mib) for name, one in readings.items()}
            known[snapshot] = msgspec.json.encode(states)
        changes = tuple(column[op] for column in effects)
        if changes not in effects_text:
            values = (None if change == UNKNOWN else change / mib for change in changes)
            effects_text[changes] = msgspec.json.encode(dict(zip(readings, values, strict=True)))
        host = b',"effect_includes_host":true' if with_host[op] else b""
        yield b'{"index":%d,"memory":%b,"effect":%b%b}' % (op, known[snapshot], effects_text[changes], host)


def _state_document(state: MemoryState | None, mib: int) -> Document | None:
    if state is None:
        return None
    return {
        "allocated_mb_per_bank": state.allocated / mib,
        "free_mb_per_bank": state.free / mib,
        "largest_free_mb_per_bank": state.largest_free / mib,
        "total_mb_per_bank": state.capacity / mib,
        "banks": state.banks,
    }


def operations_json(study: Study, name: str) -> Iterator[bytes]:
    """`<name>_operations.json`, in pieces."""
    return _stream({"schema": OPERATIONS_SCHEMA, "name": name}, "operations", _operation_rows(study))


def _operation_rows(study: Study) -> Iterator[bytes]:
    timeline = study.timeline
    op_types, lines = timeline.ops.op_types.values(), timeline.ops.lines.values()
    call_text: dict[tuple[int, int], bytes] = {}
    run_text: dict[int, bytes] = {}
    for op, (call, op_type, run) in enumerate(zip(study.calls, op_types, study.programs, strict=True)):
        if (call, op_type) not in call_text:
            kind = None if op_type == NONE else timeline.op_types[op_type]
            text = msgspec.json.encode(_call_document(study, timeline.calls[call] if call != NONE else None, kind))
            call_text[call, op_type] = text[1:-1]
        if run not in run_text:
            run_text[run] = msgspec.json.encode(_run_document(timeline.programs[run]))[1:-1]
        retained = b"true" if study.flags[op] & _RETAINED else b"false"
        parts = (op, call_text[call, op_type], run_text[run], lines[op], retained)
        yield b'{"index":%d,%b,%b,"line":%d,"retained":%b}' % parts


def _call_document(study: Study, call: OpCall | None, op_type: str | None) -> Document:
    if call is None:
        return {"name": None, "op_type": op_type, "results": [], "inputs": [], "location": None}
    types = study.timeline.types
    place = place_of(call.location)
    return {
        "name": call.name or None,
        "op_type": op_type,
        "results": call.results,
        "inputs": call.operands,
        "location": plain_location(call.location),
        "result_types": [types[row].text for row in call.result_types],
        "input_types": [types[row].text for row in call.operand_types],
        "module": place.path if place else None,
    }


def _run_document(run: ProgramRun) -> Document:
    return {
        "program": run.name,
        "pass": None if run.pass_index == NONE else run.pass_index,
        "graph": None if run.graph == NONE else run.graph,
        "const_eval": run.role is Role.CONST_EVAL,
    }


def registry_document(study: Study, name: str) -> Document:
    """`<name>_inputs_registry.json`: the arguments of every graph that ran, then of dumps that no graph belongs to."""
    timeline = study.timeline
    graph_of = {graph.module: number for number, graph in enumerate(timeline.graphs) if graph.module != NONE}
    names = {timeline.modules[module].name for module in graph_of}
    shown = [
        (graph_of.get(row), module)
        for row, module in enumerate(timeline.modules)
        if row in graph_of or module.name not in names
    ]
    rows = []
    for graph, module in shown:
        for argument in module.arguments:
            tensor = timeline.types[argument.type]
            rows.append({
                "graph": graph,
                "module": module.name,
                "value": argument.value,
                "name": argument.name,
                "kind": argument.kind.value,
                "shape": tensor.shape,
                "local_shape": argument.local_shape,
                "dtype": tensor.dtype,
                "bytes": argument.size_bytes,
                "memory": tensor.buffer.memory if tensor.buffer else None,
                "kv_cache": argument.is_kv_cache,
            })  # fmt: skip
    return {"schema": REGISTRY_SCHEMA, "name": name, "arguments": rows}


def comparison_document(found: MemoryComparison, first: Study, second: Study) -> Document:
    """The document of `memory compare --json`; effects in MiB per bank."""
    mib = first.timeline.ticks_per_mib

    def size(ticks: int | None) -> float | None:
        return None if ticks is None else ticks / mib

    return {
        "schema": COMPARISON_SCHEMA,
        "first": first.timeline.source,
        "second": second.timeline.source,
        "memory": found.memory,
        "peak": {
            (mine or other).memory: {  # type: ignore[union-attr] # one of them is there
                "first_mb_per_bank": size(mine.state.allocated if mine else None),
                "second_mb_per_bank": size(other.state.allocated if other else None),
            }
            for mine, other in found.peaks
        },
        "same_operations": found.same_ops,
        "removed_operations": found.removed_ops,
        "added_operations": found.added_ops,
        "first_difference": None
        if found.first_difference is None
        else [None if op == NONE else op for op in found.first_difference],
        "differences": [
            {
                "change": row.change.value,
                "operation": row.text,
                "first_index": None if row.first_op == NONE else row.first_op,
                "second_index": None if row.second_op == NONE else row.second_op,
                "first_effect_mb_per_bank": size(row.first_effect_ticks),
                "second_effect_mb_per_bank": size(row.second_effect_ticks),
            }
            for row in found.differences
        ],
    }


def runs_document(
    runs: Sequence[Study], comparisons: Sequence[MemoryComparison] = (), names: Sequence[tuple[str, str]] = ()
) -> Document:
    """Several runs side by side: peaks, failures, and how their ops differ from those of the first."""
    rows = []
    for number, study in enumerate(runs):
        failure = explain_last_failure(study)
        row = {
            "source": study.timeline.source,
            "peak": {peak.memory: _peak_document(study, peak) for peak in find_peaks(study)},
            "operations": len(study.timeline.ops),
            "passes": study.timeline.passes,
            "oom": None if failure is None else failure.verdict.value,
        }
        if names:
            row |= {"name": names[number][0], "written": names[number][1]}
        if comparisons and number:
            found = comparisons[number - 1]
            row |= {"removed_operations": found.removed_ops, "added_operations": found.added_ops}
        rows.append(row)
    return {"schema": RUNS_SCHEMA, "runs": rows}


def _stream(head: Document, key: str, rows: Iterator[bytes]) -> Iterator[bytes]:
    yield msgspec.json.encode(head)[:-1] + b',"' + key.encode() + b'":['
    batch: list[bytes] = []
    separator = b"\n"
    for row in rows:
        batch.append(row)
        if len(batch) == _BATCH:
            yield separator + b",\n".join(batch)
            batch, separator = [], b",\n"
    if batch:
        yield separator + b",\n".join(batch)
    yield b"\n]}\n"
