"""What each of several devices does, holds and sends: tensor parallelism."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, prod
from typing import NamedTuple

import msgspec

from torchstone.cost.caches import in_blocks
from torchstone.cost.device_parts import (
    ALL_GATHER,
    ALL_REDUCE,
    CACHE_RANK,
    Exchange,
    Part,
    Split,
    parts_of,
    split_unread,
)
from torchstone.cost.liveness import largest_sum
from torchstone.cost.optimizer import optimiser_states
from torchstone.cost.registry import numbers
from torchstone.cost.shorten import Short, whole
from torchstone.cost.split_dimension import (
    Place,
    SplitDim,
    adds_up,
    is_over_split,
    made_dim,
    period_of,
    place_in_product,
    split_dim,
)
from torchstone.cost.storages import Storages, find_storages
from torchstone.cost.tiles import TiledForm, in_tiles, tiled_forms
from torchstone.record.cost import (
    Category,
    Collective,
    CostTable,
    Hardware,
    Kind,
    OpPrediction,
    Prediction,
    SignatureCost,
    TensorParallel,
)
from torchstone.record.op import OpCall
from torchstone.record.tensor import has_blocks
from torchstone.record.trace import Trace
from torchstone.units import many

# A trace split over several devices, by following the data. A matmul with a weight that reads whole data is split by
# columns and gives split data; one that reads split data is split by rows, and its partial sums are added up over all
# devices (all-reduce) when something else than an addition needs them: what is added to partial sums is added on one
# device. Everything between works on split data. Sorting, and a norm over the split dimension, need the whole: split
# data is gathered first, as is the final result. Embeddings and norms are not split.


_ADDITIONS = ("aten.add.Tensor", "aten.add_.Tensor")
_WHOLE = frozenset((Kind.CONVOLUTION, Kind.RECURRENT, Kind.ATTENTION))  # where they read weights, no plan splits them
_MEAN = "aten.mean.dim"
_BATCHES = "aten.bmm.default"
_MORE_PASSES = 2  # what is whole in the second one may leave other data to be split
_EXPERTS = "expert"  # in the names of their weights
_NORMS = ("aten.native_layer_norm.default", "aten._fused_rms_norm.default")


class _Data(NamedTuple):
    """What an op reads and makes: storages, the width of those that are split, and in which dimension each is."""

    inputs: Sequence[int]
    outputs: Sequence[int]
    width: int  # 0: all of it is whole
    dims: tuple[SplitDim | None, ...]  # of each input; empty where not known


def split_over(
    trace: Trace, table: CostTable, devices: int, prediction: Prediction | None = None, optimiser: str | None = None
) -> TensorParallel:
    """What each of several devices does, holds and sends; an optimizer's states are split as their parameters are."""
    storages = find_storages(trace)
    weights = {
        storage for storage, category in enumerate(storages.categories) if category is Category.WEIGHTS
    } & storages.names.keys()
    held = (weights, storages.cache_inputs)
    state, kept_whole = _followed(trace, (table, prediction), devices, Split(), held), frozenset[int]()
    for _ in range(_MORE_PASSES):  # heads tell what one device has most of, and which weights all of them have
        parts = parts_of(trace, storages, state, devices)
        kept_whole |= {one for one, part in parts.items() if part.most == part.whole and one in weights}
        if not state.meets_whole and all(part.most * devices == part.whole for part in parts.values()):
            break
        start = Split(parts=parts, kept_whole=kept_whole)
        state = _followed(trace, (table, prediction), devices, start, held)
    state.parts = parts_of(trace, storages, state, devices)
    if len(trace.module_calls):
        _give_back(storages.kept - storages.gradients, state, storages.sizes, storages.categories)
    unread = split_unread(trace, storages, state, devices)
    hardware = prediction.hardware if prediction else None
    rules = table.conventions
    written_out = whole(trace)
    stored = in_blocks(trace, in_tiles(written_out, storages, rules.tile), rules.block_size, rules.tile)
    states = optimiser_states(trace, optimiser)
    sizes = _sizes_on_one_device(written_out, stored, state, devices, rules.tile)
    found = _result(state, devices, _Held.on_one_device(trace, stored, sizes, states), hardware)
    return msgspec.structs.replace(found, notes=(*found.notes, *_notes(state, storages, unread)))


def _notes(state: Split, storages: Storages, unread: int) -> tuple[str, ...]:
    """What must be known to compare the split with that of a server."""
    notes = []
    if any(_EXPERTS in storages.names[one] for one in state.split_weights & storages.names.keys()):
        notes.append(
            "each device has columns of every expert; a server that keeps whole experts on each device (expert "
            "parallelism) sends tokens to them, which is not what is counted"
        )
    if unread:
        notes.append(
            f"{many(unread, 'weight')} that this step does not read, such as those of an encoder, split as equal ones "
            "that it reads, else by columns"
        )
    return tuple(notes)


def _followed(
    trace: Trace,
    costs: tuple[CostTable, Prediction | None],
    devices: int,
    state: Split,
    ends: tuple[set[int], frozenset[int]],
) -> Split:
    """Follow all ops; with the heads of a first pass, work that is by heads is that of the device with most of them."""
    table, prediction = costs
    for spec, storage in zip(trace.tensors.spec_of, trace.tensors.storage_of, strict=True):
        if len(shape := trace.tensors.specs[spec].shape) == CACHE_RANK:
            state.by_heads.setdefault(storage, set()).add(shape)
    for index, signature in enumerate(trace.ops.signature_of):
        share = _follow(trace, table.signatures[signature], index, devices, (state, *ends))
        found = prediction.signatures[signature] if prediction is not None else None
        if found is not None and prediction is not None:
            state.seconds += _shortened(found, share, prediction.hardware)
    return state


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """The memory of the device that holds most."""

    weights_bytes: int
    kv_cache_bytes: int
    peak_bytes: int
    unsized: int

    def fits(self, memory_bytes: int) -> bool | None:
        """Whether the peak fits; None where it does, and tensors of unknown size must fit, too."""
        fits = self.peak_bytes <= memory_bytes
        return None if fits and self.unsized else fits

    @staticmethod
    def on_one_device(trace: Trace, storages: Storages, sizes: list[int], states: Mapping[int, int]) -> "_Held":
        """The trace with the part of each storage that one device has, and the states of an optimizer beside it."""
        part = msgspec.structs.replace(storages, sizes=sizes)
        peak, caches = largest_sum(trace, part)
        weights = [sizes[storage] for storage in storages.names if storages.categories[storage] is Category.WEIGHTS]
        beside = sum(size * sizes[one] // max(storages.sizes[one], 1) for one, size in states.items())
        return _Held(
            weights_bytes=sum(weights), kv_cache_bytes=caches, peak_bytes=peak + beside, unsized=storages.unknown
        )


def _sizes_on_one_device(short: Short, storages: Storages, state: Split, devices: int, tile: int | None) -> list[int]:
    """Bytes of each storage on the device with most of it; a part is filled up to whole tiles or blocks again."""
    sizes = list(storages.sizes)
    forms = tiled_forms(short, storages)
    for storage in (state.split_weights | state.split.keys() | state.repeated.keys()) - state.looked_up:
        part, form = state.parts.get(storage, Part(devices, 1)), forms.get(storage)
        cut = _cut(storage, form, part, state) if form is not None else None
        if cut is not None and (tile or has_blocks(cut.spec.dtype)):
            sizes[storage] = cut.size_bytes(tile or 1)
        else:
            sizes[storage] = ceil(Fraction(sizes[storage] * part.most, part.whole))
    return sizes


def _cut(storage: int, form: TiledForm, part: Part, state: Split) -> TiledForm | None:
    """A weight with fewer rows or columns, or data with fewer columns; None for heads, each of which is a matrix."""
    dims: tuple[int, ...] = (-1,)
    length = part.whole
    if storage in state.columns:
        length, dims = state.columns[storage], (-2, -1)  # torch keeps the columns of a linear layer as rows
    elif storage in state.row_counts:
        length, dims = state.row_counts[storage], (-1, -2)
    return form.cut(length, length * part.most // part.whole, dims)


def _follow(
    trace: Trace, cost: SignatureCost, index: int, devices: int, known: tuple[Split, set[int], frozenset[int]]
) -> float:
    """Follow one op; by how much the work of one device is less than the whole."""
    state, weights, caches = known
    storage_of, ops = trace.tensors.storage_of, trace.ops
    inputs = [storage_of[tensor] for tensor in ops.inputs[index]]
    outputs = [storage_of[tensor] for tensor in ops.outputs[index]]
    if cost.kind is Kind.VIEW:
        return 1
    call = ops[index]
    sums = [state.partial[storage] for storage in inputs if storage in state.partial]
    if sums and call.op in _ADDITIONS and not state.width(inputs):
        state.partial.update(dict.fromkeys(outputs, sums[-1]))
        return _done(state, cost, 1)
    state.add_up(inputs)
    state.looked_up |= weights.intersection(inputs[:1] if cost.kind is Kind.INDEXING else ())
    if state.unpacks(weights, inputs, outputs):
        return _done(state, cost, 1)
    used = state.multiplied(weights, inputs) if _is_splittable(call, cost, state.width(inputs)) else set()
    used -= state.kept_whole
    width = 0 if used and _widens_gathered(call, inputs, state) else state.width(inputs)
    used -= _biases(call, inputs) if width else set()
    data = _Data(inputs, outputs, width, _split_dims(call, inputs, state) if width else ())
    if used:
        used = _follow_weights(trace, call, cost, data, (state, used, caches))
    elif width and _is_whole_again(call, data, state, weights | caches):
        width = 0  # every device has all of what it reads, and goes on with all of what it makes
    elif width:
        width = _follow_split(trace, call, cost, data, (state, weights, caches))
    elif cost.kind in _WHOLE and not weights.isdisjoint(inputs):
        state.left_whole[call.op] = state.left_whole.get(call.op, 0) + 1
    return _done(state, cost, state.share((*used, *outputs[:1]), devices) if used or width else 1)


def _split_dims(call: OpCall, inputs: Sequence[int], state: Split) -> tuple[SplitDim | None, ...]:
    """The split dimension of each input, None of those that are whole; empty where one is not known."""
    specs = call.signature.input_specs
    found = tuple(split_dim(spec, state.period.get(one)) for one, spec in zip(inputs, specs, strict=True))
    is_known = all(dim is not None for one, dim in zip(inputs, found, strict=True) if one in state.split)
    return found if is_known else ()


def _follow_weights(
    trace: Trace, call: OpCall, cost: SignatureCost, data: _Data, known: tuple[Split, set[int], frozenset[int]]
) -> set[int]:
    """Follow a product with weights; those that are split by it."""
    state, used, caches = known
    place = place_in_product(call.signature, data.dims)
    if data.width and (place is Place.BATCH or (place is None and _is_by_heads(trace, call, used))):
        state.split_weights |= used  # each device has the matrices of its heads
        state.queries.update(dict.fromkeys(used, call.signature.input_specs[-2].shape[0]))
    elif not data.width or place in (None, Place.SUMMED):
        _use_weights(trace, call, (data.inputs, data.outputs, used), state, by_rows=bool(data.width))
        return used
    else:
        used = set()  # as between the tokens of columns that are split: each device needs all of the weight
    _pass_on(call, cost, data, state, caches)
    return used


def _follow_split(
    trace: Trace, call: OpCall, cost: SignatureCost, data: _Data, known: tuple[Split, set[int], frozenset[int]]
) -> int:
    """Follow an op on split data; the width of what it makes, 0 where that is whole."""
    state, weights, caches = known
    signature = call.signature
    if data.dims and not state.is_gathered(data.inputs) and adds_up(cost.kind, signature, data.dims):
        size = sum(spec.size_bytes or 0 for spec in signature.output_specs)
        sums = Exchange(ALL_REDUCE, call.op, trace.module_path_of(call), size)
        state.partial.update(dict.fromkeys(data.outputs, sums))
        return data.width
    if _needs_all(call, cost, data) and not state.is_gathered(data.inputs):
        size = sum(spec.size_bytes or 0 for spec in signature.input_specs[:1])
        parts_stay = cost.kind is not Kind.SORTING  # after a norm each device may go on with its own columns
        state.gather(data.inputs, call.op, trace.module_path_of(call), size, parts_stay=parts_stay)
        return 0
    _pass_on(call, cost, data, state, caches)
    _split_added(call, data, state, weights)
    return data.width


def _is_whole_again(call: OpCall, data: _Data, state: Split, held: set[int]) -> bool:
    """Whether data that every device has seen whole meets other data as large, of which no device has a part alone."""
    specs = dict(zip(data.inputs, call.signature.input_specs, strict=True))
    parts = [spec.elements for one, spec in specs.items() if one in state.split]
    others = [
        spec.elements
        for one, spec in specs.items()
        if one not in held and one not in state.origins and one not in state.split
    ]
    meets = state.is_gathered(data.inputs) and max(others, default=0) >= max(parts)
    state.meets_whole |= meets
    return meets and bool(state.parts)  # heads are found first


def _is_splittable(call: OpCall, cost: SignatureCost, width: int) -> bool:
    """A matmul of split data, or into several columns; a gate of one, as of a shared expert, is whole everywhere."""
    columns = any(spec.shape[-1:] != (1,) for spec in call.signature.output_specs)
    return cost.kind is Kind.MATMUL and (bool(width) or columns)


def _widens_gathered(call: OpCall, inputs: Sequence[int], state: Split) -> bool:
    """Whether a matmul makes more of what every device has seen whole: then its columns are split, not its rows."""
    read = [spec.elements for one, spec in zip(inputs, call.signature.input_specs, strict=True) if one in state.split]
    made = sum(spec.elements for spec in call.signature.output_specs)
    return state.is_gathered(inputs) and made > sum(read)


def _is_by_heads(trace: Trace, call: OpCall, used: set[int]) -> bool:
    """Whether a matrix is multiplied as one for each head, as absorbed latent attention does; experts are no matrix."""
    table = trace.tensors
    ranks = {len(table[one.tensor].spec.shape) for one in table.external if table.storage_of[one.tensor] in used}
    return call.op == _BATCHES and ranks == {2}


def _use_weights(
    trace: Trace, call: OpCall, storages: tuple[Sequence[int], Sequence[int], set[int]], state: Split, *, by_rows: bool
) -> None:
    """Split a matmul with weights: by rows where it reads split data, by columns where it reads whole data."""
    inputs, outputs, used = storages
    state.split_weights |= used
    if by_rows:
        read = [spec for one, spec in zip(inputs, call.signature.input_specs, strict=True) if one in state.split]
        state.rows.update(dict.fromkeys(used, state.weights_of(inputs)))
        state.row_counts.update(dict.fromkeys(used, max(spec.shape[-1] for spec in read)))
    _split_matmul(trace, call, outputs, state, by_rows=by_rows)
    if not by_rows:
        state.made_from.update(dict.fromkeys(outputs, frozenset(used)))
        state.projected[frozenset(used)] = sum(spec.size_bytes or 0 for spec in call.signature.output_specs)
        state.columns.update(dict.fromkeys(used, state.width(outputs)))


def _pass_on(call: OpCall, cost: SignatureCost, data: _Data, state: Split, caches: frozenset[int]) -> None:
    """What is computed from split data is split as it is."""
    inputs, outputs = data.inputs, data.outputs
    made_from = state.weights_of(inputs)
    seen_whole = state.is_gathered(inputs)
    written = caches.intersection(inputs)
    for storage in (*outputs, *written):
        state.split[storage] = data.width
        state.made_from[storage] = made_from
    specs = zip((*outputs, *inputs), (*call.signature.output_specs, *call.signature.input_specs), strict=True)
    for storage, spec in specs:
        dim = made_dim(cost.kind, call.signature, data.dims, spec) if data.dims else None
        if dim is not None and (storage in written or storage in outputs):
            state.put_period(storage, period_of(spec, dim))
    state.gathered.update(outputs if seen_whole else ())
    heads = 0
    asked = call.signature.input_specs[0].shape if cost.kind is Kind.ATTENTION else ()
    if len(asked) == CACHE_RANK:
        heads = int(asked[1])
        state.queries.update(dict.fromkeys((inputs[0], *outputs[:1]), heads))
    elif call.op == _BATCHES and not seen_whole:
        heads = _heads_of_product(call, inputs, outputs, state)
        state.queries.update(dict.fromkeys((inputs[0], *outputs), heads) if heads else {})
    for storage, spec in zip(inputs[1:], call.signature.input_specs[1:], strict=True):
        has_heads = spec.shape[1:2] == (heads,) or call.op == _BATCHES
        if heads and has_heads and 0 not in (spec.stride or ()):  # keys and values, repeated for all heads of queries
            state.repeated[storage] = heads


def _heads_of_product(call: OpCall, inputs: Sequence[int], outputs: Sequence[int], state: Split) -> int:
    """The heads of attention that is written out: its matrices are those of batch and heads, seen as such; 0 if not."""
    seen = set().union(*(state.by_heads.get(one, ()) for one in (*outputs, inputs[0])))
    matrices = {spec.shape for spec in (*call.signature.output_specs, call.signature.input_specs[0])}
    found = {shape[1] for shape in seen if (shape[0] * shape[1], *shape[2:]) in matrices}
    return found.pop() if len(found) == 1 and 1 not in found else 0


def _split_added(call: OpCall, data: _Data, state: Split, weights: set[int]) -> None:
    """A bias that is added to split columns by an op of its own is split as they are."""
    inputs, outputs, width, _ = data
    added = _biases(call, inputs) & weights if call.op in _ADDITIONS else set()
    if not added or call.signature.output_specs[0].shape[-1] != width:
        return
    made_from = state.weights_of(outputs)
    state.split_weights |= added
    state.columns.update(dict.fromkeys(added, width))
    state.made_from.update(dict.fromkeys(outputs, made_from | added))
    if made_from in state.projected:
        state.projected[made_from | added] = state.projected[made_from]


def _biases(call: OpCall, inputs: Sequence[int]) -> set[int]:
    """What is added once, to the sum over all devices of a matmul that is split by rows."""
    return {storage for storage, spec in zip(inputs, call.signature.input_specs, strict=True) if len(spec.shape) == 1}


def _done(state: Split, cost: SignatureCost, share: float) -> float:
    state.flops += cost.flops / share
    state.moved += (cost.bytes_read + cost.bytes_written) / share
    return share


def _split_matmul(trace: Trace, call: OpCall, outputs: Sequence[int], state: Split, *, by_rows: bool) -> None:
    made = call.signature.output_specs
    if by_rows:
        size = sum(spec.size_bytes or 0 for spec in made)
        sums = Exchange(ALL_REDUCE, call.op, trace.module_path_of(call), size)
        state.partial.update(dict.fromkeys(outputs, sums))
        for storage in outputs:
            state.split.pop(storage, None)
    else:
        state.split.update(dict.fromkeys(outputs, max((spec.shape[-1] for spec in made if spec.shape), default=0)))
        for storage, spec in zip(outputs, made, strict=True):
            last = SplitDim(len(spec.shape) - 1, spec.shape[-1]) if spec.shape else None
            state.put_period(storage, None if last is None else period_of(spec, last))


def _needs_all(call: OpCall, cost: SignatureCost, data: _Data) -> bool:
    """Sorting, a softmax or a running sum over the split dimension, and a norm over as many elements as it has."""
    if data.dims:
        return is_over_split(cost.kind, call.signature, data.dims)
    if cost.kind is Kind.SORTING:
        return True
    if call.op == _MEAN:  # of an RMS norm that is written out
        return _averages_all(call.signature.input_specs[0].shape, numbers(call.signature, "dim") or (), data.width)
    return call.op in _NORMS and prod(numbers(call.signature, "normalized_shape") or (0,)) == data.width


def _averages_all(shape: tuple[int, ...], dims: tuple[int, ...], width: int) -> bool:
    """Whether a mean is over all columns, or over a part of them that is no head: heads have a dimension."""
    over_columns = -1 in dims or len(shape) - 1 in dims
    return over_columns and (shape[-1] == width or len(shape) == CACHE_RANK - 1)  # batch, tokens, columns


def _shortened(found: OpPrediction, share: float, hardware: Hardware) -> float:
    """A part of the work takes a part of the time, but an op never less than its launch."""
    return max(found.seconds / share, min(found.seconds, hardware.launch_s))


def _give_back(kept: frozenset[int], state: Split, sizes: Sequence[int], categories: Sequence[Category | None]) -> None:
    """What the model gives back is added up or gathered; a cache and gradients stay where they are."""
    state.add_up(sorted(kept))
    for storage in sorted(kept & state.split.keys()):
        if categories[storage] is not Category.KV_CACHE:
            state.exchange(ALL_GATHER, "the result", "", sizes[storage])


def _result(state: Split, devices: int, held: _Held, hardware: Hardware | None) -> TensorParallel:
    collectives = tuple(
        Collective(kind=kind, after=op, module=module, calls=calls, bytes_each=_sent(kind, size, devices))
        for (kind, op, module, size), calls in state.exchanges.items()
    )
    sent = sum(one.calls * one.bytes_each for one in collectives)
    seconds, notes = _time(state, collectives, hardware)
    whole_ops = ", ".join(f"{op} ({many(calls, 'call')})" for op, calls in sorted(state.left_whole.items()))
    if whole_ops:
        notes = (*notes, f"not split, so that each device does all of it and holds its weights: {whole_ops}")
    return TensorParallel(
        devices=devices,
        flops=round(state.flops),
        weight_bytes=held.weights_bytes,
        bytes_moved=round(state.moved),
        kv_cache_bytes=held.kv_cache_bytes,
        peak_bytes=held.peak_bytes,
        fits=None if hardware is None else held.fits(hardware.memory_bytes),
        memory_bytes=None if hardware is None else hardware.memory_bytes,
        collective_bytes=sent,
        collectives=collectives,
        seconds=seconds,
        notes=notes,
    )


def _sent(kind: str, size: int, devices: int) -> int:
    """By a ring each device sends (n-1)/n of the data, for an all-reduce twice."""
    once = size * (devices - 1) // devices
    return 2 * once if kind == ALL_REDUCE else once


def _time(
    state: Split, collectives: Sequence[Collective], hardware: Hardware | None
) -> tuple[float | None, tuple[str, ...]]:
    """The devices' own time, and that of the exchanges, each at least a launch."""
    if hardware is None:
        return None, ()
    link = hardware.link_bytes_per_s
    if link is None:
        return None, (f"{hardware.name} names no link_gb_per_s, so the exchanges have no time",)
    exchanged = sum(one.calls * max(one.bytes_each / link, hardware.launch_s) for one in collectives)
    return state.seconds + exchanged, ()
