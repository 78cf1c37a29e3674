"""The traffic that no implementation can avoid: weights, cache, inputs and outputs, each once."""

from collections.abc import Mapping, Sequence

from torchstone.cost.fusion import PricedSignature
from torchstone.cost.repeats import Repeats
from torchstone.cost.storages import Storages
from torchstone.record.cost import Category, Traffic
from torchstone.record.trace import Trace


def compulsory_traffic(
    trace: Trace, priced: Sequence[PricedSignature], storages: Storages, repeats: Repeats, read: Mapping[int, int]
) -> Traffic:
    """Of each piece that was there before, what the ops read of it, at most all of it; of the results, all.

    `read` has the bytes that ops read, by storage. Of a cache only what is new is written. A training step also writes
    the gradients of its trainable parameters.
    """
    there = [storage for storage in read if storage in storages.names]
    once = {storage: min(read[storage], storages.whole_size(storage)) for storage in there}
    times = repeats.times_of_rows(len(trace.ops))
    return Traffic(read_bytes=storages.by_category(once), written_bytes=_written(trace, priced, storages, times))


def _written(
    trace: Trace, priced: Sequence[PricedSignature], storages: Storages, times: Sequence[int]
) -> dict[Category, int]:
    made = storages.kept - storages.gradients - storages.names.keys()
    written = storages.by_category({storage: storages.whole_size(storage) for storage in made})
    replaced = sum(map(storages.whole_size, storages.cache_inputs - storages.kept))
    written[Category.KV_CACHE] = max(written[Category.KV_CACHE] - replaced, 0)
    written[Category.KV_CACHE] += _written_into(trace, priced, storages, times)
    if trace.ops.forward_calls < len(trace.ops):
        written[Category.WEIGHTS] += _trainable_bytes(trace)
    return written


def _written_into(trace: Trace, priced: Sequence[PricedSignature], storages: Storages, times: Sequence[int]) -> int:
    """Bytes written in place to caches that came in."""
    storage_of, ops = trace.tensors.storage_of, trace.ops
    return sum(
        times[call] * sum(priced[ops.signature_of[call]].writes)
        for call, tensors in ops.writes.items()
        if any(storage_of[tensor] in storages.cache_inputs for tensor in tensors)
    )


def _trainable_bytes(trace: Trace) -> int:
    trainable = {parameter.tensor for module in trace.modules for parameter in module.parameters if parameter.trainable}
    return sum(trace.tensors[tensor].spec.size_bytes or 0 for tensor in trainable)
