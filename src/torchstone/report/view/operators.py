"""The operators of a trace: how often each is called, with which shapes, and by which modules."""

from collections import Counter

from torchstone.record.base import Record
from torchstone.record.op import OpSignature
from torchstone.record.trace import Trace
from torchstone.record.value import show_value

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


class UseRow(Record, frozen=True, kw_only=True):
    """How often one module itself calls one op."""

    op: str
    module: int  # NO_MODULE when it ran outside any
    calls: int


def operator_rows(trace: Trace) -> tuple[OperatorRow, ...]:
    """One row per op overload, most called first."""
    signatures = trace.ops.signatures
    calls: Counter[str] = Counter()
    variants: Counter[str] = Counter()
    dtypes: dict[str, Counter[str]] = {}
    for number, count in sorted(Counter(trace.ops.signature_of).items()):
        signature = signatures[number]
        calls[signature.op] += count
        variants[signature.op] += 1
        for spec in signature.output_specs:
            dtypes.setdefault(signature.op, Counter())[spec.dtype] += count
    backward = Counter(signatures[number].op for number in trace.ops.signature_of[trace.ops.forward_calls :])
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
    counts = Counter(trace.ops.signature_of)
    rows = [_variant(number, trace.ops.signatures[number], count) for number, count in sorted(counts.items())]
    return tuple(sorted(rows, key=lambda row: (row.op, -row.calls)))


def use_rows(trace: Trace) -> tuple[UseRow, ...]:
    """Which module calls which op, in the order of the modules."""
    signatures = trace.ops.signatures
    module_of_call = trace.module_calls.modules
    pairs = zip(trace.ops.module_calls, trace.ops.signature_of, strict=True)
    counts = Counter((NO_MODULE if call < 0 else module_of_call[call], signatures[number].op) for call, number in pairs)
    return tuple(UseRow(op=op, module=module, calls=count) for (module, op), count in sorted(counts.items()))


def _variant(number: int, signature: OpSignature, count: int) -> VariantRow:
    arguments = ", ".join(f"{argument.name}={show_value(argument.value)}" for argument in signature.arguments)
    output = show_value(signature.output)
    return VariantRow(signature=number, op=signature.op, arguments=arguments, output=output, calls=count)


def _most_frequent(counts: Counter[str]) -> list[str]:
    return sorted(counts, key=lambda dtype: (-counts[dtype], dtype))
