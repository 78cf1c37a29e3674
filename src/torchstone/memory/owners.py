"""Whose the arguments and the cached results of a graph are: through SSA operands and the registry, never by shape."""

from dataclasses import dataclass
from functools import cached_property

from torchstone.record.memory import NONE, ArgumentKind, GraphArgument, MemoryTimeline, OpCall, ProgramRun, Role
from torchstone.record.memory_findings import Origin

_ORIGINS = {
    ArgumentKind.PARAMETER: Origin.PARAMETER,
    ArgumentKind.CONSTANT: Origin.CONSTANT,
    ArgumentKind.INPUT: Origin.INPUT,
}


@dataclass(frozen=True, slots=True)
class CachedResults:
    """What one const-eval left on the device, from one op on."""

    run: int  # row of the const-eval's run
    from_op: int
    call: OpCall  # the load_cached whose results they are
    owner: str
    key: str  # equal keys are the same buffers


class Owners:
    """Looks up owners in one timeline."""

    def __init__(self, timeline: MemoryTimeline) -> None:
        self._timeline = timeline
        self._calls = timeline.ops.calls.values()
        self._programs = timeline.ops.programs.values()

    def registry(self, graph: int) -> dict[str, GraphArgument]:
        """The arguments of a graph by SSA name, as far as its dump tells."""
        module = NONE if graph == NONE else self._timeline.graphs[graph].module
        return {} if module == NONE else {one.value: one for one in self._timeline.modules[module].arguments}

    def argument(self, graph: int, value: str) -> tuple[Origin, str]:
        """What an argument is and is called; without a dump it is an input known by its position."""
        found = self.registry(graph).get(value)
        if found is None:
            return Origin.INPUT, f"{value} of graph {graph}"
        return _ORIGINS[found.kind], found.name or f"{value} of graph {graph}"

    def cached(self, call: OpCall, graph: int) -> str:
        """Whose the results of a load_cached are."""
        names = [self.argument(graph, value)[1] for value in call.operands]
        return f"const-eval of {', '.join(names)}" if names else f"const-eval {call.callee}"

    @cached_property
    def cached_results(self) -> tuple[CachedResults, ...]:
        """What all const-evals left, in the order they ended; a later one with an equal key replaces the earlier."""
        found = []
        for number, run in enumerate(self._timeline.programs):
            if run.role is Role.CONST_EVAL and run.complete:
                call = self._caller(run)
                if call is not None:
                    owner = self.cached(call, run.graph)
                    key = run.cache_key or f"{run.graph} {run.name}"
                    found.append(CachedResults(number, run.end_op, call, owner, key))
        return tuple(found)

    def hit_key(self, op: int, call: OpCall) -> str:
        """The key under which a load_cached finds its results."""
        program = self._timeline.programs[self._programs[op]]
        for hit in self._timeline.cache_hits:
            same_graph = self._timeline.programs[self._programs[hit.op]].graph == program.graph
            if same_graph and self._calls[hit.op] == self._calls[op]:
                return hit.cache_key
        return f"{program.graph} {call.callee}"

    def _caller(self, run: ProgramRun) -> OpCall | None:
        """The load_cached that ran a const-eval; for one that stands alone, the one of its graph that names it."""
        if run.parent_op != NONE:
            call = self._calls[run.parent_op]
            return None if call == NONE else self._timeline.calls[call]
        if run.graph == NONE:
            return None
        last = self._timeline.programs[self._timeline.graphs[run.graph].runs[-1]]
        rows = (self._calls[op] for op in range(last.first_op, last.end_op))
        known = (self._timeline.calls[call] for call in rows if call != NONE)
        return next((call for call in known if call.callee == run.name), None)
