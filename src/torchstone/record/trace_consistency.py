"""What stages rely on when they look up rows of a trace by number, checked once when a trace is decoded."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torchstone.record.consistency import distinct, in_range, rows_in_range, same_length
from torchstone.record.repeats import Expansion, Place, Tables
from torchstone.record.value import tensors_in

if TYPE_CHECKING:
    from torchstone.record.module import Module
    from torchstone.record.trace import Trace

MAX_TRACE_ROWS = 20_000_000  # op calls, module calls or tensors, copies included: about 1 KB each when written out


def check_trace(trace: "Trace") -> None:
    """Everything that stages rely on when they look up rows of a trace by number."""
    _check_columns(trace.recorded)
    _check_repeats(trace)
    _check_modules(trace.modules, trace.size.tensor)
    _check_external(trace)
    if trace.lines is not None:
        trace.lines.check(len(trace.recorded_ops), len(trace.recorded_calls), trace.repeats)
    if not trace.repeats:
        _check_tables(trace.recorded, len(trace.modules))
        return
    for name, rows in (("inputs", trace.recorded_ops.inputs), ("outputs", trace.recorded_ops.outputs)):
        rows_in_range(f"{name} of ops", rows, trace.size.tensor)
    in_range("module calls of ops", set(trace.recorded_ops.module_calls) - {-1}, trace.size.call)
    known_calls = trace.recorded_call_rows
    if any(call >= 0 and call not in known_calls for call in trace.recorded_ops.module_calls):
        msg = "a recorded op call belongs to a copy of a module call"
        raise ValueError(msg)
    _check_copies(trace)


def _check_columns(tables: Tables) -> None:
    tensors, calls, ops = tables.tensors, tables.module_calls, tables.ops
    same_length(spec_of=tensors.spec_of, storage_of=tensors.storage_of)
    same_length(
        modules=calls.modules, signature_of=calls.signature_of, parents=calls.parents, inputs=calls.inputs,
        outputs=calls.outputs, first_ops=calls.first_ops, end_ops=calls.end_ops,
    )  # fmt: skip
    same_length(signature_of=ops.signature_of, inputs=ops.inputs, outputs=ops.outputs, module_calls=ops.module_calls)
    in_range("spec_of", tensors.spec_of, len(tensors.specs))
    in_range("signature_of of module calls", calls.signature_of, len(calls.signatures))
    in_range("signature_of of ops", ops.signature_of, len(ops.signatures))


def _check_modules(modules: Sequence["Module"], tensors: int) -> None:
    """The root is first, and every other module stands after its parent, in pre-order."""
    if not modules:
        msg = "there is no module"
        raise ValueError(msg)
    distinct("modules", [module.path for module in modules])
    open_path: list[int] = []
    for number, module in enumerate(modules):
        while open_path and open_path[-1] != module.parent:
            open_path.pop()
        if number and not open_path:
            msg = f"the parent {module.parent} of module {number} is not before it in pre-order"
            raise ValueError(msg)
        open_path.append(number)
        in_range(f"parameters of module {number}", [own.tensor for own in module.parameters], tensors)
        in_range(f"buffers of module {number}", [own.tensor for own in module.buffers], tensors)
    if modules[0].parent != -1:
        msg = f"the root has the parent {modules[0].parent}"
        raise ValueError(msg)


def _check_external(trace: "Trace") -> None:
    """Tensors from before the forward pass are in order, and parameters stand before all copies."""
    external = trace.recorded_tensors.external
    outside = [one.tensor for one in external]
    in_range("external", outside, trace.size.tensor)
    if outside != sorted(set(outside)):
        msg = "external tensors are not in order"
        raise ValueError(msg)
    first_copied = trace.repeats[0].at.tensor if trace.repeats else trace.size.tensor
    in_range("external parameters", [one.tensor for one in external if one.kind == "parameter"], first_copied)


def _check_tables(tables: Tables, modules: int) -> None:
    """Tables without repeats: a number is a row."""
    tensors, calls, ops = tables.tensors, tables.module_calls, tables.ops
    in_range("storage_of", tensors.storage_of, MAX_TRACE_ROWS)
    in_range("gradients", {*tensors.gradients, *tensors.gradients.values()}, len(tensors))
    in_range("left", (tensors.left or {}).values(), len(tensors))
    in_range("modules of module calls", calls.modules, modules)
    rows_in_range("inputs of module calls", calls.inputs, len(tensors))
    rows_in_range("outputs of module calls", calls.outputs, len(tensors))
    for number, (parent, first, end) in enumerate(zip(calls.parents, calls.first_ops, calls.end_ops, strict=True)):
        if not -1 <= parent < number or not 0 <= first <= end <= len(ops):
            msg = f"module call {number} has the parent {parent} and the op calls {first} to {end}"
            raise ValueError(msg)
    rows_in_range("inputs of ops", ops.inputs, len(tensors))
    rows_in_range("outputs of ops", ops.outputs, len(tensors))
    in_range("module calls of ops", ops.module_calls, len(calls), start=-1)
    in_range("writes", ops.writes, len(ops))
    for number, written in ops.writes.items():
        if not {*ops.inputs[number], *ops.outputs[number]}.issuperset(written):
            msg = f"op call {number} writes the tensors {written}, which it is not given"
            raise ValueError(msg)
    in_range("forward_calls", [ops.forward_calls], len(ops) + 1)
    _check_signatures(tables)


def _check_signatures(tables: Tables) -> None:
    """Each op call has as many tensors as its signature."""
    ops = tables.ops
    sizes = [
        (sum(len(tensors_in(one.value)) for one in signature.arguments), len(tensors_in(signature.output)))
        for signature in ops.signatures
    ]
    for number, (signature, inputs, outputs) in enumerate(zip(ops.signature_of, ops.inputs, ops.outputs, strict=True)):
        if (len(inputs), len(outputs)) != sizes[signature]:
            msg = f"op call {number} has {len(inputs)} inputs and {len(outputs)} outputs, its signature others"
            raise ValueError(msg)


# --- Repeats of a trace ---


def _check_repeats(trace: "Trace") -> None:
    """Each repeat copies what stands before it, and the rows between repeats are recorded."""
    start = Place(op=0, call=0, tensor=0, storage=0)
    recorded = Place(
        op=len(trace.recorded_ops), call=len(trace.recorded_calls), tensor=len(trace.recorded_tensors), storage=0
    )
    end = copied = start
    for repeat in trace.repeats:
        places = (start, repeat.start, repeat.end, repeat.at)
        if repeat.copies < 1 or not all(map(Place.precedes, places, places[1:])) or not end.precedes(repeat.at):
            msg = f"the repeat at op call {repeat.at.op} is out of order"
            raise ValueError(msg)
        before = repeat.at.plus(copied, -1)
        if before.op > recorded.op or before.call > recorded.call or before.tensor > recorded.tensor:
            msg = f"the repeat at op call {repeat.at.op} stands after the last recorded row"
            raise ValueError(msg)
        for rows in (trace.recorded_ops.inputs, trace.recorded_ops.outputs):  # tensors are numbered when first met
            rows_in_range("op calls before a repeat", rows[end.op - copied.op : before.op], repeat.at.tensor)
        copied = copied.plus(repeat.length, repeat.copies)
        end = repeat.stop
    size = trace.size
    if max(size.op, size.call, size.tensor, end.storage) > MAX_TRACE_ROWS:
        msg = f"with its copies it has {max(size.op, size.call, size.tensor):,} rows, more than {MAX_TRACE_ROWS:,}"
        raise ValueError(msg)


def _check_copies(trace: "Trace") -> None:
    """Write out the first and the last copy of each repeat: the numbers of those between lie between theirs."""
    in_range("parents of repeats", [repeat.parent for repeat in trace.repeats], trace.size.call, start=-1)
    try:
        growing = Expansion(trace.recorded, [repeat for repeat in trace.repeats if repeat.copies > 2])  # noqa: PLR2004 - first and last
        for repeat in trace.repeats:
            growing.add_copies(repeat)
        tables = growing.finish()
        times = trace.times
    except (KeyError, IndexError) as error:
        msg = f"a repeat uses tensor or storage {error}, which it does not name"
        raise ValueError(msg) from error
    _check_columns(tables)
    _check_tables(tables, len(trace.modules))
    if sum(times.ops) != trace.size.op or sum(times.calls) != trace.size.call or min(times.calls, default=1) < 1:
        msg = "the repeats do not add up to the size of the trace"
        raise ValueError(msg)
    in_range("modules of module calls", trace.call_origins.modules, len(trace.modules))
