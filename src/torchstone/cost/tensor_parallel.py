"""A trace split over several devices, by following the data.

A matmul with a weight that reads whole data is split by columns and gives split data; one that reads split data is
split by rows, and its partial sums are added up over all devices (all-reduce). Everything between works on split data.
Sorting needs the whole: split data is gathered first, as is the final result. Embeddings and norms are not split.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from torchstone.cost.storages import find_storages
from torchstone.record.cost import Category, CostTable, Kind, SignatureCost
from torchstone.record.hardware import Collective, Hardware, Prediction, TensorParallel
from torchstone.record.trace import Trace

_ALL_REDUCE = "all-reduce"
_ALL_GATHER = "all-gather"
_NEEDS_ALL = frozenset((Kind.SORTING,))


@dataclass(slots=True, kw_only=True)
class _Split:
    """What is known while the trace is followed."""

    split: set[int] = field(default_factory=set)  # storages of which each device holds a part
    split_weights: set[int] = field(default_factory=set)
    flops: float = 0.0
    moved: float = 0.0
    seconds: float = 0.0
    exchanges: dict[tuple[str, str, str, int], int] = field(default_factory=dict)

    def exchange(self, kind: str, op: str, module: str, size: int) -> None:
        key = (kind, op, module, size)
        self.exchanges[key] = self.exchanges.get(key, 0) + 1


def split_over(trace: Trace, table: CostTable, devices: int, prediction: Prediction | None = None) -> TensorParallel:
    """What each of several devices does, holds and sends."""
    storages = find_storages(trace)
    weights = {
        storage for storage, category in enumerate(storages.categories) if category is Category.WEIGHTS
    } & storages.names.keys()
    state = _Split()
    for index, signature in enumerate(trace.ops.signature_of):
        _follow(trace, table.signatures[signature], index, devices, (state, weights))
        if prediction is not None:
            found = prediction.signatures[signature]
            state.seconds += 0.0 if found is None else _shortened(trace, found.seconds, index, devices, state)
    _gather_results(trace, storages.kept, state, storages.sizes)
    held = sum(storages.sizes[storage] for storage in weights)
    shared = sum(storages.sizes[storage] for storage in state.split_weights)
    return _result(state, devices, held - shared + shared // devices, prediction.hardware if prediction else None)


def _follow(trace: Trace, cost: SignatureCost, index: int, devices: int, known: tuple[_Split, set[int]]) -> None:
    state, weights = known
    storage_of, ops = trace.tensors.storage_of, trace.ops
    inputs = [storage_of[tensor] for tensor in ops.inputs[index]]
    outputs = [storage_of[tensor] for tensor in ops.outputs[index]]
    reads_split = not state.split.isdisjoint(inputs)
    if cost.kind is Kind.VIEW or cost.kind is Kind.UNPRICED:
        state.split.update(outputs if reads_split else ())
        return
    used = weights.intersection(inputs) if cost.kind is Kind.MATMUL else set()
    share = devices if used or reads_split else 1
    state.flops += cost.flops / share
    state.moved += (cost.bytes_read + cost.bytes_written) / share
    call = ops[index]
    size = sum(spec.size_bytes or 0 for spec in call.signature.output_specs)
    if used:
        state.split_weights |= used
        if reads_split:
            state.exchange(_ALL_REDUCE, call.op, trace.module_path_of(call), size)
            state.split.difference_update(outputs)
        else:
            state.split.update(outputs)
    elif reads_split and cost.kind in _NEEDS_ALL:
        gathered = sum(spec.size_bytes or 0 for spec in call.signature.input_specs)
        state.exchange(_ALL_GATHER, call.op, trace.module_path_of(call), gathered)
    elif reads_split:
        state.split.update(outputs)


def _shortened(trace: Trace, seconds: float, index: int, devices: int, state: _Split) -> float:
    storage_of = trace.tensors.storage_of
    touched = {storage_of[tensor] for tensor in (*trace.ops.inputs[index], *trace.ops.outputs[index])}
    works_on_parts = not touched.isdisjoint(state.split) or not touched.isdisjoint(state.split_weights)
    return seconds / devices if works_on_parts else seconds


def _gather_results(trace: Trace, kept: frozenset[int], state: _Split, sizes: Sequence[int]) -> None:
    """What the model gives back is gathered; a cache stays where it is."""
    if not len(trace.module_calls):
        return
    categories = find_storages(trace).categories
    for storage in sorted(kept & state.split):
        if categories[storage] is not Category.KV_CACHE:
            state.exchange(_ALL_GATHER, "the result", "", sizes[storage])


def _result(state: _Split, devices: int, weight_bytes: int, hardware: Hardware | None) -> TensorParallel:
    collectives = tuple(
        Collective(kind=kind, after=op, module=module, calls=calls, bytes_each=_sent(kind, size, devices))
        for (kind, op, module, size), calls in state.exchanges.items()
    )
    sent = sum(one.calls * one.bytes_each for one in collectives)
    seconds, notes = _time(state, sent, hardware)
    return TensorParallel(
        devices=devices,
        flops=round(state.flops),
        weight_bytes=weight_bytes,
        bytes_moved=round(state.moved),
        collective_bytes=sent,
        collectives=collectives,
        seconds=seconds,
        notes=notes,
    )


def _sent(kind: str, size: int, devices: int) -> int:
    """By a ring each device sends (n-1)/n of the data, for an all-reduce twice."""
    once = size * (devices - 1) // devices
    return 2 * once if kind == _ALL_REDUCE else once


def _time(state: _Split, sent: int, hardware: Hardware | None) -> tuple[float | None, tuple[str, ...]]:
    if hardware is None:
        return None, ()
    if hardware.link_bytes_per_s is None:
        return None, (f"{hardware.name} names no link_gb_per_s, so the exchanges have no time",)
    return state.seconds + sent / hardware.link_bytes_per_s, ()
