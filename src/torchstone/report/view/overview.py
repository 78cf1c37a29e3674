"""The headline of a trace: totals, where it comes from, and what is not known."""

from collections import Counter

from torchstone.record.base import Record
from torchstone.record.trace import Failure, Trace
from torchstone.record.unique import subtree_shapes
from torchstone.report.view.parameters import inclusive_parameters


class Totals(Record, frozen=True, kw_only=True):
    """The numbers people ask for first."""

    parameters: int  # each distinct tensor once
    parameter_bytes: int  # of those whose element type is known
    unsized_parameters: int  # parameter tensors whose element type is not known
    trainable_parameters: int
    buffer_bytes: int
    modules: int
    unique_modules: int  # distinct subtrees: class, attributes, parameter and call shapes
    called_modules: int
    module_calls: int
    ops: int
    distinct_ops: int
    distinct_signatures: int


class Fact(Record, frozen=True, kw_only=True):
    """One line of provenance."""

    name: str
    value: str


class ClassShare(Record, frozen=True, kw_only=True):
    """How many parameters the modules of one class hold themselves."""

    class_name: str  # without its Python module
    parameters: int  # each distinct tensor once, at its first holder
    modules: int


class OverviewView(Record, frozen=True, kw_only=True):
    """What the first page shows."""

    model: str
    totals: Totals
    facts: tuple[Fact, ...]
    by_class: tuple[ClassShare, ...]  # classes that hold parameters, most first
    unknown: tuple[str, ...]
    failure: Failure | None


def overview(trace: Trace, *, source: bool = True) -> OverviewView:
    """The first page; without source it names no file, line or command."""
    failure = trace.failure
    if failure is not None and not source:
        failure = Failure(
            module=failure.module, op=failure.op, arguments=failure.arguments, error=failure.error, location=""
        )
    counted = totals(trace)
    return OverviewView(
        model=trace.provenance.model,
        totals=counted,
        facts=tuple(_facts(trace, source=source)),
        by_class=_by_class(trace),
        unknown=tuple(_unknown(trace, counted)),
        failure=failure,
    )


def totals(trace: Trace) -> Totals:
    """The numbers people ask for first."""
    held = inclusive_parameters(trace)
    parameters = {held.tensor: held for module in trace.modules for held in module.parameters}
    trainable = sum(trace.tensors[number].spec.elements for number, one in parameters.items() if one.trainable)
    buffers = {held.tensor for module in trace.modules for held in module.buffers}
    return Totals(
        parameters=held[0].elements if held else 0,
        parameter_bytes=held[0].size_bytes if held else 0,
        unsized_parameters=held[0].unsized if held else 0,
        trainable_parameters=trainable,
        buffer_bytes=sum(trace.tensors[number].spec.size_bytes or 0 for number in buffers),
        modules=len(trace.modules),
        unique_modules=len(set(subtree_shapes(trace))),
        called_modules=len(set(trace.module_calls.modules)),
        module_calls=len(trace.module_calls),
        ops=len(trace.ops),
        distinct_ops=len({trace.ops.signatures[number].op for number in set(trace.ops.signature_of)}),
        distinct_signatures=len(set(trace.ops.signature_of)),
    )


def _by_class(trace: Trace) -> tuple[ClassShare, ...]:
    parameters: Counter[str] = Counter()
    modules: Counter[str] = Counter()
    seen: set[int] = set()
    for module in trace.modules:
        name = module.class_name.rpartition(".")[2]
        new = {held.tensor for held in module.parameters} - seen
        seen |= new
        if module.parameters:
            modules[name] += 1
            parameters[name] += sum(trace.tensors[tensor].spec.elements for tensor in new)
    order = sorted(modules, key=lambda name: (-parameters[name], name))
    return tuple(ClassShare(class_name=name, parameters=parameters[name], modules=modules[name]) for name in order)


def _facts(trace: Trace, *, source: bool) -> list[Fact]:
    provenance = trace.provenance
    versions = ", ".join(f"{name} {version}" for name, version in sorted(provenance.versions.items()))
    mode = f"{provenance.mode} ({provenance.mode_reason})" if provenance.mode_reason else provenance.mode
    pairs = [
        ("Model", provenance.model),
        ("Mode", mode),
        ("Phase", provenance.phase),
        ("Inputs", provenance.inputs),
        ("Versions", versions),
        ("Command", provenance.command if source else ""),
        ("Made (UTC)", provenance.created.replace("T", " ").removesuffix("Z").removesuffix("+00:00")),
        (
            "Reused",
            f"{provenance.reused_ops:,} op calls, from an equal layer that ran" if provenance.reused_ops else "",
        ),
    ]
    return [Fact(name=name, value=value) for name, value in pairs if value]


def _unknown(trace: Trace, counted: Totals) -> list[str]:
    lines = list(trace.notes)
    never = sum(not module.container for module in trace.modules) - _called_workers(trace)
    if never:
        lines.append(f"{never} of {counted.modules} modules were never called in this run")
    outside = sum(call < 0 for call in trace.ops.module_calls)
    if outside:
        lines.append(f"{outside} op calls ran outside any module")
    if counted.unsized_parameters:
        lines.append(f"{counted.unsized_parameters} parameter tensors have an element type whose size is not known")
    return lines


def _called_workers(trace: Trace) -> int:
    return sum(not trace.modules[number].container for number in set(trace.module_calls.modules))
