"""Why an allocation failed and what to try; and what a log lacks, with the setting that adds it."""

from torchstone.memory.allocator import allocator_replay, split_by
from torchstone.memory.counterfactual import replay_changes
from torchstone.memory.mlir_text import explain_padding
from torchstone.memory.study import Study, tick_bytes
from torchstone.memory.torch_memory import SNAPSHOT_DIALECT, TRACE_DIALECT
from torchstone.memory.ttnn_report import CAVEAT, DATABASE_CAVEAT, DATABASE_DIALECT, DIALECT
from torchstone.record.memory import NONE, Failure, FailureKind, MemoryTimeline
from torchstone.record.memory_findings import Counterfactual, OutOfMemory, Verdict
from torchstone.units import many, show_bytes

# --- Diagnosis: what is missing from the log, and which setting adds it ---


_BUILD = (
    "the runtime must be built with -DTT_RUNTIME_DEBUG=ON (CMAKE_BUILD_TYPE=Debug alone is not enough; "
    "`cmake --preset debug` sets both)"
)


_CAVEATS = {
    DIALECT: (CAVEAT,),
    DATABASE_DIALECT: (CAVEAT, DATABASE_CAVEAT),
    SNAPSHOT_DIALECT: (
        "Capacities are what the allocator had reserved; a snapshot does not have the size of the device's memory.",
    ),
    TRACE_DIALECT: ("A trace has no capacity of the device, and totals that begin with the profile.",),
}


def diagnose(timeline: MemoryTimeline) -> tuple[str, ...]:
    """Everything a reader should know before trusting the numbers; empty when nothing is missing."""
    if timeline.allocations:
        return _CAVEATS.get(timeline.dialect, ())
    return (*_missing_lines(timeline), *_damage(timeline))


def has_memory(timeline: MemoryTimeline) -> bool:
    """Whether there is any reading at all."""
    return any(len(memory.state_of) for memory in timeline.memories)


def _missing_lines(timeline: MemoryTimeline) -> list[str]:
    seen = timeline.evidence
    found = []
    if not has_memory(timeline):
        if seen.op_lines or seen.program_lines:
            found.append(
                "The log has op lines but no memory readings: set TT_RUNTIME_MEMORY_LOG_LEVEL=any "
                "(the DEBUG lines show that the build is right)."
            )
        else:
            found.append(
                "The log has neither op lines nor memory readings: set TTMLIR_RUNTIME_LOGGER_LEVEL=DEBUG and "
                f"TT_RUNTIME_MEMORY_LOG_LEVEL=any; if they are set, {_BUILD}."
            )
    elif not seen.op_blocks and seen.submit_blocks:
        found.append(
            "The log has readings around programs only: set TT_RUNTIME_MEMORY_LOG_LEVEL=any for one before each op."
        )
    elif not seen.op_lines and seen.op_blocks:
        found.append(
            "The log has readings but no op lines, so only op types are known: set TTMLIR_RUNTIME_LOGGER_LEVEL=DEBUG."
        )
    if seen.op_lines and all(graph.module == NONE for graph in timeline.graphs):
        found.append(
            "No module dump belongs to the graphs that ran, so weights have no names: set TTXLA_LOGGER_LEVEL=DEBUG."
            if not seen.module_dumps
            else "None of the module dumps belongs to a graph that ran, so weights have no names."
        )
    return found


def _damage(timeline: MemoryTimeline) -> list[str]:
    seen, found = timeline.evidence, []
    if timeline.unread_count:
        first = timeline.unread[0]
        found.append(
            f"{many(timeline.unread_count, 'line')} of the runtime could not be read; the first is line "
            f"{first.line}: {first.reason}."
        )
    if seen.ends_mid_line:
        found.append("The log ends in the middle of a line: it was cut off, or is still being written.")
    open_runs = [run for run in timeline.programs if not run.complete and run.name]
    if open_runs and not timeline.failures:
        last = open_runs[-1]
        found.append(
            f"{len(open_runs)} program runs have no end in the log; the last is {last.name}, line {last.first_line}."
        )
    if len(seen.ranks) > 1:
        others = ", ".join(rank for rank in seen.ranks if rank != seen.rank)
        found.append(f"This is rank {seen.rank or 'without a name'}; the log also holds {others} (--rank).")
    return found


# --- A failed allocation: why it failed, and what to try ---


_L1 = ("L1", "L1_SMALL")
_MOST_CHANGES = 6
_WORTH_PROPOSING = 0.02  # of what was needed, for a change that is not enough on its own
_WORTH_SAYING = 0.1  # of a buffer, as padding


def explain_last_failure(study: Study) -> OutOfMemory | None:
    """The last failure of the log, explained once; None when nothing failed."""
    failures = study.timeline.failures
    if not failures:
        return None
    return study.once(OutOfMemory, lambda: explain_failure(study, failures[-1]))


def explain_failure(study: Study, failure: Failure) -> OutOfMemory:
    """Classify one failure from its own numbers, or from the last snapshot where it gives none."""
    free, largest = failure.free_bytes, failure.largest_block_bytes
    is_measured = free is None and failure.kind is FailureKind.OUT_OF_MEMORY
    if is_measured:
        free, largest = _last_reading(study, failure)
    verdict = _verdict(failure, free, largest)
    changes = _replayed(study, failure)
    recovered = any(run.complete and run.first_line > failure.line for run in study.timeline.programs)
    return OutOfMemory(
        verdict=verdict,
        failure=failure,
        op=failure.op,
        needed_bytes=failure.needed_bytes,
        free_bytes=free,
        largest_block_bytes=largest,
        is_measured=is_measured and free is not None,
        recovered=recovered,
        advice=(*_facts(study, failure, verdict), *(change_text(change, failed=True) for change in changes)),
        changes=changes,
    )


def _replayed(study: Study, failure: Failure) -> tuple[Counterfactual, ...]:
    """The changes that would have saved memory; one weight that is not enough says less than all weights together."""
    if failure.op == NONE:
        return ()
    found = replay_changes(study, failure.memory, failure.op, failure)
    groups = {one.change for one in found if one.change.startswith("all weights")}
    least = (failure.needed_bytes or 0) * _WORTH_PROPOSING
    useful = (
        one
        for one in found
        if one.fits or (one.saved_bytes >= least and not (groups and one.change.startswith("const-eval of")))
    )
    return tuple(useful)[:_MOST_CHANGES]


def _last_reading(study: Study, failure: Failure) -> tuple[int | None, int | None]:
    readings = study.readings.get(failure.memory)
    state = readings.of_op(failure.op) if readings is not None and failure.op != NONE else None
    if state is None:
        return None, None
    return tick_bytes(study.timeline, state.free), tick_bytes(study.timeline, state.largest_free)


def _verdict(failure: Failure, free: int | None, largest: int | None) -> Verdict:
    if failure.kind is FailureKind.CIRCULAR_BUFFERS:
        return Verdict.CIRCULAR_BUFFERS
    needed = failure.needed_bytes
    if needed is None:
        return Verdict.UNCLEAR
    if failure.bank_bytes is not None and needed > failure.bank_bytes:
        return Verdict.OVERSIZED
    if free is not None and needed > free:
        return Verdict.CAPACITY
    if largest is not None and needed > largest:
        return Verdict.FRAGMENTATION
    return Verdict.UNCLEAR


def _facts(study: Study, failure: Failure, verdict: Verdict) -> tuple[str, ...]:
    """What the numbers of a failure mean; changes are proposed only after they were replayed."""
    facts = [*_about_padding(study, failure)]
    match verdict:
        case Verdict.FRAGMENTATION:
            facts.append("Enough is free, but not in one block: the free memory is split by buffers that lie between.")
            facts += _about_blocks(study, failure)
        case Verdict.OVERSIZED:
            facts.append("One bank can never hold its part of this buffer, even if the memory were empty.")
            if failure.memory == "L1_SMALL" and failure.needed_bytes is not None:
                least = failure.needed_bytes
                facts.append(f"L1_SMALL is sized when the device is opened: l1_small_size must be at least {least}.")
        case Verdict.CIRCULAR_BUFFERS:
            facts += _about_static_buffers(failure)
        case Verdict.UNCLEAR:
            facts.append("The numbers of the error do not explain it; look at the snapshot before the op.")
        case Verdict.CAPACITY:
            pass
    if failure.memory in _L1 and verdict is not Verdict.CIRCULAR_BUFFERS:
        facts.append("Snapshots of L1 do not show circular buffers: the true peak is higher.")
    return tuple(facts)


def change_text(change: Counterfactual, *, failed: bool) -> str:
    """A replayed change in words."""
    fits = {True: "yes", False: "no", None: "cannot be said"}[change.fits]
    if failed and change.saved_bytes == 0:
        return f"{change.change}: saves nothing, but leaves a larger free block; would fit: {fits}."
    where = f"saves {show_bytes(change.saved_bytes)} per bank of {change.memory}"
    return f"{change.change}: {where} {f'here; would fit: {fits}' if failed else 'at the peak'}."


def _about_blocks(study: Study, failure: Failure) -> list[str]:
    """The buffer that splits the free memory most, where the allocator could be replayed."""
    if failure.op == NONE or failure.memory not in study.readings:
        return []
    placement = allocator_replay(study, failure.memory).placement
    found = split_by(placement, failure.op)
    if found is None:
        return [f"The addresses of the buffers are not known: {placement.reason}."] if placement.reason else []
    buffer, size = found
    is_enough = failure.needed_bytes is not None and size >= failure.needed_bytes
    return [
        f"{buffer.owner} ({show_bytes(buffer.bank_bytes)} per bank) lies between two free blocks; without it "
        f"{show_bytes(size)} would be free in one block, which is {'enough' if is_enough else 'not enough'}."
    ]


def _about_static_buffers(failure: Failure) -> list[str]:
    """What the message of a clash says, with its numbers."""
    end, start, limit = failure.static_buffers_end, failure.tensor_start, failure.bank_bytes
    where = f" on cores {failure.cores}" if failure.cores else ""
    if end is not None and start is not None:
        return [
            f"The op's own buffers end at address {end:,}{where}, {show_bytes(end - start)} above the lowest tensor in "
            f"L1 at {start:,}: that much must leave L1 on these cores, or the op must use smaller blocks."
        ]
    if end is not None and limit is not None:
        return [
            f"The op's own buffers need {show_bytes(end)} of the {show_bytes(limit)} of L1 of a core{where}, "
            f"{show_bytes(end - limit)} too much even without any tensor: the op must use smaller blocks."
        ]
    return ["The op's own buffers in L1 meet a tensor, or do not fit; the message has no numbers."]


def _about_padding(study: Study, failure: Failure) -> list[str]:
    """How much of the failing op's result is padding, and which dimension causes it."""
    call = study.call(failure.op) if failure.op != NONE else None
    lines = []
    for row in call.result_types if call else ():
        tensor = study.timeline.types[row]
        reason = explain_padding(tensor)
        if reason and tensor.buffer is not None and tensor.logical_bytes:
            lost = tensor.buffer.padded_bytes - tensor.logical_bytes
            if lost >= tensor.buffer.padded_bytes * _WORTH_SAYING:
                lines.append(
                    f"Its result {tensor.text} takes {show_bytes(tensor.buffer.padded_bytes)} for "
                    f"{show_bytes(tensor.logical_bytes)} of elements: {reason}."
                )
    return lines
