"""What each of several devices does, holds and sends: tensor parallelism."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, prod
from typing import NamedTuple

import msgspec

from torchstone.cost.caches import in_blocks
from torchstone.cost.liveness import largest_sum
from torchstone.cost.optimizer import optimiser_states
from torchstone.cost.registry import numbers
from torchstone.cost.shorten import Short, whole
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


_ALL_REDUCE = "all-reduce"
_ALL_GATHER = "all-gather"
_ADDITIONS = ("aten.add.Tensor", "aten.add_.Tensor")
_CACHE_RANK = 4  # batch, heads, tokens, width of a head
_WHOLE = frozenset((Kind.CONVOLUTION, Kind.RECURRENT, Kind.ATTENTION))  # where they read weights, no plan splits them
_MEAN = "aten.mean.dim"
_BATCHES = "aten.bmm.default"
_NORMS = ("aten.native_layer_norm.default", "aten._fused_rms_norm.default")


class _Exchange(NamedTuple):
    """Data that devices must exchange, and the op and module it comes from."""

    kind: str
    op: str
    module: str
    size: int


class _Heads(NamedTuple):
    """Heads of attention, and the columns of one."""

    number: int
    width: int


class _Part(NamedTuple):
    """Columns, rows or heads: all of them, and those of the device that has most."""

    whole: int
    most: int

    @staticmethod
    def of(whole: int, devices: int) -> "_Part":
        """None is divided: 100 columns on three devices are 34 on two of them; of too few heads, each has one."""
        return _Part(whole, ceil(whole / devices))


@dataclass(slots=True, kw_only=True)
class _Split:
    """What is known while the trace is followed."""

    split: dict[int, int] = field(default_factory=dict)  # storage of which each device holds a part -> whole width
    partial: dict[int, _Exchange] = field(default_factory=dict)  # storage of sums to be added up -> how
    split_weights: set[int] = field(default_factory=set)
    looked_up: set[int] = field(default_factory=set)  # tables that every device has whole: embeddings
    origins: dict[int, frozenset[int]] = field(default_factory=dict)  # computed from weights alone -> these weights
    made_from: dict[int, frozenset[int]] = field(default_factory=dict)  # split storage -> weights it is computed with
    projected: dict[frozenset[int], int] = field(default_factory=dict)  # weights split by columns -> bytes they give
    gathered: set[int] = field(default_factory=set)  # split storage of which each device has also seen the whole
    columns: dict[int, int] = field(default_factory=dict)  # weight that is split by columns -> how many it has
    rows: dict[int, frozenset[int]] = field(default_factory=dict)  # weight that is split by rows -> weights before it
    row_counts: dict[int, int] = field(default_factory=dict)  # weight that is split by rows -> how many it has
    queries: dict[int, int] = field(default_factory=dict)  # split storage that attention reads or makes -> heads
    by_heads: dict[int, set[tuple[int, ...]]] = field(default_factory=dict)  # storage -> as what of rank 4 it is seen
    left_whole: dict[str, int] = field(default_factory=dict)  # op that reads weights and is not split -> calls
    parts: dict[int, _Part] = field(default_factory=dict)  # split storage or weight -> that of the device with most
    flops: float = 0.0
    moved: float = 0.0
    seconds: float = 0.0
    exchanges: dict[_Exchange, int] = field(default_factory=dict)

    def exchange(self, kind: str, op: str, module: str, size: int) -> None:
        key = _Exchange(kind, op, module, size)
        self.exchanges[key] = self.exchanges.get(key, 0) + 1

    def add_up(self, storages: Sequence[int]) -> None:
        """Make whole what is still partial."""
        for storage in dict.fromkeys(storages):
            if storage in self.partial:
                self.exchange(*self.partial.pop(storage))

    def unpacks(self, weights: set[int], inputs: Sequence[int], outputs: Sequence[int]) -> bool:
        """Whether an op reads weights alone: what it makes, such as a cast or scaled weight, then stands for them."""
        if not inputs or not all(storage in weights or storage in self.origins for storage in inputs):
            return False
        self.origins.update(dict.fromkeys(set(outputs) - weights, frozenset(self.multiplied(weights, inputs))))
        return True

    def multiplied(self, weights: set[int], inputs: Sequence[int]) -> set[int]:
        """The weights among these, and what stands for weights together with those."""
        made = [storage for storage in inputs if storage in self.origins]
        return weights.intersection(inputs).union(made, *(self.origins[storage] for storage in made))

    def weights_of(self, storages: Sequence[int]) -> frozenset[int]:
        """The weights that split data among these is computed with."""
        return frozenset().union(*(self.made_from.get(storage, frozenset()) for storage in storages))

    def gather(self, storages: Sequence[int], op: str, module: str, size: int, *, parts_stay: bool) -> None:
        """Exchange what was projected into these: every device sees all of it and of what was computed from it."""
        weights = self.weights_of(storages)
        self.exchange(_ALL_GATHER, op, module, self.projected.get(weights, size))
        same = {*storages, *(one for one, source in self.made_from.items() if source == weights)}
        if parts_stay:
            self.gathered |= same
            return
        for storage in same:  # every device goes on with all of it
            self.split.pop(storage, None)
            self.made_from.pop(storage, None)

    def is_gathered(self, storages: Sequence[int]) -> bool:
        """Whether every device has all of the split data among these."""
        return all(storage in self.gathered for storage in storages if storage in self.split)

    def share(self, storages: Sequence[int], devices: int) -> float:
        """By how much the part of the device with most is less than the whole."""
        part = next((self.parts[storage] for storage in storages if storage in self.parts), None)
        return devices if part is None else part.whole / part.most

    def width(self, storages: Sequence[int]) -> int:
        """The whole width of split data among these; 0 where none is split."""
        return max((self.split.get(storage, 0) for storage in storages), default=0)


def split_over(
    trace: Trace, table: CostTable, devices: int, prediction: Prediction | None = None, optimiser: str | None = None
) -> TensorParallel:
    """What each of several devices does, holds and sends; an optimizer's states are split as their parameters are."""
    storages = find_storages(trace)
    weights = {
        storage for storage, category in enumerate(storages.categories) if category is Category.WEIGHTS
    } & storages.names.keys()
    costs = (table, prediction)
    state = _followed(trace, costs, devices, _Split(), (weights, storages.cache_inputs))
    parts = _parts(state, _heads(trace, storages, state, devices), devices)
    if any(part.most * devices != part.whole for part in parts.values()):  # one device has more than the others
        state = _followed(trace, costs, devices, _Split(parts=parts), (weights, storages.cache_inputs))
    state.parts = parts
    if len(trace.module_calls):
        _give_back(storages.kept - storages.gradients, state, storages.sizes, storages.categories)
    hardware = prediction.hardware if prediction else None
    rules = table.conventions
    written_out = whole(trace)
    stored = in_blocks(trace, in_tiles(written_out, storages, rules.tile), rules.block_size, rules.tile)
    states = optimiser_states(trace, optimiser)
    sizes = _sizes_on_one_device(written_out, stored, state, devices, rules.tile)
    return _result(state, devices, _Held.on_one_device(trace, stored, sizes, states), hardware)


def _followed(
    trace: Trace,
    costs: tuple[CostTable, Prediction | None],
    devices: int,
    state: _Split,
    ends: tuple[set[int], frozenset[int]],
) -> _Split:
    """Follow all ops; with the heads of a first pass, work that is by heads is that of the device with most of them."""
    table, prediction = costs
    for spec, storage in zip(trace.tensors.spec_of, trace.tensors.storage_of, strict=True):
        if len(shape := trace.tensors.specs[spec].shape) == _CACHE_RANK:
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


def _sizes_on_one_device(short: Short, storages: Storages, state: _Split, devices: int, tile: int | None) -> list[int]:
    """Bytes of each storage on the device with most of it; a part is filled up to whole tiles or blocks again."""
    sizes = list(storages.sizes)
    forms = tiled_forms(short, storages)
    for storage in (state.split_weights | state.split.keys()) - state.looked_up:
        part, form = state.parts.get(storage, _Part(devices, 1)), forms.get(storage)
        cut = _cut(storage, form, part, state) if form is not None else None
        if cut is not None and (tile or has_blocks(cut.spec.dtype)):
            sizes[storage] = cut.size_bytes(tile or 1)
        else:
            sizes[storage] = ceil(Fraction(sizes[storage] * part.most, part.whole))
    return sizes


def _cut(storage: int, form: TiledForm, part: _Part, state: _Split) -> TiledForm | None:
    """A weight with fewer rows or columns, or data with fewer columns; None for heads, each of which is a matrix."""
    dims: tuple[int, ...] = (-1,)
    length = part.whole
    if storage in state.columns:
        length, dims = state.columns[storage], (-2, -1)  # torch keeps the columns of a linear layer as rows
    elif storage in state.row_counts:
        length, dims = state.row_counts[storage], (-1, -2)
    return form.cut(length, length * part.most // part.whole, dims)


def _parts(state: _Split, heads: Mapping[int, _Part], devices: int) -> dict[int, _Part]:
    """What the device with most has of all that is split: heads where they are known, else rows or columns."""
    parts = dict(heads)
    for weight, count in state.row_counts.items():
        part = parts.setdefault(weight, _Part.of(count, devices))
        for source in state.rows[weight]:
            columns = state.columns.get(source, 0)
            if columns and columns % count == 0:  # two of them in one, such as gate and up, are split one by one
                parts.setdefault(source, _Part(columns, columns * part.most // part.whole))
    for storage, width in (*state.columns.items(), *state.split.items()):
        parts.setdefault(storage, _Part.of(max(width, 1), devices))
    return parts


def _heads(trace: Trace, storages: Storages, state: _Split, devices: int) -> dict[int, _Part]:
    """The heads of each split cache and of what attention asks with and gives, and of the weights around them."""
    found: dict[int, int] = dict(state.queries)
    widths: dict[int, int] = {storage: state.split[storage] for storage in found if storage in state.split}
    caches = _heads_of_caches(trace, storages, state)
    found |= {storage: one.number for storage, one in caches.items()}
    widths |= {storage: one.number * one.width for storage, one in caches.items()}
    for storage, heads in list(found.items()):
        for weight in state.made_from.get(storage, ()):
            if widths.get(storage) == state.columns.get(weight):
                found[weight] = heads
    fused = _fused_projections(state, caches)
    found |= {weight: queries or keys for weight, (queries, keys, _) in fused.items()}
    for weight, sources in state.rows.items():  # the projection after attention reads what all heads of queries give
        known = [source for source in sources if source in found]
        if known:
            found[weight] = max(_heads_before(state, weight, source, found[source]) for source in known)
    asking = _asking(state, found, caches, fused)
    parts = {
        storage: _Part(count, _most_keys(asking.get(storage, count), count, devices))
        for storage, count in found.items()
    }
    for weight, (queries, keys, width) in fused.items():
        most_keys = _most_keys(asking.get(weight, queries or keys), keys, devices)
        parts[weight] = _Part(state.columns[weight], (ceil(queries / devices) + 2 * most_keys) * width)
    return parts


def _asking(
    state: _Split, found: Mapping[int, int], caches: Mapping[int, _Heads], fused: Mapping[int, tuple[int, int, int]]
) -> dict[int, int]:
    """How many heads of queries share the heads of keys that a weight gives or a cache keeps."""
    asking = {weight: queries for weight, (queries, _, _) in fused.items() if queries}
    for weight, sources in state.rows.items():
        for source in sources & found.keys():
            keys = fused[source][1] if source in fused else found[source]
            if found.get(weight, 0) % keys == 0:
                asking[source] = max(found.get(weight, 0), asking.get(source, keys))
    for storage in caches:
        known = [asking[weight] for weight in state.made_from.get(storage, ()) if weight in asking]
        if known:
            asking[storage] = max(known)
    return asking


def _most_keys(queries: int, keys: int, devices: int) -> int:
    """The heads of keys on the device with most, where none has more heads of queries than it must.

    A device has heads of queries that follow each other, and the heads of keys that these ask for: of 32 and 8, each of
    three devices has up to 11 of queries, and one of them 4 of keys. Devices that take as many as they can are fewest.
    """
    each, shared = ceil(queries / devices), max(queries // keys, 1)
    for most in range(ceil(keys / devices), keys):
        placed = used = 0
        while placed < queries:
            placed = min(placed + each, (placed // shared + most) * shared)
            used += 1
        if used <= devices:
            return most
    return keys


def _heads_before(state: _Split, weight: int, source: int, heads: int) -> int:
    """The heads that a projection reads: without a kernel for attention, those of keys tell how wide a head is."""
    columns, rows = state.columns.get(source, 0), state.row_counts[weight]
    if state.queries or not columns or rows * heads % columns:
        return heads
    return max(heads, rows * heads // columns)


def _heads_of_caches(trace: Trace, storages: Storages, state: _Split) -> dict[int, _Heads]:
    """The heads of each split cache, as it was made: later views may be transposed."""
    table = trace.tensors
    caches: dict[int, _Heads] = {}
    for spec, storage in zip(table.spec_of, table.storage_of, strict=True):
        shape, stride = table.specs[spec].shape, table.specs[spec].stride
        if storage in caches or len(shape) != _CACHE_RANK or (stride is not None and stride[1] == 0):
            continue  # the last: one head that is seen as many, as the rotary key of latent attention is
        if storages.categories[storage] is Category.KV_CACHE and storage in state.split:
            caches[storage] = _Heads(shape[1], shape[3])
    return caches


def _fused_projections(state: _Split, caches: Mapping[int, _Heads]) -> dict[int, tuple[int, int, int]]:
    """Weights that give queries, keys and values, or the last two: heads of queries, of keys, and their width."""
    kept: dict[int, set[_Heads]] = {}
    for storage, heads in caches.items():
        for weight in state.made_from.get(storage, frozenset()) & state.columns.keys():
            kept.setdefault(weight, set()).add(heads)
    fused: dict[int, tuple[int, int, int]] = {}
    for weight, forms in kept.items():
        (count, width), *others = forms
        queries = state.columns[weight] // width - 2 * count
        if not others and state.columns[weight] % width == 0 and queries >= 0 and queries % count == 0:
            fused[weight] = (queries, count, width)
    return fused


def _follow(
    trace: Trace, cost: SignatureCost, index: int, devices: int, known: tuple[_Split, set[int], frozenset[int]]
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
    width = 0 if used and _widens_gathered(call, inputs, state) else state.width(inputs)
    used -= _biases(call, inputs) if width else set()
    if used and width and _is_by_heads(trace, call, used):  # each device has the matrices of its heads
        state.split_weights |= used
        state.queries.update(dict.fromkeys(used, call.signature.input_specs[0].shape[0]))
        _pass_on(call, cost, (inputs, outputs, width), state, caches)
    elif used:
        _use_weights(trace, call, (inputs, outputs, used), state, by_rows=bool(width))
    elif width and _needs_all(call, cost, width) and not state.is_gathered(inputs):
        size = sum(spec.size_bytes or 0 for spec in call.signature.input_specs[:1])
        parts_stay = cost.kind is not Kind.SORTING  # after a norm each device may go on with its own columns
        state.gather(inputs, call.op, trace.module_path_of(call), size, parts_stay=parts_stay)
        return _done(state, cost, 1)
    elif width:
        _pass_on(call, cost, (inputs, outputs, width), state, caches)
        _split_added(call, (inputs, outputs, width), state, weights)
    elif cost.kind in _WHOLE and not weights.isdisjoint(inputs):
        state.left_whole[call.op] = state.left_whole.get(call.op, 0) + 1
    return _done(state, cost, state.share((*used, *outputs[:1]), devices) if used or width else 1)


def _is_splittable(call: OpCall, cost: SignatureCost, width: int) -> bool:
    """A matmul of split data, or into several columns; a gate of one, as of a shared expert, is whole everywhere."""
    columns = any(spec.shape[-1:] != (1,) for spec in call.signature.output_specs)
    return cost.kind is Kind.MATMUL and (bool(width) or columns)


def _widens_gathered(call: OpCall, inputs: Sequence[int], state: _Split) -> bool:
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
    trace: Trace, call: OpCall, storages: tuple[Sequence[int], Sequence[int], set[int]], state: _Split, *, by_rows: bool
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


def _pass_on(
    call: OpCall,
    cost: SignatureCost,
    storages: tuple[Sequence[int], Sequence[int], int],
    state: _Split,
    caches: frozenset[int],
) -> None:
    """What is computed from split data is split as it is."""
    inputs, outputs, width = storages
    made_from = state.weights_of(inputs)
    seen_whole = state.is_gathered(inputs)
    for storage in (*outputs, *caches.intersection(inputs)):
        state.split[storage] = width
        state.made_from[storage] = made_from
    state.gathered.update(outputs if seen_whole else ())
    asked = call.signature.input_specs[0].shape if cost.kind is Kind.ATTENTION else ()
    if len(asked) == _CACHE_RANK:
        state.queries.update(dict.fromkeys((inputs[0], *outputs[:1]), int(asked[1])))
    elif call.op == _BATCHES and state.split.keys() >= set(inputs) and not seen_whole:
        heads = _heads_of_product(call, inputs, outputs, state)
        state.queries.update(dict.fromkeys((inputs[0], *outputs), heads) if heads else {})


def _heads_of_product(call: OpCall, inputs: Sequence[int], outputs: Sequence[int], state: _Split) -> int:
    """The heads of attention that is written out: its matrices are those of batch and heads, seen as such; 0 if not."""
    seen = set().union(*(state.by_heads.get(one, ()) for one in (*outputs, inputs[0])))
    matrices = {spec.shape for spec in (*call.signature.output_specs, call.signature.input_specs[0])}
    found = {shape[1] for shape in seen if (shape[0] * shape[1], *shape[2:]) in matrices}
    return found.pop() if len(found) == 1 and 1 not in found else 0


def _split_added(
    call: OpCall, storages: tuple[Sequence[int], Sequence[int], int], state: _Split, weights: set[int]
) -> None:
    """A bias that is added to split columns by an op of its own is split as they are."""
    inputs, outputs, width = storages
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


def _done(state: _Split, cost: SignatureCost, share: float) -> float:
    state.flops += cost.flops / share
    state.moved += (cost.bytes_read + cost.bytes_written) / share
    return share


def _split_matmul(trace: Trace, call: OpCall, outputs: Sequence[int], state: _Split, *, by_rows: bool) -> None:
    made = call.signature.output_specs
    if by_rows:
        size = sum(spec.size_bytes or 0 for spec in made)
        sums = _Exchange(_ALL_REDUCE, call.op, trace.module_path_of(call), size)
        state.partial.update(dict.fromkeys(outputs, sums))
        for storage in outputs:
            state.split.pop(storage, None)
    else:
        state.split.update(dict.fromkeys(outputs, max((spec.shape[-1] for spec in made if spec.shape), default=0)))


def _needs_all(call: OpCall, cost: SignatureCost, width: int) -> bool:
    """Sorting, and a norm over as many elements as the split dimension has."""
    if cost.kind is Kind.SORTING:
        return True
    if call.op == _MEAN:  # of an RMS norm that is written out
        return _averages_all(call.signature.input_specs[0].shape, numbers(call.signature, "dim") or (), width)
    return call.op in _NORMS and prod(numbers(call.signature, "normalized_shape") or (0,)) == width


def _averages_all(shape: tuple[int, ...], dims: tuple[int, ...], width: int) -> bool:
    """Whether a mean is over all columns, or over a part of them that is no head: heads have a dimension."""
    over_columns = -1 in dims or len(shape) - 1 in dims
    return over_columns and (shape[-1] == width or len(shape) == _CACHE_RANK - 1)  # batch, tokens, columns


def _shortened(found: OpPrediction, share: float, hardware: Hardware) -> float:
    """A part of the work takes a part of the time, but an op never less than its launch."""
    return max(found.seconds / share, min(found.seconds, hardware.launch_s))


def _give_back(
    kept: frozenset[int], state: _Split, sizes: Sequence[int], categories: Sequence[Category | None]
) -> None:
    """What the model gives back is added up or gathered; a cache and gradients stay where they are."""
    state.add_up(sorted(kept))
    for storage in sorted(kept & state.split.keys()):
        if categories[storage] is not Category.KV_CACHE:
            state.exchange(_ALL_GATHER, "the result", "", sizes[storage])


def _result(state: _Split, devices: int, held: _Held, hardware: Hardware | None) -> TensorParallel:
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
    return 2 * once if kind == _ALL_REDUCE else once


def _time(
    state: _Split, collectives: Sequence[Collective], hardware: Hardware | None
) -> tuple[float | None, tuple[str, ...]]:
    """The devices' own time, and that of the exchanges, each at least a launch."""
    if hardware is None:
        return None, ()
    link = hardware.link_bytes_per_s
    if link is None:
        return None, (f"{hardware.name} names no link_gb_per_s, so the exchanges have no time",)
    exchanged = sum(one.calls * max(one.bytes_each / link, hardware.launch_s) for one in collectives)
    return state.seconds + exchanged, ()
