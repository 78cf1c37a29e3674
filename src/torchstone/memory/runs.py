"""Program runs while they are being read."""

from dataclasses import dataclass

from torchstone.record.memory import NONE, ProgramRun, Role


@dataclass(slots=True)
class OpenRun:
    """A program run whose end may still come."""

    name: str
    role: Role
    parent: int
    parent_op: int
    first_op: int
    first_line: int
    cache_key: str = ""
    end_op: int = NONE
    last_line: int = NONE
    complete: bool = False


def close_run(run: OpenRun, *, end_op: int, line: int, complete: bool) -> None:
    """The run is over, by its own last line or because the log goes on with something else."""
    run.end_op, run.last_line, run.complete = end_op, line, complete


def freeze_run(run: OpenRun, *, pass_index: int, graph: int) -> ProgramRun:
    """The run as a record."""
    return ProgramRun(
        name=run.name,
        role=run.role,
        parent=run.parent,
        parent_op=run.parent_op,
        first_op=run.first_op,
        end_op=run.end_op,
        first_line=run.first_line,
        last_line=run.last_line,
        complete=run.complete,
        pass_index=pass_index,
        graph=graph,
        cache_key=run.cache_key,
    )
