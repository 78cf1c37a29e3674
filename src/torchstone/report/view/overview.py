"""Totals, provenance, unknowns and operators of a trace, and the document of `torchstone inspect --json`."""

from collections import Counter
from typing import Any

import msgspec

from torchstone.record.base import Record
from torchstone.record.op import OpSignature
from torchstone.record.tensor import TensorSpec
from torchstone.record.trace import Failure, Trace
from torchstone.record.unique import subtree_shapes
from torchstone.record.value import show_value
from torchstone.report.view.modules import ModuleRow, inclusive_parameters, module_rows
from torchstone.units import many

# --- Operators: calls, shapes, and the modules that call them ---


NO_MODULE = -1  # the op ran outside any module


class OperatorRow(Record, frozen=True, kw_only=True):
    """One op overload."""

    op: str  # "aten.mm.default"
    calls: int
    variants: int  # distinct signatures
    modules: int  # modules that call it themselves
    backward_calls: int
    dtypes: str  # of its results, most frequent first


class VariantRow(Record, frozen=True, kw_only=True):
    """One op overload with one set of shapes and arguments."""

    signature: int  # its number in the trace
    op: str
    arguments: str
    output: str
    calls: int


class PlaceRow(Record, frozen=True, kw_only=True):
    """How often one module itself calls one op with one set of shapes and arguments."""

    signature: int
    module: int  # NO_MODULE when it ran outside any
    calls: int


class UseRow(Record, frozen=True, kw_only=True):
    """How often one module itself calls one op."""

    op: str
    module: int  # NO_MODULE when it ran outside any
    calls: int


def operator_rows(trace: Trace) -> tuple[OperatorRow, ...]:
    """One row per op overload, most called first."""
    signatures = trace.recorded_ops.signatures
    calls: Counter[str] = Counter()
    variants: Counter[str] = Counter()
    dtypes: dict[str, Counter[str]] = {}
    for number, count in sorted(trace.signature_calls().items()):
        signature = signatures[number]
        calls[signature.op] += count
        variants[signature.op] += 1
        for spec in signature.output_specs:
            dtypes.setdefault(signature.op, Counter())[spec.dtype] += count
    backward = _backward_calls(trace)
    modules = Counter(use.op for use in use_rows(trace) if use.module != NO_MODULE)
    return tuple(
        OperatorRow(
            op=op,
            calls=count,
            variants=variants[op],
            modules=modules[op],
            backward_calls=backward[op],
            dtypes=", ".join(_most_frequent(dtypes.get(op, Counter()))),
        )
        for op, count in sorted(calls.items(), key=lambda item: (-item[1], item[0]))
    )


def variant_rows(trace: Trace) -> tuple[VariantRow, ...]:
    """One row per distinct signature, in the order of the op's name and then the most called first."""
    signatures, counts = trace.recorded_ops.signatures, trace.signature_calls()
    rows = [_variant(number, signatures[number], count) for number, count in sorted(counts.items())]
    return tuple(sorted(rows, key=lambda row: (row.op, -row.calls)))


def use_rows(trace: Trace) -> tuple[UseRow, ...]:
    """Which module calls which op, in the order of the modules."""
    signatures = trace.recorded_ops.signatures
    counts: Counter[tuple[int, str]] = Counter()
    for row in place_rows(trace):
        counts[row.module, signatures[row.signature].op] += row.calls
    return tuple(UseRow(op=op, module=module, calls=count) for (module, op), count in sorted(counts.items()))


def place_rows(trace: Trace) -> tuple[PlaceRow, ...]:
    """Which module calls which op with which arguments, in the order of the modules."""
    own = trace.own_signatures  # by recorded module call
    counts: Counter[tuple[int, int]] = Counter()
    origins = trace.call_origins
    for module, row in ((NO_MODULE, NO_MODULE), *zip(origins.modules, origins.rows, strict=True)):
        for signature, count in own.get(row, ()):
            counts[module, signature] += count
    return tuple(
        PlaceRow(signature=signature, module=module, calls=count)
        for (module, signature), count in sorted(counts.items())
    )


def _backward_calls(trace: Trace) -> Counter[str]:
    """A trace with a backward pass has no repeats, so that the rows are the calls."""
    ops = trace.recorded_ops
    return Counter(ops.signatures[number].op for number in ops.signature_of[ops.forward_calls :])


def _variant(number: int, signature: OpSignature, count: int) -> VariantRow:
    arguments = ", ".join(f"{argument.name}={show_value(argument.value)}" for argument in signature.arguments)
    output = show_value(signature.output)
    return VariantRow(signature=number, op=signature.op, arguments=arguments, output=output, calls=count)


def _most_frequent(counts: Counter[str]) -> list[str]:
    return sorted(counts, key=lambda dtype: (-counts[dtype], dtype))


# --- Totals, provenance, assumptions and unknowns ---


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
    inclusive = inclusive_parameters(trace)
    parameters = {own.tensor: own for module in trace.modules for own in module.parameters}
    trainable = sum(trace.held_spec(number).elements for number, one in parameters.items() if one.trainable)
    buffers = {own.tensor for module in trace.modules for own in module.buffers}
    return Totals(
        parameters=inclusive[0].elements if inclusive else 0,
        parameter_bytes=inclusive[0].size_bytes if inclusive else 0,
        unsized_parameters=inclusive[0].unsized if inclusive else 0,
        trainable_parameters=trainable,
        buffer_bytes=sum(trace.held_spec(number).size_bytes or 0 for number in buffers),
        modules=len(trace.modules),
        unique_modules=len(set(subtree_shapes(trace))),
        called_modules=len(set(trace.call_origins.modules)),
        module_calls=trace.size.call,
        ops=trace.size.op,
        distinct_ops=len({trace.recorded_ops.signatures[number].op for number in set(trace.recorded_ops.signature_of)}),
        distinct_signatures=len(set(trace.recorded_ops.signature_of)),
    )


def _by_class(trace: Trace) -> tuple[ClassShare, ...]:
    parameters: Counter[str] = Counter()
    modules: Counter[str] = Counter()
    seen: set[int] = set()
    for module in trace.modules:
        name = module.class_name.rpartition(".")[2]
        new = {own.tensor for own in module.parameters} - seen
        seen |= new
        if module.parameters:
            modules[name] += 1
            parameters[name] += sum(trace.held_spec(tensor).elements for tensor in new)
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
        ("Created (UTC)", provenance.created.replace("T", " ").removesuffix("Z").removesuffix("+00:00")),
        (
            "Reused",
            f"{many(provenance.reused_ops, 'op call')}, from an identical layer" if provenance.reused_ops else "",
        ),
    ]
    return [Fact(name=name, value=value) for name, value in pairs if value]


def _unknown(trace: Trace, counted: Totals) -> list[str]:
    lines = list(trace.notes)
    never = sum(not module.container for module in trace.modules) - _called_workers(trace)
    if never:
        lines.append(f"{never} of {many(counted.modules, 'module was', 'modules were')} never called in this run")
    outside = sum(count for _, count in trace.own_signatures.get(-1, ()))
    if outside:
        lines.append(f"{many(outside, 'op call')} ran outside any module")
    if counted.unsized_parameters:
        unsized = many(counted.unsized_parameters, "parameter tensor has", "parameter tensors have")
        lines.append(f"{unsized} a dtype of unknown size")
    return lines


def _called_workers(trace: Trace) -> int:
    return sum(not trace.modules[number].container for number in set(trace.call_origins.modules))


# --- The document of `torchstone inspect --json` ---


SCHEMA = "torchstone/inspect/1"


def inspection_document(trace: Trace) -> dict[str, Any]:
    """Totals, modules, operators and the failure of one trace, as plain JSON values."""
    return {
        "schema": SCHEMA,
        "model": trace.provenance.model,
        "totals": msgspec.to_builtins(totals(trace)),
        "modules": [module_document(row) for row in module_rows(trace)],
        "operators": [operator_document(row) for row in operator_rows(trace)],
        "failure": failure_document(trace),
        "notes": list(trace.notes),
    }


def module_document(row: ModuleRow) -> dict[str, object]:
    """One module."""
    return {
        "path": row.path,
        "class": row.class_path,
        "parameters": row.parameters,
        "own_parameters": row.own_parameters,
        "parameter_bytes": row.parameter_bytes,
        "inputs": [_tensor_document(spec) for spec in row.inputs],
        "outputs": [_tensor_document(spec) for spec in row.outputs],
        "calls": row.calls,
        "repeat_of": row.repeat_of,
        "repeats": row.repeats,
    }


def operator_document(row: OperatorRow) -> dict[str, object]:
    """One operator."""
    return {
        "op": row.op,
        "calls": row.calls,
        "variants": row.variants,
        "modules": row.modules,
        "backward_calls": row.backward_calls,
    }


def failure_document(trace: Trace) -> dict[str, object] | None:
    """Where and how the forward pass ended early; None when it did not."""
    if trace.failure is None:
        return None
    failure = trace.failure
    return {
        "module": failure.module,
        "op": failure.op or None,
        "error": failure.error,
        "arguments": failure.arguments,
        "location": failure.location,
    }


def _tensor_document(spec: TensorSpec) -> dict[str, object]:
    return {"shape": list(spec.shape), "dtype": spec.dtype}
