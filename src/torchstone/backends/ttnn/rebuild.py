"""A recipe -> a call of ttnn: tensors without data, memory and program configurations, enums, handles of the device."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, TypeAlias

from torchstone.backends.ttnn.signatures import (
    Parameter,
    Signature,
    find_op,
    own_name,
    parameters_of_line,
    signatures_of,
)

# ttnn has no types, and a recipe is JSON whose nodes are looked into by their form.
Node: TypeAlias = Any  # a plain value, or {form: content}
Recipe: TypeAlias = Mapping[str, Node]
TtnnObject: TypeAlias = Any  # a class or an object of ttnn

GAP = "gap"  # a position that the trace leaves out
_RENAMED = {  # arguments that changed their names since the oldest traces
    "compute_grid": "compute_with_storage_grid_size",
}
_CLASSES = {  # classes that ttnn exports under another name than the one it writes
    "ComputeKernelConfig": "WormholeComputeKernelConfig",
    "EltwiseUnaryWithParam": "UnaryWithParam",
}
_OF_FILES = frozenset({"ttnn.as_tensor", "ttnn.dump_tensor", "ttnn.load_tensor"})
_MOST_HOST_ELEMENTS = 1 << 26  # of a tensor in host memory; beyond it a call is not worth its memory


class NotRebuiltError(Exception):
    """An argument cannot be made: the call was never tried."""


@dataclass
class Call:
    """A call, ready to be made."""

    op: Callable[..., object]
    positional: list[object] = field(default_factory=list)
    named: dict[str, object] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # what differs from the call that was traced

    def run(self) -> TtnnObject:
        """Make the call."""
        return self.op(*self.positional, **self.named)


def rebuild(recipe: Recipe, device: TtnnObject) -> Call:
    """The call of a recipe; raises NotRebuiltError where an argument cannot be made, UnknownOpError for the op."""
    builder = Builder(device)
    call = Call(find_op(recipe["op"]))
    if own_name(call.op) in _OF_FILES:
        msg = f"{recipe['op']} reads or writes a file whose name is in the trace: it is not called"
        raise NotRebuiltError(msg)
    signatures = signatures_of(recipe["op"])
    if recipe.get("cpp"):
        signature = _arrange_cpp(call, recipe["positional"], signatures, builder)
    else:
        signature = _arrange(call, recipe, signatures, builder)
    if signature is not None:
        _add_required_handles(call, signature, builder)
    call.notes += builder.notes
    return call


# --- Which value is which argument ---


def _arrange(call: Call, recipe: Recipe, signatures: Sequence[Signature], builder: Builder) -> Signature | None:
    """Positions as they are, up to the first gap; the rest by name."""
    given = list(recipe["positional"])
    gap = next((place for place, node in enumerate(given) if _is_gap(node)), len(given))
    signature = _best_signature(given[:gap], recipe["named"], signatures)
    order = [] if signature is None else [one for one in signature.parameters if not one.by_name_only]
    everything = {} if signature is None else {one.name: one for one in signature.parameters}
    for place, node in enumerate(given[:gap]):
        parameter = order[place] if place < len(order) else None
        if parameter is None and signature is not None and place < len(signature.parameters):
            parameter = signature.parameters[place]  # this version takes it by name only
            call.named[parameter.name] = builder.build(node, parameter.type, parameter.name)
        else:
            call.positional.append(builder.build(node, parameter.type if parameter else "", f"arg{place}"))
    for place, node in enumerate(given[gap:], start=gap):
        if not _is_gap(node) and signature is not None and place < len(signature.parameters):
            parameter = signature.parameters[place]
            call.named[parameter.name] = builder.build(node, parameter.type, parameter.name)
    for name, node in recipe["named"].items():
        if signature is not None and name not in everything:
            if node is None:
                continue
            call.notes.append(f"{name} is not an argument of {recipe['op']} in this version: omitted")
            continue
        call.named[name] = builder.build(node, everything[name].type if name in everything else "", name)
    return signature


def _is_gap(node: Node) -> bool:
    return isinstance(node, dict) and GAP in node


def _best_signature(
    positional: Sequence[Node], named: Mapping[str, Node], signatures: Sequence[Signature]
) -> Signature | None:
    """The way to call it that takes most of what is given, with required arguments and types that fit first."""

    def misfits(signature: Signature) -> tuple[int, int]:
        order = signature.parameters
        wrong = sum(
            _misfit(node, order[place]) if place < len(order) else _WRONG for place, node in enumerate(positional)
        )
        by_name = {one.name: one for one in order}
        for name, node in named.items():
            if node is not None:
                wrong += _WRONG if name not in by_name else _misfit(node, replace(by_name[name], by_name_only=False))
        taken = {one.name for one in order[: len(positional)]} | set(named)
        missing = sum(one.required and one.name not in taken and not _is_handle(one) for one in order)
        return wrong + _WRONG * missing, len(order)

    return min(signatures, key=misfits, default=None)


_WRONG = 3  # a value of a wrong type, against 1 for one that can be converted


def _misfit(node: Node, parameter: Parameter) -> int:
    if fits(node, parameter.type):
        return int(parameter.by_name_only)
    is_shape = isinstance(node, dict) and "list" in node and "Shape" in parameter.type.split(" | ")
    return 1 if is_shape and not parameter.by_name_only else _WRONG


def _arrange_cpp(
    call: Call, given: Sequence[Node], signatures: Sequence[Signature], builder: Builder
) -> Signature | None:
    """Values in the order of C++: each goes to the next argument whose type takes it."""
    aligned = [(_aligned(given, signature), signature) for signature in signatures]
    if not aligned:
        call.positional = [builder.build(node, "", f"arg{place}") for place, node in enumerate(given)]
        return None
    (chosen, left), signature = min(aligned, key=lambda one: (_cost(*one), len(one[1].parameters)))
    for parameter, node in chosen:
        if node is None and not parameter.required:
            continue
        value = builder.build(node, parameter.type, parameter.name)
        place = len(call.positional)
        if not parameter.by_name_only and signature.parameters[place] == parameter:
            call.positional.append(value)
        else:
            call.named[parameter.name] = value
    meaning = [node for node in left if node not in (None, 0, False) and node != {"list": []}]
    if meaning:
        call.notes.append(f"{len(meaning)} traced arguments are not arguments of this version: omitted")
    return signature


_Pairs = list[tuple[Parameter, Node]]


def _aligned(given: Sequence[Node], signature: Signature) -> tuple[_Pairs, list[Node]]:
    pairs: _Pairs = []
    left: list[Node] = []
    place = 0
    for node in given:
        later = next(
            (
                number
                for number in range(place, len(signature.parameters))
                if fits(node, signature.parameters[number].type)
                and not any(one.required and not _is_handle(one) for one in signature.parameters[place:number])
            ),
            None,
        )
        if later is None:
            left.append(node)
            continue
        pairs.append((signature.parameters[later], node))
        place = later + 1
    return pairs, left


def _cost(aligned: tuple[_Pairs, list[Node]], signature: Signature) -> int:
    pairs, left = aligned
    taken = {parameter.name for parameter, _ in pairs}
    missing = sum(one.required and one.name not in taken and not _is_handle(one) for one in signature.parameters)
    return 2 * missing + sum(node is not None for node in left)


def fits(node: Node, kind: str) -> bool:
    """Whether a value may be one of a type, as far as the docstring says."""
    if not kind:
        return True
    options = kind.split(" | ")
    if node is None:
        return "None" in options
    if isinstance(node, dict):
        ((form, content),) = node.items()
        return any(_form_fits(form, content, option) for option in options)
    if isinstance(node, bool):
        return "bool" in options
    if isinstance(node, int):
        return any(option in ("int", "float") or (option == "bool" and node in (0, 1)) for option in options)
    if isinstance(node, float):
        return "float" in options
    return any(option == "str" or option in _ENUM_TYPES for option in options)


_ENUM_TYPES = ("EmbeddingsType", "TileReshapeMapMode")  # early traces write their members without the class


def _form_fits(form: str, content: Node, option: str) -> bool:
    sequences = ("Sequence[", "list[", "tuple[", "Set[", "set[")
    match form:
        case "lost":
            return option not in ("int", "float", "bool", "Tensor")
        case "list":
            return option.startswith(sequences) or option == "GlobalSemaphoreArg"
        case "shape":
            return option == "Shape" or (option.startswith(sequences) and "int" in option)
        case "tensor":
            return option == "Tensor"
        case "memory":
            return option == "MemoryConfig"
        case "enum" | "object":
            return option == content[0] or (content[0] in ("", "ComputeKernelConfig") and option.endswith("Config"))
        case "number":
            return option == "float"
        case _:
            wanted = {"device": "Device", "semaphore": "emaphore", "coordinates": "MeshCoordinate", "tile": "Tile"}
            return wanted.get(form, "?") in option


# --- Handles that a trace cannot hold ---


def _is_handle(parameter: Parameter) -> bool:
    return "Device" in parameter.type.split(" | ")[0] or "emaphore" in parameter.type


def _add_required_handles(call: Call, signature: Signature, builder: Builder) -> None:
    """Semaphores of collective ops are not recorded, and the device of others is not either."""
    given = {one.name for one in signature.parameters[: len(call.positional)]}
    given |= {name for name, value in call.named.items() if value is not None}
    for parameter in signature.parameters:
        if parameter.name in given:
            continue
        if parameter.name == "multi_device_global_semaphore":
            node: dict[str, Node] = {"list": [{"semaphore": True}] * 2}
        elif parameter.name == "barrier_semaphore" and "multi_device_global_semaphore" in signature.names:
            node = {"semaphore": True}
        elif parameter.required and "Device" in parameter.type:
            node = {"device": True}
        else:
            continue
        call.named[parameter.name] = builder.build(node, parameter.type, parameter.name)


# --- Values ---


class Builder:
    """Makes the objects of one call."""

    def __init__(self, device: TtnnObject) -> None:
        import ttnn

        self._ttnn = ttnn
        self._device = device
        self.notes: list[str] = []

    def build(self, node: Node, kind: str, name: str) -> TtnnObject:
        """The value of a recipe's node for an argument of this type."""
        if isinstance(node, dict):
            ((form, content),) = node.items()
            make = getattr(self, f"_make_{form}", None)
            if make is None:
                msg = f"{name} has a form that is not known: {form}"
                raise NotRebuiltError(msg)
            return make(content, kind, name)
        if isinstance(node, bool) or node is None:
            return node
        options = kind.split(" | ")
        if isinstance(node, int) and "int" not in options:
            return bool(node) if "bool" in options and node in (0, 1) else float(node) if "float" in options else node
        if isinstance(node, str):
            enum = next((option for option in options if option in _ENUM_TYPES), None)
            return node if enum is None else self._make_enum([enum, node], kind, name)
        return node

    def _make_lost(self, content: Node, kind: str, name: str) -> TtnnObject:
        self.notes.append(f"{name} is not in the trace ({content}): its default was used")
        if kind.startswith("Sequence["):
            return []
        if "None" in kind.split(" | ") or not kind:
            return None
        if kind == "Topology":
            return self._ttnn.Topology.Linear
        if kind == "GlobalSemaphoreArg":
            return [self._make_semaphore(True, "", name) for _ in range(2)]  # noqa: FBT003 - a node of a recipe
        msg = f"{name} is not in the trace: {content}"
        raise NotRebuiltError(msg)

    def _make_torch(self, _content: Node, _kind: str, name: str) -> NoReturn:
        msg = f"{name} is a tensor of PyTorch: the call copies data from the host, and a trace has none"
        raise NotRebuiltError(msg)

    def _make_number(self, content: str, _kind: str, _name: str) -> float:
        return float(content)

    def _make_list(self, content: list[Node], kind: str, name: str) -> TtnnObject:
        _, _, inner = kind.partition("[")
        if "Shape" in kind.split(" | ") and "Sequence[int]" not in kind:
            return self._ttnn.Shape(content)
        inner = inner.rpartition("]")[0]
        values = [self.build(part, inner, f"{name}[{place}]") for place, part in enumerate(content)]
        return tuple(values) if kind.startswith("tuple[") else values

    def _make_shape(self, content: list[int], kind: str, _name: str) -> TtnnObject:
        return self._ttnn.Shape(content) if not kind or "Shape" in kind.split(" | ") else list(content)

    def _make_tile(self, content: list[int], _kind: str, _name: str) -> TtnnObject:
        return self._ttnn.Tile(content)

    def _make_coordinates(self, content: list[list[int]], _kind: str, _name: str) -> TtnnObject:
        return {self._ttnn.MeshCoordinate(one) for one in content}

    def _make_device(self, _content: Node, _kind: str, _name: str) -> TtnnObject:
        return self._device

    def _make_semaphore(self, _content: Node, _kind: str, _name: str) -> TtnnObject:
        grid = self._device.compute_with_storage_grid_size()
        cores = self._cores([[[0, 0], [grid.x - 1, grid.y - 1]]])
        return self._ttnn.create_global_semaphore(self._device, cores, 0)

    def _make_enum(self, content: list[str], _kind: str, name: str) -> TtnnObject:
        owner, member = content
        found = self._class(owner, name)
        value = getattr(found, member, None)
        if value is None:
            msg = f"{name} is {owner}.{member}, which this ttnn does not have"
            raise NotRebuiltError(msg)
        if owner == "UnaryOpType":
            return self._ttnn.UnaryWithParam(value)
        return value

    def _make_memory(self, content: Mapping[str, Node], _kind: str, name: str) -> TtnnObject:
        layout = self._make_enum(["TensorMemoryLayout", content["layout"]], "", name)
        buffer = self._make_enum(["BufferType", content["buffer"] or "DRAM"], "", name)
        shard = content.get("shard")
        if shard is None:
            return self._ttnn.MemoryConfig(layout, buffer)
        if "lost" in shard:
            msg = f"{name} has {shard['lost']}"
            raise NotRebuiltError(msg)
        orientation = self._make_enum(["ShardOrientation", shard["orientation"] or "ROW_MAJOR"], "", name)
        spec = self._ttnn.ShardSpec(self._cores(shard["grid"]), list(shard["shape"]), orientation)
        return self._ttnn.MemoryConfig(layout, buffer, spec)

    def _cores(self, ranges: Sequence[Node]) -> TtnnObject:
        core, core_range = self._ttnn.CoreCoord, self._ttnn.CoreRange
        # a list keeps the order of the ranges, a set does not, and ops compare the order
        return self._ttnn.CoreRangeSet([core_range(core(*first), core(*last)) for first, last in ranges])

    def _make_tensor(self, content: Mapping[str, Node], _kind: str, name: str) -> TtnnObject:
        ttnn = self._ttnn
        if content["shape"] is None or not content["dtype"]:
            msg = f"{name} is a tensor whose shape or element type is not in the trace"
            raise NotRebuiltError(msg)
        dtype = self._make_enum(["DataType", content["dtype"]], "", name)
        layout = self._make_enum(["Layout", content["layout"] or "TILE"], "", name)
        if content["storage"] == "HOST":
            return self._host_tensor(content["shape"], dtype, layout, name)
        given = content.get("memory")
        memory = ttnn.DRAM_MEMORY_CONFIG if given is None else self._make_memory(given, "", name)
        return ttnn.allocate_tensor_on_device(ttnn.Shape(content["shape"]), dtype, layout, self._device, memory)

    def _host_tensor(self, shape: Sequence[int], dtype: TtnnObject, layout: object, name: str) -> TtnnObject:
        ttnn = self._ttnn
        elements = math.prod(shape)
        if elements > _MOST_HOST_ELEMENTS:
            msg = f"{name} is a tensor of {elements:,} elements in host memory: too large to be made here"
            raise NotRebuiltError(msg)
        if dtype in (ttnn.bfloat8_b, ttnn.bfloat4_b):  # block formats have no row-major form
            made = ttnn.Tensor([0.0] * elements, list(shape), ttnn.float32, ttnn.ROW_MAJOR_LAYOUT)
            return ttnn.to_dtype(ttnn.to_layout(made, ttnn.TILE_LAYOUT), dtype)
        whole = dtype in (ttnn.uint8, ttnn.uint16, ttnn.uint32, ttnn.int32)
        return ttnn.Tensor([0 if whole else 0.0] * elements, list(shape), dtype, layout)

    def _make_object(self, content: Sequence[Node], kind: str, name: str) -> TtnnObject:
        class_name, fields = content
        if not class_name or class_name == "CoreCoord":
            return self._unnamed(fields, kind, name)
        return self._filled(self._class(class_name, name), fields, name)

    def _unnamed(self, fields: Mapping[str, Node], kind: str, name: str) -> TtnnObject:
        if fields.keys() == {"x", "y"}:
            return self._ttnn.CoreCoord(fields["x"], fields["y"])
        if not fields:
            return None
        option = next((one for one in kind.split(" | ") if one[:1].isupper()), "")
        if not option:
            msg = f"{name} is an object whose class is not in the trace"
            raise NotRebuiltError(msg)
        return self._filled(self._class(option, name), fields, name)

    def _filled(self, found: TtnnObject, fields: Mapping[str, Node], name: str) -> TtnnObject:
        """An object of a class with these fields; those that the class does not know are omitted."""
        kinds = field_types(found)
        given = {}
        for label, node in fields.items():
            known = _RENAMED.get(label, label)
            if kinds and known not in kinds:
                if node not in (None, 0, False):
                    self.notes.append(f"{name}.{label} is not a field of {found.__name__} in this version: omitted")
                continue
            kind = kinds.get(known, "")
            value = self._field(node, kind, f"{name}.{known}")
            if value is not None or fits(None, kind):
                given[known] = value
        try:
            return found(**given)
        except TypeError as error:
            msg = f"{name} cannot be made: {str(error).partition(chr(10))[0]}"
            raise NotRebuiltError(msg) from error

    def _field(self, node: Node, kind: str, name: str) -> TtnnObject:
        if kind == "bool" and node in (0, 1, "0", "1"):
            return bool(int(node))
        if isinstance(node, str) and kind and getattr(self._ttnn, kind, None) is not None:
            return self._make_enum([kind, node], kind, name)
        if isinstance(node, dict) and "list" in node and kind in ("CoreCoord", "CoreGrid"):
            x, y = node["list"]
            return self._ttnn.CoreCoord(x, y)
        if isinstance(node, dict) and "enum" in node and node["enum"][0] == "UnaryOpType" and "UnaryWithParam" in kind:
            return self._make_enum(node["enum"], kind, name)
        return self.build(node, kind, name)

    def _class(self, class_name: str, name: str) -> TtnnObject:
        wanted = _CLASSES.get(class_name, class_name)
        inner = self._ttnn._ttnn.operations
        homes = (self._ttnn, inner.transformer, inner.matmul, inner.embedding, inner.data_movement)
        found = next((one for home in homes if (one := getattr(home, wanted, None)) is not None), None)
        # a trace is a file of others, and what is found here is called: functions of ttnn may write files
        if not inspect.isclass(found) or found.__module__.partition(".")[0] not in ("ttnn", "_ttnn"):
            msg = f"{name} is a {class_name}, which this ttnn does not have"
            raise NotRebuiltError(msg)
        return found


def field_types(found: TtnnObject) -> dict[str, str]:
    """The named arguments of a class's constructor, with their types."""
    text = getattr(found.__init__, "__doc__", None) or ""
    lines = [line.strip() for line in text.splitlines() if "__init__(" in line]
    best: dict[str, str] = {}
    for line in lines:
        named = {one.name: one.type for one in parameters_of_line(line, "__init__(")}
        best = named if len(named) > len(best) else best
    return best
