"""MemoryTimeline -> the ops whose results lose most to tile padding, by absolute size."""

from torchstone.memory.mlir.tensor_type import HOST, explain_padding
from torchstone.memory.study import Study
from torchstone.record.memory import NONE, OpCall, TensorType
from torchstone.record.memory_findings import PaddedOp


def padded_ops(study: Study) -> tuple[PaddedOp, ...]:
    """Every distinct op with padding, the one that loses most first."""
    first: dict[int, int] = {}
    runs: dict[int, int] = {}
    for op, call in enumerate(study.calls):
        if call != NONE:
            first.setdefault(call, op)
            runs[call] = runs.get(call, 0) + 1
    types = study.timeline.types
    found = (_padded(study.timeline.calls[call], types, op=op, runs=runs[call]) for call, op in first.items())
    return tuple(sorted((one for one in found if one), key=lambda one: (-one.overhead_bytes, one.op)))


def _padded(call: OpCall, types: tuple[TensorType, ...], *, op: int, runs: int) -> PaddedOp | None:
    if call.name.endswith(".load_cached"):
        return None  # the const-eval made them: they are its ops' results
    sized = [
        (row, types[row].logical_bytes, buffer.padded_bytes)
        for row in call.result_types
        if (buffer := types[row].buffer) is not None and buffer.memory != HOST
    ]
    known = [(row, logical, padded) for row, logical, padded in sized if logical is not None]
    logical, padded = sum(one[1] for one in known), sum(one[2] for one in known)
    if padded <= logical:
        return None
    worst = max(known, key=lambda one: one[2] - one[1])[0]
    return PaddedOp(
        op=op,
        runs=runs,
        type=worst,
        logical_bytes=logical,
        padded_bytes=padded,
        reason=explain_padding(types[worst]),
    )
