"""The modules of a model -> module records in pre-order, with their source, and whether code reads its layer number."""

import ast
import inspect
import linecache
import re
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache, lru_cache
from types import CodeType, FrameType
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from torchstone.capture.describe import class_path, describe_plain
from torchstone.capture.layouts import LAYER_NUMBERS, Layout, is_sizes, layout_of
from torchstone.record.module import Module, Parameter, Source
from torchstone.record.value import Items, Opaque, Value

# Where a class is defined: file and lines, found without parsing the whole file.


def source_of(cls: type) -> Source | None:
    """The file and lines of a class; None for one made at run time or in C."""
    known = _KNOWN.get(cls, _NOT_LOOKED_UP)
    if isinstance(known, str):
        known = _KNOWN[cls] = _look_up(cls)
    return known


_NOT_LOOKED_UP = ""
_HEAD = re.compile(r"\s*class (\w+)")
_STRINGS = re.compile(
    r'"""(?:\\.|[^\\])*?"""|' r"'''(?:\\.|[^\\])*?'''|" r'"(?:\\.|[^"\\\n])*"|' r"'(?:\\.|[^'\\\n])*'|" r"#[^\n]*",
    re.DOTALL,
)  # whole strings, and comments
_STATEMENTS = ("class ", "def ", "async def ", "@", "import ", "from ", "if ")  # with which a line begins
_KNOWN: dict[type, Source | None] = {}


def _look_up(cls: type) -> Source | None:
    try:
        file = inspect.getsourcefile(cls)
    except TypeError:
        return None
    if file is None:
        return None
    lines = linecache.getlines(file)
    name = cls.__qualname__.rpartition(".")[2]
    heads = [number for number in _heads(file, len(lines)).get(name, ()) if name in lines[number]]
    if not heads:
        return None
    first = _nearest(cls, heads)
    return Source(file=file, first_line=first + 1, last_line=_last_line(lines, first))


@lru_cache(maxsize=64)
def _heads(file: str, num_lines: int) -> dict[str, list[int]]:
    """By name, the lines at which classes of a file begin, as long as it has this many lines."""
    found: dict[str, list[int]] = {}
    for number, line in enumerate(linecache.getlines(file)[:num_lines]):
        head = _HEAD.match(line) if "class " in line else None
        if head is not None:
            found.setdefault(head[1], []).append(number)
    return found


def _nearest(cls: type, heads: list[int]) -> int:
    """Of several classes of one name: the last that begins before the first method of this one."""
    first_method = min((f.__code__.co_firstlineno for f in vars(cls).values() if inspect.isfunction(f)), default=None)
    before = [head for head in heads if first_method is None or head < first_method]
    return before[-1] if before else heads[0]


def _last_line(lines: list[str], first: int) -> int:
    """The end of the block that begins at `first`; text that reaches the margin inside a string does not end it."""
    indent = len(lines[first]) - len(lines[first].lstrip())
    last = first + 1
    for number in range(first + 1, len(lines)):
        line = lines[number]
        text = line.lstrip()
        if not text or text[0] == "#":
            continue
        if len(line) - len(text) <= indent and text[0] != ")" and _ends(lines[first:last], text):
            break
        last = number + 1
    return last


def _ends(block: list[str], following: str) -> bool:
    """Whether a block ends before a line at the margin; to parse it is slow, and most often not needed."""
    if following.startswith(_STATEMENTS):
        code = _STRINGS.sub("", "".join(block))
        closed = all(code.count(opening) == code.count(closing) for opening, closing in ("()", "[]", "{}"))
        if closed and '"' not in code and "'" not in code:
            return True
    return _parses(block)


def _parses(block: list[str]) -> bool:
    try:
        ast.parse("if True:\n" * block[0][:1].isspace() + "".join(block))
    except SyntaxError:
        return False
    return True


# Whether code looks at the number of the layer it runs in. Layers that are equal but for `layer_idx` may share a
# trace only if their code does not depend on it. Handing the number to a cache, which keeps one entry a layer, is the
# one use that does no harm.


def layer_numbers(module: nn.Module) -> dict[str, int]:
    """The attributes of a module that number the layer it is in."""
    attributes = vars(module)
    if attributes.keys().isdisjoint(LAYER_NUMBERS):  # looks the few names up, not the many attributes
        return {}
    names = LAYER_NUMBERS & attributes.keys()
    own = vars(type(module))
    return {
        name: attributes[name]
        for name in names
        if type(attributes[name]) is int and not isinstance(own.get(name), property)
    }


class IndexReads:
    """Counts the reads of layer numbers that could make a difference."""

    def __init__(self, is_state: Callable[[Any], bool]) -> None:
        self.count = 0
        self._is_state = is_state

    @contextmanager
    def watching(self, modules: Iterable[nn.Module]) -> Iterator[None]:
        """While open, reads of layer numbers of these modules are seen."""
        watched = {(type(module), name) for module in modules for name in layer_numbers(module)}
        with ExitStack() as undo:
            for cls, name in watched:
                if name not in vars(cls):
                    setattr(cls, name, _Watched(name, self._read))
                    undo.callback(delattr, cls, name)
            yield

    def _read(self) -> None:
        frame = sys._getframe(2)
        receiver = _receiver(frame.f_code, frame.f_lasti)
        if receiver is None or not self._is_state(_variable(frame, receiver)):
            self.count += 1


def _variable(frame: FrameType, name: str) -> object:
    """A variable of a running function, without keeping its others alive."""
    variables = frame.f_locals
    found = variables.get(name)
    if sys.version_info < (3, 13) and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        variables.clear()  # a copy, which the frame would keep to its end
    return found


class _Watched:
    """A descriptor that stands before the attribute of the same name in each instance."""

    def __init__(self, name: str, on_read: Callable[[], None]) -> None:
        self._name = name
        self._on_read = on_read

    def __get__(self, instance: object, owner: type | None = None) -> object:
        if instance is None:
            return self
        self._on_read()
        try:
            return vars(instance)[self._name]
        except KeyError:
            raise AttributeError(self._name) from None

    def __set__(self, instance: object, value: object) -> None:
        vars(instance)[self._name] = value

    def __delete__(self, instance: object) -> None:
        del vars(instance)[self._name]


@cache
def _receiver(code: CodeType, instruction: int) -> str | None:
    """The variable whose method or item the attribute at this instruction goes straight into.

    `past.update(key, value, self.layer_idx)` -> past. None for every other use.
    """
    place = list(code.co_positions())[instruction // 2]
    for parent in ast.walk(_parse(code)):
        inside: list[ast.expr] = []
        if isinstance(parent, ast.Call):
            inside, target = [*parent.args, *(keyword.value for keyword in parent.keywords)], parent.func
        elif isinstance(parent, ast.Subscript):
            inside, target = [parent.slice], parent.value
        for node in inside:
            if (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset) == place:
                return _root_name(target)
    return None


def _parse(code: CodeType) -> ast.AST:
    """The function behind a code object, with the line numbers of its file; nothing where its text cannot be had."""
    lines = linecache.getlines(code.co_filename)[code.co_firstlineno - 1 :]
    if not lines:
        return ast.Module(body=[], type_ignores=[])
    block = "".join(inspect.getblock(lines))
    head = "if True:\n" if block[:1].isspace() else ""  # keeps the columns of an indented function
    try:
        tree = ast.parse(head + block)
    except SyntaxError:
        return ast.Module(body=[], type_ignores=[])
    return ast.increment_lineno(tree, code.co_firstlineno - 1 - bool(head))


def _root_name(node: ast.expr) -> str | None:
    if not isinstance(node, ast.Attribute):
        return None
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


# The modules of a model -> module records, in pre-order.


_CONTAINERS = frozenset({nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict})
_LONGEST_ATTRIBUTE = 32
_MOST_KEPT = 20_000  # descriptions of modules


def is_of_torch(module: nn.Module) -> bool:
    """Whether a module is a single layer of torch, so that its ops come from the line that calls it."""
    return not module._modules and type(module).__module__.startswith("torch.")


_CALL_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_PLAIN_TENSORS = frozenset({Tensor, nn.Parameter, nn.Buffer, type(None)})


def _runs_no_line(module: nn.Module) -> bool:
    """Whether a call runs no code but torch's: no hook, no replaced `forward`, no tensor with ops of its own."""
    own = vars(module)
    file = getattr(type(module).forward, "__module__", None) or ""  # None: generated code, such as that of torch.fx
    return (
        (is_of_torch(module) or type(module) is nn.Sequential)  # which does nothing but call its parts
        and "forward" not in own
        and file.startswith("torch.")
        and not any(map(own.get, _CALL_HOOKS))
        and not _has_any_global_hook()
        and all(
            isinstance(held, dict) and _PLAIN_TENSORS.issuperset(map(type, dict.values(held)))
            for held in (own["_parameters"], own["_buffers"])
        )
    )


class ModuleTree:
    """The modules of one model with the numbers the trace gives them."""

    def __init__(self, model: nn.Module) -> None:
        self.modules: list[nn.Module] = []
        self.layouts: list[Layout] = []  # of their attributes as they are before a run, and after it
        self.paths: list[str] = []
        self.parents: list[int] = []
        self.other_paths: dict[int, list[str]] = {}
        self.number_of: dict[int, int] = {}  # id(module) -> number
        self._layers: list[set[int]] = []  # for each module: the layer numbers in it and below it
        self._facts: dict[int, tuple[int, int | None, bool]] = {}  # by id: of modules that were called
        self._ends: list[int] = []  # for each module: the number after its last descendant
        self._walk(model, "", -1)

    def _walk(self, module: nn.Module, path: str, parent: int) -> None:
        known = self.number_of.get(id(module))
        if known is not None:
            self.other_paths.setdefault(known, []).append(path)
            return
        number = self.number_of[id(module)] = len(self.modules)
        self.modules.append(module)
        self.paths.append(path)
        self.parents.append(parent)
        self._ends.append(0)
        layout = layout_of(module)
        self.layouts.append(layout)
        self._layers.append(set(layer_numbers(module).values()) if layout.numbers else set())
        for name, child in module._modules.items():
            if child is not None:
                self._walk(child, f"{path}.{name}" if path else name, number)
        self._ends[number] = len(self.modules)
        if parent >= 0:
            self._layers[parent] |= self._layers[number]

    def with_layer_numbers(self) -> Iterator[nn.Module]:
        """The modules that may have the number of their layer."""
        return (module for module, layout in zip(self.modules, self.layouts, strict=True) if layout.numbers)

    def layer_of(self, module: nn.Module) -> int | None:
        """The number of the layer that a module is or lies in; None where it belongs to none or to several."""
        layers = self._layers[self.number_of[id(module)]]
        return next(iter(layers)) if len(layers) == 1 else None

    def facts(self, module: nn.Module) -> tuple[int, int | None, bool]:
        """The number of a module, that of its layer, and whether no line of the model runs in its call."""
        known = self._facts.get(id(module))
        if known is None:
            facts = (self.number_of[id(module)], self.layer_of(module), _runs_no_line(module))
            known = self._facts[id(module)] = facts
        return known

    def span(self, module: nn.Module) -> range:
        """The numbers of a module and everything below it."""
        number = self.number_of[id(module)]
        return range(number, self._ends[number])

    def look_counts(self) -> dict[int, int]:
        """By id of a module: how many modules of the tree may be equal to it by a quick look, itself among them."""
        looks: list[Hashable] = [None] * len(self.modules)
        for number in range(len(self.modules) - 1, -1, -1):  # children stand after their parent
            module, end = self.modules[number], self._ends[number]
            first = next(iter(dict.values(module._parameters)), None)
            below = hash((looks[number + 1], looks[end - 1])) if end - number > 1 else 0
            looks[number] = (type(module), end - number, first if first is None else first.shape, below)
        counts = Counter(looks)
        return {id(module): counts[look] for module, look in zip(self.modules, looks, strict=True)}

    def held_tensors(self) -> Iterator[tuple[str, str, Tensor]]:
        """Kind, path and tensor of every parameter, buffer and attribute that is a tensor, in order."""
        for module, path, layout in zip(self.modules, self.paths, self.layouts, strict=True):
            own = vars(module)
            constants = {name: own[name] for name in layout.tensors} if layout.tensors else {}
            for kind, held in (("parameter", own["_parameters"]), ("buffer", own["_buffers"]), ("constant", constants)):
                for name, tensor in held.items() if held else ():
                    if tensor is not None:
                        yield kind, f"{path}.{name}" if path else name, tensor

    def records(self, numbers: Mapping[int, int]) -> tuple[Module, ...]:
        """The modules as records, given the number of each parameter and buffer by its id."""
        attributes = AttributeRecords()
        classes = {kind: class_path(kind) for kind in set(map(type, self.modules))}
        rows = zip(self.modules, self.layouts, self.paths, self.parents, strict=True)
        return tuple([
            Module(
                path=path,
                class_name=classes[type(module)],
                parent=parent,
                attributes=attributes.of(module, layout),
                parameters=_parameters(module, numbers),
                buffers=_buffers(module, numbers),
                other_paths=tuple(self.other_paths.get(number, ())),
                training=module.training,  # an attribute, or a property: a compiled module asks the one inside it
                container=type(module) in _CONTAINERS,
            )
            for number, (module, layout, path, parent) in enumerate(rows)
        ])  # fmt: skip

    def sources(self) -> dict[str, Source]:
        """Where each class is defined."""
        classes = dict.fromkeys(type(module) for module in self.modules)
        found = ((class_path(cls), source_of(cls)) for cls in classes)
        return {name: source for name, source in found if source is not None}


def _parameters(module: nn.Module, numbers: Mapping[int, int]) -> tuple[Parameter, ...]:
    held = module.__dict__["_parameters"]
    if not held:
        return ()
    return tuple([
        Parameter(name=name, tensor=numbers[id(tensor)], trainable=tensor.requires_grad)
        for name, tensor in held.items()
        if tensor is not None
    ])  # fmt: skip


def _buffers(module: nn.Module, numbers: Mapping[int, int]) -> tuple[Parameter, ...]:
    own = module.__dict__
    held, passing = own["_buffers"], own["_non_persistent_buffers_set"]
    if not held:
        return ()
    return tuple([
        Parameter(name=name, tensor=numbers[id(tensor)], persistent=name not in passing)
        for name, tensor in held.items()
        if tensor is not None
    ])  # fmt: skip


class AttributeRecords:
    """The attributes that configure modules: scalars and short sequences of them.

    Layers of a stack have equal attributes, which are described once; those that are known by their values alone, as
    of a convolution, once for all models.
    """

    _lasting: ClassVar[dict[tuple[object, ...], tuple[tuple[str, Value], ...]]] = {}

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], tuple[tuple[str, Value], ...]] = {}
        self._values: list[tuple[object, ...]] = []  # that the ids of known ones are ids of

    def of(self, module: nn.Module, layout: Layout) -> tuple[tuple[str, Value], ...]:
        """The attributes of one module that can be written down."""
        values = layout.pick_public(tuple(module.__dict__.values()))
        parts: list[object] = [layout.public, *values]
        table = self._lasting
        for place in layout.public_special:
            value = values[place]
            if type(value) is float:  # two may be equal and differ by their sign
                parts[place + 1] = repr(value)
            elif type(value) is not tuple or not is_sizes(value):
                parts[place + 1] = id(value)
                table = self._known
        key = tuple(parts)
        known = table.get(key)
        if known is None:
            if table is self._known:
                self._values.append(values)
            elif len(table) >= _MOST_KEPT:
                table.clear()
            described = [(name, _configuration(value)) for name, value in zip(layout.public_names, values, strict=True)]
            known = table[key] = tuple([pair for pair in described if type(pair[1]) is not Opaque])
        return known


def _configuration(value: Any) -> Value:
    base = next((kind for kind in (list, tuple) if issubclass(type(value), kind)), None)
    if base is None or base.__len__(value) > _LONGEST_ATTRIBUTE:  # of subclasses the methods may be anything
        return describe_plain(value)
    items = tuple(describe_plain(item) for item in base.__iter__(value))
    if any(isinstance(item, Opaque) for item in items):
        return Opaque(class_name="")
    return Items(kind=base.__name__, items=items)
