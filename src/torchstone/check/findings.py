"""What the search found -> the record of the check: statuses, findings in the order to fix them, and how much works."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from torchstone.check.localize import Cause, Search
from torchstone.check.plan import ModuleConclusion, Plan, Unit
from torchstone.check.programs import configuration_text
from torchstone.check.repro import Repro
from torchstone.check.requests import Requests
from torchstone.record.base import Record
from torchstone.record.check import (
    UNJUDGED,
    Blame,
    CheckedCall,
    CheckedModule,
    CheckedOp,
    Finding,
    Status,
    Totals,
    UnitResult,
)
from torchstone.record.trace import Trace
from torchstone.record.unique import UniqueModule


class WeightedCause(Record, frozen=True, kw_only=True):
    """A cause with what it concerns."""

    cause: Cause
    ops: tuple[str, ...]
    arguments: str
    modules: tuple[str, ...]
    calls: int
    flops: int | None


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
        self._calls = Counter(trace.ops.signature_of[: trace.ops.forward_calls or len(trace.ops)])

    def weighted(self) -> list[WeightedCause]:
        """The causes, each once, the one to fix first at the front."""
        merged: dict[Any, WeightedCause] = {}
        for cause in self._search.causes:
            one = self._weigh(cause)
            key = (cause.blame, one.ops, one.arguments, cause.result.outcome, *self._module_key(cause))
            known = merged.get(key)
            if known is None:
                merged[key] = one
            else:
                merged[key] = msgspec.structs.replace(
                    known, modules=tuple(dict.fromkeys((*known.modules, *one.modules))), calls=known.calls + one.calls
                )
        return sorted(merged.values(), key=lambda one: (-(one.flops or 0), -one.calls, one.ops, one.modules))

    def findings(self, weighted: Sequence[WeightedCause], repros: Sequence[Repro]) -> tuple[Finding, ...]:
        """The causes as records."""
        return tuple(
            Finding(
                id=f"finding_{number:03}",
                blame=one.cause.blame,
                ops=one.ops,
                arguments=one.arguments,
                modules=one.modules,
                module_path=self._path(one.cause.row),
                outcome=one.cause.result.outcome,
                reason=one.cause.result.reason or one.cause.note,
                note=one.cause.note,
                numbers=one.cause.result.numbers,
                calls=one.calls,
                flops=one.flops,
                repro=repro.file,
                confirmed=repro.confirmed,
                shapes=repro.shapes,
                needs=repro.needs,
                ran_at=one.cause.result.ran_at,
                reused=one.cause.result.reused,
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
        for number, tried in enumerate(self._search.ops.values()):
            call = self._requests.program(tried.row).steps[tried.place].op_call
            arguments, output = configuration_text(self._trace, call)
            found.append(
                CheckedOp(
                    id=f"op_{number:03}",
                    op=self._trace.ops.signatures[tried.signature].op,
                    arguments=arguments,
                    output=output,
                    module=tried.module,
                    calls=self._calls[tried.signature],
                    flops=self._flops_of(tried.signature),
                    result=tried.result,
                )
            )
        return tuple(found)

    def totals(self) -> Totals:
        """How many op calls work: those of no cause, and in no module that fails for an unknown reason."""
        broken = self._broken_calls()
        unknown = self._unknown_calls() - broken
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

    def _weigh(self, cause: Cause) -> WeightedCause:
        program = self._requests.program(cause.row)
        calls = [program.steps[place].op_call for place in cause.places]
        signatures = [self._trace.ops.signature_of[call] for call in calls]
        texts = [configuration_text(self._trace, call)[0] for call in calls]
        unit = self._plan.units[cause.unit]
        if cause.blame is Blame.OP and signatures[0] in self._search.ops:
            concerned = self._calls[signatures[0]]
            flops = self._flops_of(signatures[0])
        elif cause.places:
            concerned = unit.calls * len(calls)
            each = self._flops_of_calls(calls)
            flops = None if each is None else each * unit.calls
        else:
            concerned = unit.calls * len(program.steps)
            each = self._flops_of_calls([step.op_call for step in program.steps])
            flops = None if each is None else each * unit.calls
        return WeightedCause(
            cause=cause,
            ops=tuple(self._trace.ops.signatures[number].op for number in signatures),
            arguments="; ".join(texts),
            modules=self._modules_with(cause, signatures),
            calls=concerned,
            flops=flops,
        )

    def _modules_with(self, cause: Cause, signatures: Sequence[int]) -> tuple[str, ...]:
        if cause.blame is not Blame.OP:
            return (cause.module,)
        found = [cause.module]
        for unit in self._search.failed_units():
            own = {
                self._trace.ops.signature_of[step.op_call]
                for step in self._requests.program(unit.row).steps
                if step.own
            }
            if signatures[0] in own:
                found.append(unit.module)
        return tuple(dict.fromkeys(found))

    def _module_key(self, cause: Cause) -> tuple[str, ...]:
        return () if cause.places else (cause.module,)

    def _module(self, module: UniqueModule, conclusion: ModuleConclusion, findings: Sequence[Finding]) -> CheckedModule:
        units = [unit for unit in self._plan.units.values() if unit.module == module.id]
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

    def _broken_calls(self) -> set[int]:
        """Op calls that a cause concerns, in every occurrence of its module."""
        blamed = {number for number, tried in self._search.ops.items() if tried.result.failed}
        broken = {call for call, number in enumerate(self._trace.ops.signature_of) if number in blamed}
        for cause in self._search.causes:
            if cause.places:
                broken |= self._in_all_calls(cause, cause.places)
        return broken

    def _unknown_calls(self) -> set[int]:
        unknown: set[int] = set()
        for cause in self._search.causes:
            if not cause.places:
                unknown |= self._in_all_calls(cause, range(len(self._requests.program(cause.row).steps)))
        return unknown

    def _in_all_calls(self, cause: Cause, places: Sequence[int]) -> set[int]:
        """The same steps in the other calls of this kind of the unique module."""
        calls = self._trace.module_calls
        path_of = {module.path: number for number, module in enumerate(self._trace.modules)}
        unique = next(module for module in self._plan.unique if module.id == cause.module)
        members = {path_of[path] for path in unique.occurrences}
        length = calls.end_ops[cause.row] - calls.first_ops[cause.row]
        rows = [
            row
            for row, number in enumerate(calls.modules)
            if number in members and calls.end_ops[row] - calls.first_ops[row] == length
        ]
        return {calls.first_ops[row] + place for row in rows for place in places}

    def _flops_of(self, signature: int) -> int | None:
        """Of all calls of a signature together."""
        each = None if self._flops is None else self._flops[signature]
        return None if each is None else each * self._calls[signature]

    def _flops_of_calls(self, calls: Sequence[int]) -> int | None:
        """None where no prices are known; ops without a price do not count."""
        if self._flops is None:
            return None
        return sum(self._flops[self._trace.ops.signature_of[call]] or 0 for call in calls)

    def _path(self, row: int) -> str:
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
