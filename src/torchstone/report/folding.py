"""Repeated layers: which siblings in a row are the same thing again.

Two modules have the same shape when their class, attributes, parameter shapes, call shapes and children (by name) are
equal. A number that only says which layer it is (`layer_idx = 7` in `layers.7`) does not count.
"""

from collections import defaultdict
from collections.abc import Hashable

from torchstone.record.base import Record
from torchstone.record.module import Module, ModuleSignature, Parameter
from torchstone.record.tensor import TensorSpec
from torchstone.record.trace import Trace
from torchstone.record.value import Value, tensors_in

_POSITION_WORDS = ("idx", "index", "layer_id", "block_id", "layer_number", "layer_num")


class Fold(Record, frozen=True, kw_only=True):
    """A run of siblings of one shape."""

    first: int  # module number of the first one
    members: tuple[int, ...]


def subtree_shapes(trace: Trace) -> tuple[int, ...]:
    """A number for each module; equal numbers mean equal subtrees."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for index, module in enumerate(trace.modules):
        children[module.parent].append(index)
    calls = _call_shapes(trace)
    known: dict[Hashable, int] = {}
    shapes = [0] * len(trace.modules)
    for index in range(len(trace.modules) - 1, -1, -1):  # children stand after their parent
        module = trace.modules[index]
        inner = tuple((_name(trace.modules[child]), shapes[child]) for child in children[index])
        key = (_own_shape(module, trace), calls[index], inner)
        shapes[index] = known.setdefault(key, len(known))
    return tuple(shapes)


def module_folds(trace: Trace) -> tuple[Fold, ...]:
    """The runs of two or more equal siblings whose names differ only in a number, in order of their first member."""
    shapes = subtree_shapes(trace)
    families = [_family(_name(module)) for module in trace.modules]
    open_run: dict[int, list[int]] = {}
    runs: list[list[int]] = []
    for index, module in enumerate(trace.modules):
        parent = module.parent
        run = open_run.get(parent)
        if run is not None and shapes[run[0]] == shapes[index] and _counted_on(families[run[0]], families[index]):
            run.append(index)
        else:
            open_run[parent] = [index]
            runs.append(open_run[parent])
    return tuple(Fold(first=run[0], members=tuple(run)) for run in runs if len(run) > 1)


def _name(module: Module) -> str:
    return module.path.rpartition(".")[2]


def _family(name: str) -> tuple[str, bool]:
    """A name without its digits, and whether it had any: `block3` and `block4` are of one family."""
    rest = name.rstrip("0123456789")
    return rest, rest != name


def _counted_on(first: tuple[str, bool], other: tuple[str, bool]) -> bool:
    return first == other and first[1]


def _own_shape(module: Module, trace: Trace) -> Hashable:
    attributes = tuple((name, value) for name, value in module.attributes if not _says_where(name, value, module.path))
    return (
        module.class_name,
        attributes,
        _held(module.parameters, trace),
        _held(module.buffers, trace),
        module.training,
    )


def _says_where(name: str, value: Value, path: str) -> bool:
    return type(value) is int and name.endswith(_POSITION_WORDS) and str(value) in path.split(".")


def _held(parameters: tuple[Parameter, ...], trace: Trace) -> Hashable:
    return tuple((held.name, *_shape(trace.tensors[held.tensor].spec)) for held in parameters)


def _shape(spec: TensorSpec) -> tuple[tuple[int, ...], str]:
    return spec.shape, spec.dtype


def _call_shapes(trace: Trace) -> list[tuple[int, ...]]:
    """For each module the shapes of its calls, as numbers of distinct signatures."""
    known: dict[Hashable, int] = {}
    number_of = [
        known.setdefault(_signature_shape(signature), len(known)) for signature in trace.module_calls.signatures
    ]
    calls: list[tuple[int, ...]] = [()] * len(trace.modules)
    for module, signature in zip(trace.module_calls.modules, trace.module_calls.signature_of, strict=True):
        calls[module] += (number_of[signature],)
    return calls


def _signature_shape(signature: ModuleSignature) -> Hashable:
    return (
        tuple((argument.name, tuple(map(_shape, tensors_in(argument.value)))) for argument in signature.arguments),
        tuple(map(_shape, tensors_in(signature.output))),
    )
