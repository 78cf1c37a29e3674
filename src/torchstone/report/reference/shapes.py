"""tensors.csv, hierarchy.txt and parameters.csv: every intermediate tensor, the module tree, every parameter."""

from collections.abc import Iterator

from torchstone.record.trace import Trace
from torchstone.report.inspect_text import TreeOptions, tree_text
from torchstone.report.spreadsheet import write_csv

TENSOR_COLUMNS = ("tensor", "op_call", "op", "module", "shape", "dtype", "bytes", "kind")
PARAMETER_COLUMNS = ("name", "module", "kind", "shape", "dtype", "elements", "bytes", "trainable", "tied_to")


def tensors_csv(trace: Trace) -> bytes:
    """Every tensor of the run, in order of its number: what made it, where, and its shape."""
    return write_csv(TENSOR_COLUMNS, _tensor_rows(trace))


def _tensor_rows(trace: Trace) -> Iterator[tuple[object, ...]]:
    external = {one.tensor: one for one in trace.tensors.external}
    made_by: dict[int, int] = {}
    for op, outputs in enumerate(trace.ops.outputs):
        for tensor in outputs:
            made_by.setdefault(tensor, op)
    for number in range(len(trace.tensors)):
        spec = trace.tensors[number].spec
        shape = "x".join(map(str, spec.shape)) or "scalar"
        if number in external or number not in made_by:
            name, kind = (external[number].name, external[number].kind) if number in external else ("", "unknown")
            yield number, None, name, "", shape, spec.dtype, spec.size_bytes, kind
        else:
            call = trace.ops[made_by[number]]
            yield (
                number,
                call.index,
                call.op,
                trace.module_path_of(call),
                shape,
                spec.dtype,
                spec.size_bytes,
                "intermediate",
            )


def hierarchy_txt(trace: Trace) -> bytes:
    """The whole module tree with classes, shapes and calls, nothing folded."""
    text = tree_text(trace, TreeOptions(columns=("class", "inputs", "outputs", "params", "calls"), fold=False))
    return f"{text}\n".encode()


def parameters_csv(trace: Trace) -> bytes:
    """Every parameter and buffer by path; a tied one names its twin."""
    return write_csv(PARAMETER_COLUMNS, _parameter_rows(trace))


def _parameter_rows(trace: Trace) -> Iterator[tuple[object, ...]]:
    first_name: dict[int, str] = {}
    for module in trace.modules:
        held_here = [("parameter", held) for held in module.parameters] + [("buffer", held) for held in module.buffers]
        for kind, held in held_here:
            name = f"{module.path}.{held.name}" if module.path else held.name
            spec = trace.tensors[held.tensor].spec
            twin = first_name.setdefault(held.tensor, name)
            shape = "x".join(map(str, spec.shape)) or "scalar"
            tied_to = "" if twin == name else twin
            yield (name, module.path, kind, shape, spec.dtype, spec.elements, spec.size_bytes, held.trainable, tied_to)
