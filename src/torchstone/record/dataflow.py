"""Which op call made the data that another reads; views and in-place writes respected."""

from collections.abc import Iterator

from torchstone.record.trace import Trace

NOT_AN_OP = -1  # the data was there before: a parameter, a buffer, an input or a constant


def producers(trace: Trace) -> Iterator[tuple[int, ...]]:
    """For each op call, for each of its input tensors: the call whose work it depends on last.

    That is the call that made the tensor, or a later one that wrote to the memory the tensor shares.
    """
    made_by = [NOT_AN_OP] * len(trace.tensors)
    written_by: dict[int, int] = {}
    storage_of = trace.tensors.storage_of
    ops = trace.ops
    for index, inputs in enumerate(ops.inputs):
        yield tuple(max(made_by[tensor], written_by.get(storage_of[tensor], NOT_AN_OP)) for tensor in inputs)
        for tensor in ops.writes.get(index, ()):
            written_by[storage_of[tensor]] = index
        for tensor in ops.outputs[index]:
            if made_by[tensor] == NOT_AN_OP and tensor not in inputs:
                made_by[tensor] = index
