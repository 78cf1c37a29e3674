"""A program, a straight line of op calls written in JSON -> a module that any backend can compile."""

from __future__ import annotations

import keyword
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._ops import OpOverload

from torchstone.backends.program_format import ProgramError, only_entry, portable, tensor_names_in
from torchstone.backends.protocol import Unsupported
from torchstone.foreign import acts_outside

# --- Arguments: JSON -> Python and torch values, and -> Python source ---


_ENUM_HOMES = ("torch", "torch.distributed", "torch.nn.attention", "torch._C", "torch.nn.functional")


def read_value(argument: object, names: Mapping[str, object]) -> Any:
    """The value of an argument, tensors taken from `names`."""
    if isinstance(argument, list):
        return [read_value(item, names) for item in argument]
    if not isinstance(argument, Mapping):
        return argument
    kind, content = only_entry(argument)
    match kind:
        case "tensor":
            if content not in names:
                msg = f"the program uses {content} before any step gives it"
                raise ProgramError(msg)
            return names[content]
        case "atom":
            return read_atom(content["kind"], content["text"])
        case "list" | "tuple" | "set":
            items = [read_value(item, names) for item in content]
            return {"list": list, "tuple": tuple, "set": set}[kind](items)
        case "dict":
            return {read_value(key, names): read_value(item, names) for key, item in content}
        case _:
            msg = f"the program has an argument of unknown kind {kind!r}"
            raise ProgramError(msg)


def value_source(argument: object) -> str:
    """An argument as Python source, tensors by their names."""
    if isinstance(argument, list):
        return f"[{', '.join(map(value_source, argument))}]"
    if not isinstance(argument, Mapping):
        return repr(argument)
    kind, content = only_entry(argument)
    match kind:
        case "tensor":
            return identifier(content)
        case "atom":
            return atom_source(content["kind"], content["text"])
        case "list":
            return f"[{', '.join(map(value_source, content))}]"
        case "tuple":
            inner = ", ".join(map(value_source, content))
            return f"({inner},)" if len(content) == 1 else f"({inner})"
        case "set":
            return f"{{{', '.join(map(value_source, content))}}}" if content else "set()"
        case "dict":
            return "{" + ", ".join(f"{value_source(key)}: {value_source(item)}" for key, item in content) + "}"
        case _:
            msg = f"the program has an argument of unknown kind {kind!r}"
            raise ProgramError(msg)


def identifier(name: str) -> str:
    """A name that may stand in Python source."""
    if not name.isidentifier() or keyword.iskeyword(name):
        msg = f"the program has a name that Python does not take: {name!r}"
        raise ProgramError(msg)
    return name


def read_atom(kind: str, text: str) -> Any:
    """A scalar that JSON has no word for, from the text that a trace keeps of it."""
    reader = _ATOMS.get(kind)
    if reader is None:
        msg = f"the program has a scalar of unknown kind {kind!r}: {text}"
        raise ProgramError(msg)
    try:
        return reader(text)
    except (ValueError, AttributeError, RuntimeError) as error:
        msg = f"the program's {kind} {text!r} cannot be read: {error}"
        raise ProgramError(msg) from error


def atom_source(kind: str, text: str) -> str:
    """The same scalar as Python source."""
    value = read_atom(kind, text)
    match kind:
        case "device":
            return f"torch.device({text!r})"
        case "float":
            return f"float({text!r})"
        case "complex":
            return f"complex({text!r})"
        case "enum":
            home = next(home for home in _ENUM_HOMES if _enum_in(home, text) is not None)
            return f"{home}.{text}"
        case "ellipsis":
            return "..."
        case _:
            return repr(value)  # torch.float32, torch.channels_last, slice(0, None, 2), a large int


def _torch_constant(text: str) -> object:
    return getattr(torch, text.removeprefix("torch."))


def _slice(text: str) -> slice:
    return slice(*(None if part == "None" else int(part) for part in text.split(":")))


def _enum(text: str) -> object:
    for home in _ENUM_HOMES:
        found = _enum_in(home, text)
        if found is not None:
            return found
    msg = "torch has no such enum"
    raise ValueError(msg)


def _enum_in(home: str, text: str) -> object:
    found: object = torch
    for part in [*home.split(".")[1:], *text.split(".")]:
        found = getattr(found, part, None)
    return found


_ATOMS: dict[str, Callable[[str], object]] = {
    "dtype": _torch_constant,
    "layout": _torch_constant,
    "memory_format": _torch_constant,
    "device": torch.device,
    "float": float,
    "complex": complex,
    "int": int,
    "symbol": int,  # a size that was the same number in every run; any other symbol cannot be read
    "slice": _slice,
    "ellipsis": lambda _: ...,
    "enum": _enum,
}


# A program, a straight line of op calls written in JSON -> a module that any backend can compile. {"inputs": ["i0"],
# "constants": ["w0"], "steps": [{"op": "aten.mm.default", "args": [{"tensor": "i0"}], "kwargs": {"mat2": {"tensor":
# "w0"}}, "outputs": ["t0"]}], "outputs": [{"tensor": "t0"}]} An argument is plain JSON or one of `{"tensor": name}`,
# `{"atom": {"kind": ..., "text": ...}}`, `{"list": [...]}`, `{"tuple": [...]}`, `{"set": [...]}`, `{"dict": [[key,
# value], ...]}`. The outputs of a step are names in the order of what the op returns: null for what is not a tensor
# or not needed, a list of names for a list of tensors. A name may be given again, as `add_` does to its input; later
# steps see the newest.


Description = Mapping[str, Any]


def program_module(description: Description, constants: Mapping[str, Tensor] | None = None) -> fx.GraphModule:
    """The module of a program; it takes the inputs in order and gives the tree of outputs.

    Inputs and constants that a step writes to are copied first: running it twice gives the same. Kernels of one device
    become the op that the model called (see `program_format.portable`).
    """
    description = portable(description)
    graph = fx.Graph()
    names: dict[str, Any] = {}
    root = nn.Module()
    for name in description["inputs"]:
        names[name] = graph.placeholder(name)
    for name in description.get("constants", ()):
        if constants is None or name not in constants:
            msg = f"the program's constant {name} has no value"
            raise ProgramError(msg)
        root.register_buffer(name, constants[name])
        names[name] = graph.get_attr(name)
    for name in sorted(written_names(description)):
        names[name] = graph.call_function(torch.ops.aten.clone.default, (names[name],))
    for step in description["steps"]:
        _add_step(graph, step, names)
    outputs = [read_value(tree, names) for tree in description["outputs"]]
    graph.output(outputs[0] if len(outputs) == 1 else tuple(outputs))
    return fx.GraphModule(root, graph, class_name="Program")


def find_op(name: str) -> OpOverload:
    """The op overload of a name such as aten.mm.default; the name may come from a file of others."""
    namespace, _, rest = name.partition(".")
    packet, _, overload = rest.rpartition(".")
    if acts_outside(name):
        msg = f"{name} reads or writes a file or prints, so it is not run: its arguments come from a file"
        raise ProgramError(msg)
    try:
        found = getattr(getattr(getattr(torch.ops, namespace), packet), overload)
    except AttributeError as error:
        msg = f"torch {torch.__version__} has no op {name}"
        raise Unsupported(msg, ops=(name,)) from error
    if not isinstance(found, OpOverload):
        msg = f"{name} is not an op overload: give namespace.op.overload, as in aten.mm.default"
        raise ProgramError(msg)
    return found


def random_ops(description: Description) -> tuple[str, ...]:
    """The ops of a program that draw random numbers: their outputs cannot be compared with another run's."""
    names = dict.fromkeys(step["op"] for step in description["steps"])
    return tuple(name for name in names if torch.Tag.nondeterministic_seeded in find_op(name).tags)


def _add_step(graph: fx.Graph, step: Mapping[str, Any], names: dict[str, object]) -> None:
    op = find_op(step["op"])
    args = [read_value(argument, names) for argument in step.get("args", ())]
    kwargs = {name: read_value(argument, names) for name, argument in step.get("kwargs", {}).items()}
    node = graph.call_function(op, *_as_torch_passes_them(op, args, kwargs))
    outputs = list(step["outputs"])
    _name(graph, node, outputs[0] if outputs and returns_one_value(op) else outputs, names)


def returns_one_value(op: OpOverload) -> bool:
    """Whether an op gives one value, and not a tuple or list of them."""
    returns = op._schema.returns
    return len(returns) == 1 and not isinstance(returns[0].type, torch.ListType)


def _as_torch_passes_them(
    op: OpOverload, args: list[object], kwargs: dict[str, object]
) -> tuple[tuple[Any, ...], dict]:
    """By position where the op allows it, without the defaults at the end: what compilers expect to see."""
    known = {argument.name for argument in op._schema.arguments}
    strange = [name for name, value in kwargs.items() if name not in known and value is not None]
    if strange:
        msg = f"{op} has no argument {strange[0]} in torch {torch.__version__}"
        raise Unsupported(msg, ops=(str(op),))
    positional, named = list(args), {}
    for argument in op._schema.arguments[len(args) :]:
        if argument.name not in kwargs:
            if argument.kwarg_only:
                continue
            positional.append(argument.default_value)
        elif not argument.kwarg_only:
            positional.append(kwargs[argument.name])
        elif not _is_default(argument, kwargs[argument.name]):
            named[argument.name] = kwargs[argument.name]
    while len(positional) > len(args) and _is_default(op._schema.arguments[len(positional) - 1], positional[-1]):
        positional.pop()
    return tuple(positional), named


def _is_default(argument: Any, value: object) -> bool:
    if not argument.has_default_value() or isinstance(value, fx.Node):
        return False
    default = argument.default_value
    return type(default) is type(value) and bool(default == value)


def _name(graph: fx.Graph, node: fx.Node, outputs: object, names: dict[str, object]) -> None:
    """Give the parts of a result their names."""
    if isinstance(outputs, str):
        names[outputs] = node
    elif isinstance(outputs, list):
        for place, part in enumerate(outputs):
            if part is not None:
                _name(graph, graph.call_function(operator.getitem, (node, place)), part, names)


def written_names(description: Description) -> set[str]:
    """The inputs and constants whose memory a step writes to, directly or through a view."""
    roots = {name: {name} for name in (*description["inputs"], *description.get("constants", ()))}
    written: set[str] = set()
    for step in description["steps"]:
        shared: set[str] = set()
        for argument, alias in _aliased(step):
            behind = set().union(*(roots.get(name, set()) for name in tensor_names_in(argument)))
            shared |= behind
            if alias.is_write:
                written |= behind
        for name in _flat_names(step["outputs"]):
            roots[name] = shared
    return written


def _aliased(step: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    """The arguments that share memory with a result or are written to, with what the op's schema says of it."""
    positional, named = list(step.get("args", ())), step.get("kwargs", {})
    found = []
    for place, argument in enumerate(find_op(step["op"])._schema.arguments):
        given = positional[place] if place < len(positional) else named.get(argument.name)
        if argument.alias_info is not None:
            found.append((given, argument.alias_info))
    return found


def _flat_names(outputs: Any) -> list[str]:
    if isinstance(outputs, str):
        return [outputs]
    return [name for part in outputs or () for name in _flat_names(part)]
