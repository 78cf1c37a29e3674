"""MemoryTimeline -> what is missing from the log and which switch brings it, in sentences."""

from torchstone.record.memory import NONE, MemoryTimeline

_BUILD = (
    "the runtime must be built with -DTT_RUNTIME_DEBUG=ON (CMAKE_BUILD_TYPE=Debug alone is not enough; "
    "`cmake --preset debug` sets both)"
)


def diagnose(timeline: MemoryTimeline) -> tuple[str, ...]:
    """Everything a reader should know before trusting the numbers; empty when nothing is missing."""
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
            f"{timeline.unread_count} lines claim to be the runtime's and could not be read; the first is line "
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
