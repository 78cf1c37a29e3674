"""MemoryTimeline -> the ops that made memory grow most."""

from torchstone.memory.mlir.tensor_type import HOST
from torchstone.memory.readings import UNKNOWN, spans_host
from torchstone.memory.study import Study
from torchstone.record.memory import NONE, OpCall
from torchstone.record.memory_findings import Consumer


def top_consumers(study: Study, memory: str, *, limit: int = 20) -> tuple[Consumer, ...]:
    """The distinct ops with the largest measured effect in one memory."""
    effects, with_host = study.readings[memory].effects, spans_host(study.timeline)
    first: dict[tuple[int, int], int] = {}
    runs: dict[tuple[int, int], int] = {}
    for op, effect in enumerate(effects):
        if effect > 0 and effect != UNKNOWN and not with_host[op]:
            key = (study.calls[op] if study.calls[op] != NONE else -2 - op, effect)
            first.setdefault(key, op)
            runs[key] = runs.get(key, 0) + 1
    best = sorted(first.items(), key=lambda item: (-item[0][1], item[1]))[:limit]
    return tuple(
        Consumer(
            op=op,
            runs=runs[key],
            memory=memory,
            effect_ticks=key[1],
            expected_bytes=expected_bank_bytes(study, study.call(op), memory),
        )
        for key, op in best
    )


def expected_bank_bytes(study: Study, call: OpCall | None, memory: str) -> int | None:
    """What an op's results should take in each bank of a memory; None where their types do not say."""
    if call is None:
        return None
    total = 0
    for row in call.result_types:
        buffer = study.timeline.types[row].buffer
        if buffer is None:
            return None
        if buffer.memory == memory != HOST:
            alignment = study.timeline.row_alignment_bytes
            total += buffer.bank_bytes(banks=study.banks[memory], row_alignment_bytes=alignment)
    return total
