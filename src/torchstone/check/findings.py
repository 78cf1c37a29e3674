"""What the search found -> the record of the check: statuses, findings in the order to fix them, and how much works."""

from collections.abc import Iterator, Mapping, Sequence

from torchstone.check.causes import Cause
from torchstone.check.localize import Search
from torchstone.check.plan import ModuleConclusion, Plan, Unit
from torchstone.check.repro import Repro
from torchstone.check.requests import Requests
from torchstone.check.runner import status_of
from torchstone.record.base import Record
from torchstone.record.check import (
    UNJUDGED,
    CheckedCall,
    CheckedModule,
    CheckedOp,
    Finding,
    Occurrence,
    Standing,
    Status,
    Totals,
    UnitResult,
)
from torchstone.record.trace import Trace
from torchstone.record.unique import UniqueModule


class WeightedCause(Record, frozen=True, kw_only=True):
    """Causes with the same ops and outcome, and what they concern."""

    cause: Cause  # the first of them, and the one that the script shows
    ops: tuple[str, ...]
    configurations: tuple[str, ...]
    modules: tuple[str, ...]
    calls: int
    op_calls: frozenset[int]
    flops: int | None
    proven: bool


class Conclusion:
    """Reads a finished search; FLOPs per call of each op signature make the weights, where they are known."""

    def __init__(
        self, trace: Trace, found: Plan, search: Search, requests: Requests, flops: Sequence[int | None] | None
    ) -> None:
        self._trace = trace
        self._plan = found
        self._search = search
        self._requests = requests
        self._flops = flops

    def weighted(self) -> list[WeightedCause]:
        """The causes, those of the same ops as one, the one to fix first at the front."""
        merged: dict[object, list[Cause]] = {}
        for cause in self._search.causes:
            ops = self._search.ops_of(cause)
            key = (cause.blame, ops, cause.result.outcome, "" if cause.places else cause.unit)
            merged.setdefault(key, []).append(cause)
        weighted = [self._weigh(causes) for causes in merged.values()]
        return sorted(weighted, key=lambda one: (not one.proven, -(one.flops or 0), -one.calls, one.ops, one.modules))

    def findings(self, weighted: Sequence[WeightedCause], repros: Sequence[Repro]) -> tuple[Finding, ...]:
        """The causes as records."""
        return tuple(
            Finding(
                id=f"finding_{number:03}",
                blame=one.cause.blame,
                op=" + ".join(one.ops),
                ops=one.ops,
                arguments=one.configurations[0] if one.configurations else "",
                configurations=one.configurations,
                proven=one.proven,
                proof=one.cause.proof,
                source=self._search.line_of(one.cause),
                modules=one.modules,
                module_path=self._path_of(one.cause),
                outcome=one.cause.result.outcome,
                reason=one.cause.result.reason or one.cause.note,
                note=one.cause.note,
                numbers=one.cause.result.numbers,
                evidence=one.cause.result.proof,
                calls=one.calls,
                op_calls=len(one.op_calls),
                flops=one.flops,
                repro=repro.file,
                confirmed=repro.confirmed,
                nodes=repro.nodes,
                shapes=repro.shapes,
                needs=repro.needs,
                ladder=repro.ladder,
                twin=repro.twin,
            )
            for number, (one, repro) in enumerate(zip(weighted, repros, strict=True), start=1)
        )

    def modules(self, findings: Sequence[Finding]) -> tuple[CheckedModule, ...]:
        """Every unique module with its status."""
        conclusion = self._search.walk.conclude()
        return tuple(self._module(module, conclusion[module.id], findings) for module in self._plan.unique)

    def ops(self) -> tuple[CheckedOp, ...]:
        """The op configurations that ran alone."""
        found = []
        tops = [self._search.graphs.of(unit) for unit in self._search.top_units()] if self._search.ops else []
        for number, (signature, tried) in enumerate(self._search.ops.items()):
            step = self._search.graphs.of(self._search.units[tried.unit]).steps[tried.place]
            same = [other for graph in tops for other in graph.steps if other.signature == signature] or [step]
            found.append(
                CheckedOp(
                    id=f"op_{number:03}",
                    op=step.op,
                    arguments=step.arguments,
                    output=step.output,
                    module=self._search.units[tried.unit].module,
                    calls=len(same),
                    flops=self._flops_of_calls([call for other in same for call in other.op_calls]),
                    result=tried.result,
                )
            )
        return tuple(found)

    def totals(self, weighted: Sequence[WeightedCause]) -> Totals:
        """How many op calls work: those of no cause, and in no module that fails for an unknown reason."""
        broken = {call for one in weighted if one.proven for call in one.op_calls}
        unknown = {call for one in weighted if not one.proven for call in one.op_calls} - broken
        end = self._trace.ops.forward_calls or len(self._trace.ops)
        working = [call for call in range(end) if call not in broken and call not in unknown]
        flops = self._flops_of_calls(range(end))
        return Totals(
            op_calls=end,
            working_calls=len(working),
            unknown_calls=len(unknown),
            flops=flops,
            working_flops=None if flops is None else self._flops_of_calls(working),
        )

    def _weigh(self, causes: Sequence[Cause]) -> WeightedCause:
        first = min(causes, key=lambda cause: not cause.proven)
        places = {place for cause in causes for place in self._search.everywhere(cause)}
        if first.places:
            calls = frozenset(call for _, calls in places for call in calls)
            count = len(places)
        else:
            calls = frozenset(call for cause in causes for call in self._calls_of_module(cause))
            count = len(calls)
        return WeightedCause(
            cause=first,
            ops=self._search.ops_of(first),
            configurations=tuple(dict.fromkeys(map(self._search.arguments_of, causes))) if first.places else (),
            modules=tuple(dict.fromkeys(cause.module for cause in causes)),
            calls=count,
            op_calls=calls,
            flops=self._flops_of_calls(sorted(calls)),
            proven=all(cause.proven for cause in causes),
        )

    def _calls_of_module(self, cause: Cause) -> Iterator[int]:
        """The op calls of a module in every call of this kind."""
        calls = self._trace.module_calls
        path_of = {module.path: number for number, module in enumerate(self._trace.modules)}
        unique = next(module for module in self._plan.unique if module.id == cause.module)
        members = {path_of[path] for path in unique.occurrences}
        length = calls.end_ops[cause.row] - calls.first_ops[cause.row]
        for row, number in enumerate(calls.modules):
            if number in members and calls.end_ops[row] - calls.first_ops[row] == length:
                yield from range(calls.first_ops[row], calls.end_ops[row])

    def _module(self, module: UniqueModule, conclusion: ModuleConclusion, findings: Sequence[Finding]) -> CheckedModule:
        units = [unit for unit in self._search.units.values() if unit.module == module.id]
        results = {unit.id: self._search.results.get(unit.id) for unit in units}
        worst = _worst([result for result in results.values() if result is not None])
        notes = {note for unit in units if results[unit.id] is not None for note in self._notes(unit)}
        return CheckedModule(
            **{name: getattr(module, name) for name in UniqueModule.__struct_fields__ if name not in _OWN},
            status=conclusion.status.value,
            outcome=None if worst is None else worst.outcome.value,
            reason=worst.reason if worst is not None else _skip_reason(module, conclusion, units),
            children_status=None if conclusion.children_status is None else conclusion.children_status.value,
            numbers=None if worst is None else worst.numbers,
            evidence=None if worst is None else worst.proof,
            irs=tuple(file for result in results.values() if result is not None for file in result.irs),
            ir_error="" if worst is None else worst.ir_error,
            checked_calls=tuple(
                CheckedCall(
                    id=unit.id, call=unit.row, calls=unit.calls, inputs=unit.inputs, result=results[unit.id]
                )
                for unit in units
            ),
            occurrence_results=self._occurrences(module, units),
            findings=tuple(finding.id for finding in findings if module.id in finding.modules),
            notes=tuple(sorted(notes)),
            flops=self._module_flops(units),
            elapsed_s=sum(result.elapsed_s for result in results.values() if result is not None),
        )  # fmt: skip

    def _notes(self, unit: Unit) -> list[str]:
        why = self._requests.no_code_reason(unit)
        return [why] if why else []

    def _module_flops(self, units: Sequence[Unit]) -> int | None:
        total = 0
        for unit in units:
            call = self._trace.module_calls[unit.row]
            one = self._flops_of_calls(range(call.first_op, call.end_op))
            if one is None:
                return None
            total += one * unit.calls
        return total

    def _occurrences(self, module: UniqueModule, units: Sequence[Unit]) -> tuple[Occurrence, ...]:
        """Every occurrence: those that ran with their own results, the others as the one that stood for them."""
        calls = self._trace.module_calls
        ran: dict[str, list[UnitResult]] = {}
        for unit in units:
            result = self._search.results.get(unit.id)
            if result is not None:
                ran.setdefault(self._trace.modules[calls.modules[unit.row]].path, []).append(result)
        if not ran:
            return ()
        stood = ran.get(module.occurrences[0]) or next(iter(ran.values()))
        first = status_of(_worst(stood) or stood[0])
        found = []
        for path in module.occurrences:
            own = _worst(ran.get(path, []))
            status = first if own is None else status_of(own)
            tested = Standing.TESTED if status is first else Standing.REFUTED
            standing = Standing.ASSUMED if own is None else tested
            found.append(
                Occurrence(
                    path=path, standing=standing, status=status.value,
                    outcome=None if own is None else own.outcome.value, reason="" if own is None else own.reason,
                )
            )  # fmt: skip
        return tuple(found)

    def _flops_of_calls(self, calls: Sequence[int]) -> int | None:
        """None where no prices are known; ops without a price do not count."""
        if self._flops is None:
            return None
        return sum(self._flops[self._trace.ops.signature_of[call]] or 0 for call in calls)

    def _path_of(self, cause: Cause) -> str:
        """The module whose code makes the last call of a cause, as the trace knows it."""
        calls = self._search.calls_of(cause)
        row = self._trace.ops[calls[-1]].module_call if calls and len(cause.places) == 1 else cause.row
        return self._trace.modules[self._trace.module_calls.modules[row]].path


_OWN = frozenset({"status", "outcome"})


def _worst(results: Sequence[UnitResult]) -> UnitResult | None:
    """The first failure, or what was not judged, or the first that passed."""
    order: Mapping[bool, int] = {True: 0, False: 1}
    return min(
        results,
        key=lambda result: (order[result.failed], result.outcome not in UNJUDGED),
        default=None,
    )


def _skip_reason(module: UniqueModule, conclusion: ModuleConclusion, units: Sequence[Unit]) -> str:
    """Why a module was not run."""
    if conclusion.status is Status.INHERITED_SUCCESS:
        return ""
    if module.container:
        return "a container: what it holds was run" if conclusion.reached else "not reached"
    if not units:
        return "never called"
    return "" if conclusion.reached else "not reached: a limit of this check kept the walk from it"
