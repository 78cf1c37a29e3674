"""Identical modules: which ones repeat, each distinct one once, and the runs of consecutive ones.

Two modules are the same when their class, attributes, parameter shapes, call shapes and children (by name) are equal. A
number that only says which layer it is (`layer_idx = 7` in `layers.7`) does not count.
"""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import ClassVar

from torchstone.record.base import Count, Document, Record, Schema, Size
from torchstone.record.consistency import distinct, known, same_length
from torchstone.record.module import Module, ModuleSignature, Parameter
from torchstone.record.tensor import TensorSpec
from torchstone.record.trace import Trace
from torchstone.record.value import Value, tensors_in

UNIQUE_FILE = "unique_modules.json"
_POSITION_NAMES = frozenset(  # whole names: padding_idx says what a module does, not where it stands
    {"idx", "index", "layer_idx", "layer_id", "layer_index", "layer_number", "layer_num", "block_idx", "block_id",
     "block_index", "stage_idx"}
)  # fmt: skip


class UniqueModule(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One distinct module with all its occurrences; shapes are those of the first call of the first occurrence."""

    id: str  # mod_004_conv1
    class_name: str
    module_path: str  # of the first occurrence
    parent: str | None  # id of the module that holds the first occurrence
    input_shapes: tuple[tuple[Size, ...], ...]
    input_dtypes: tuple[str, ...]
    output_shapes: tuple[tuple[Size, ...], ...]
    output_dtypes: tuple[str, ...]
    parameters: Count  # elements in the whole subtree, tied ones once
    parameter_shapes: dict[str, tuple[Size, ...]]  # of its own parameters
    calls: Count  # of all occurrences together
    occurrences: tuple[str, ...]
    container: bool
    status: str | None = None  # what a check found; None: not checked
    outcome: str | None = None


class UniqueModules(Document, frozen=True, kw_only=True, omit_defaults=False):
    """The document unique_modules.json."""

    schema: ClassVar[Schema] = Schema(kind="unique_modules", version=1)
    model: str
    modules: tuple[UniqueModule, ...]

    def check(self) -> None:
        """Parents are modules that are there."""
        check_unique(self.modules)


def check_unique(modules: Sequence[UniqueModule]) -> None:
    """Raise ValueError where ids repeat, a parent is not there, or shapes and dtypes differ in number."""
    ids = [module.id for module in modules]
    distinct("modules", ids)
    known("parent", [module.parent for module in modules if module.parent is not None], frozenset(ids))
    for module in modules:
        same_length(input_shapes=module.input_shapes, input_dtypes=module.input_dtypes)
        same_length(output_shapes=module.output_shapes, output_dtypes=module.output_dtypes)


def unique_modules(trace: Trace) -> UniqueModules:
    """Each distinct module of a trace once, in the order of first occurrence."""
    members: defaultdict[int, list[int]] = defaultdict(list)
    for index, shape in enumerate(subtree_shapes(trace)):
        members[shape].append(index)
    groups = sorted(members.values())
    ids: dict[int, str] = {}
    for number, group in enumerate(groups):
        name = trace.modules[group[0]].path.rpartition(".")[2] or "root"
        ids |= dict.fromkeys(group, f"mod_{number:03}_{name}")
    calls: defaultdict[int, list[int]] = defaultdict(list)
    for row, module in enumerate(trace.call_origins.modules):
        calls[module].append(row)
    return UniqueModules(
        model=trace.provenance.model, modules=tuple(_unique(trace, group, ids, calls) for group in groups)
    )


def _unique(
    trace: Trace, group: Sequence[int], ids: dict[int, str], calls: defaultdict[int, list[int]]
) -> UniqueModule:
    first = group[0]
    module = trace.modules[first]
    inputs, outputs = specs_of_call(trace, calls[first][0]) if calls[first] else ((), ())
    return UniqueModule(
        id=ids[first],
        class_name=module.class_name,
        module_path=module.path,
        parent=ids.get(module.parent),
        input_shapes=tuple(spec.shape for spec in inputs),
        input_dtypes=tuple(spec.dtype for spec in inputs),
        output_shapes=tuple(spec.shape for spec in outputs),
        output_dtypes=tuple(spec.dtype for spec in outputs),
        parameters=_parameters_below(trace, first),
        parameter_shapes={own.name: trace.held_spec(own.tensor).shape for own in module.parameters},
        calls=sum(len(calls[member]) for member in group),
        occurrences=tuple(trace.modules[member].path for member in group),
        container=module.container,
    )


SpecsOfCall = tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]


def specs_of_call(trace: Trace, call: int, known: dict[int, SpecsOfCall] | None = None) -> SpecsOfCall:
    """The tensors that a module call received and returned; `known` keeps those of each signature."""
    calls = trace.recorded_calls
    number = calls.signature_of[trace.call_origins.rows[call]]
    if known is not None and number in known:
        return known[number]
    signature = calls.signatures[number]
    inputs = tuple(spec for argument in signature.arguments for spec in tensors_in(argument.value))
    specs = (inputs, tuple(tensors_in(signature.output)))
    if known is not None:
        known[number] = specs
    return specs


def _parameters_below(trace: Trace, index: int) -> int:
    """Elements of the parameters of a module and all below it; modules stand in pre-order."""
    below = {index}
    for number in range(index + 1, len(trace.modules)):
        if trace.modules[number].parent not in below:
            break
        below.add(number)
    tensors = {own.tensor for number in below for own in trace.modules[number].parameters}
    return sum(trace.held_spec(tensor).elements for tensor in tensors)


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


def _name(module: Module) -> str:
    return module.path.rpartition(".")[2]


def _own_shape(module: Module, trace: Trace) -> Hashable:
    attributes = tuple((name, value) for name, value in module.attributes if not _says_where(name, value, module.path))
    return (
        module.class_name,
        attributes,
        _parameter_shapes(module.parameters, trace),
        _parameter_shapes(module.buffers, trace),
        module.training,
    )


def _says_where(name: str, value: Value, path: str) -> bool:
    return type(value) is int and name in _POSITION_NAMES and str(value) in path.split(".")


def _parameter_shapes(parameters: tuple[Parameter, ...], trace: Trace) -> Hashable:
    return tuple((own.name, *_shape(trace.held_spec(own.tensor))) for own in parameters)


def _shape(spec: TensorSpec) -> tuple[tuple[int, ...], str]:
    return spec.shape, spec.dtype


def _call_shapes(trace: Trace) -> list[tuple[int, ...]]:
    """For each module the shapes of its calls, as numbers of distinct signatures."""
    known: dict[Hashable, int] = {}
    number_of = [
        known.setdefault(_signature_shape(signature), len(known)) for signature in trace.recorded_calls.signatures
    ]
    calls: list[list[int]] = [[] for _ in trace.modules]
    signature_of, origins = trace.recorded_calls.signature_of, trace.call_origins
    for module, row in zip(origins.modules, origins.rows, strict=True):
        calls[module].append(number_of[signature_of[row]])
    return list(map(tuple, calls))


def _signature_shape(signature: ModuleSignature) -> Hashable:
    return (
        tuple((argument.name, tuple(map(_shape, tensors_in(argument.value)))) for argument in signature.arguments),
        tuple(map(_shape, tensors_in(signature.output))),
    )


# --- Repeated layers: runs of identical consecutive siblings ---


class Fold(Record, frozen=True, kw_only=True):
    """A run of siblings of one shape."""

    first: int  # module number of the first one
    members: tuple[int, ...]


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


def _family(name: str) -> tuple[str, bool]:
    """A name without its digits, and whether it had any: `block3` and `block4` are of one family."""
    rest = name.rstrip("0123456789")
    return rest, rest != name


def _counted_on(first: tuple[str, bool], other: tuple[str, bool]) -> bool:
    return first == other and first[1]
