"""Parts of a received graph as modules of their own, and whole graphs in which some nodes are computed by eager.

The smallest thing that is moved between eager and the backend is a step: a node that gives tensors, together with the
nodes that take its results apart. Steps are numbered over all graphs of a hand-over.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, fx, nn

from torchstone.backends.graphs import ReceivedGraph
from torchstone.check.child.values import copied

Arguments: TypeAlias = tuple[Any, ...]  # what a graph takes: tensors, numbers, lists of them

_PLAIN = (int, float, bool, str, complex, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format,
          torch.Size, slice, type(Ellipsis))  # fmt: skip
_GRAD_MODE = ("_set_grad_enabled", "set_grad_enabled", "_enter_inference_mode", "_exit_inference_mode")
_OPENS, _CLOSES = "_enter_autocast", "_exit_autocast"

Runs = Callable[..., Any]
Compile = Callable[[nn.Module, Arguments], Runs]


@dataclass(frozen=True)
class Step:
    """One step: which graph it is in, and its nodes in order."""

    graph: int
    nodes: tuple[fx.Node, ...]

    @property
    def first(self) -> fx.Node:
        """The node that computes."""
        return self.nodes[0]


@dataclass(frozen=True)
class Part:
    """Some nodes of a graph as a module: what it takes and gives, as nodes of the graph."""

    module: fx.GraphModule
    takes: tuple[fx.Node, ...]
    gives: tuple[fx.Node, ...]


class GraphValues(fx.Interpreter):
    """Runs a graph by eager and keeps, of what the wanted nodes read, a copy from before they first ran."""

    def __init__(self, graph: fx.GraphModule, wanted: Collection[fx.Node]) -> None:
        super().__init__(graph)
        self.values: dict[fx.Node, Any] = {}
        self._wanted = set(wanted)

    def run_node(self, n: fx.Node) -> object:
        """Copy what a wanted node reads, then run it."""
        if n in self._wanted:
            for read in n.all_input_nodes:
                if read not in self._wanted and read not in self.values:
                    self.values[read] = copy_of(self.env[read])
        return super().run_node(n)


def copy_of(value: Any) -> object:
    """Tensors in memory of their own; anything else as it is."""
    if isinstance(value, Tensor):
        return copied(value)
    return type(value)(map(copy_of, value)) if type(value) in (list, tuple) else value


def is_plain(value: object) -> bool:
    """Whether a value may stand in a graph as a constant."""
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return all(map(is_plain, value))
    return isinstance(value, _PLAIN)


def steps_of(graphs: Sequence[ReceivedGraph]) -> tuple[list[Step], list[dict[fx.Node, object]]]:
    """The steps of all graphs in order, and the value of every node of each graph."""
    steps: list[Step] = []
    values = []
    for number, graph in enumerate(graphs):
        found = all_values(graph)
        values.append(found)
        steps += [Step(number, nodes) for nodes in _joined(graph.module.graph, found)]
    return steps, values


def all_values(graph: ReceivedGraph) -> dict[fx.Node, object]:
    """What every node of a graph gives, by eager."""
    runner = fx.Interpreter(graph.module, garbage_collect_values=False)
    with torch.no_grad():
        runner.run(*map(copy_of, graph.inputs))
    return dict(runner.env)


def _joined(graph: fx.Graph, values: dict[fx.Node, object]) -> list[tuple[fx.Node, ...]]:
    """Nodes that must stay together: what takes a tuple apart stays with what gives it, autocast is one region."""
    owner: dict[fx.Node, fx.Node] = {}

    def find(node: fx.Node) -> fx.Node:
        while owner.setdefault(node, node) is not node:
            node = owner[node]
        return node

    region: fx.Node | None = None
    depth = 0
    calls = [node for node in graph.nodes if is_call(node)]
    for node in calls:
        name = getattr(node.target, "__name__", "")
        depth += name == _OPENS
        if depth:
            region = region or node
            owner[find(node)] = find(region)
        depth -= name == _CLOSES
        region = region if depth else None
        value = values.get(node)
        if not isinstance(value, Tensor) and not is_plain(value):
            for user in node.users:
                if is_call(user):
                    owner[find(user)] = find(node)
    groups: dict[fx.Node, list[fx.Node]] = {}
    for node in calls:
        groups.setdefault(find(node), []).append(node)
    return [tuple(nodes) for nodes in groups.values()]


def is_call(node: fx.Node) -> bool:
    """Whether a node computes; switching gradients off is nothing in a run without gradients."""
    return node.op in ("call_function", "call_method", "call_module") and (
        getattr(node.target, "__name__", "") not in _GRAD_MODE
    )


def part_of(graph: fx.GraphModule, nodes: Collection[fx.Node], values: dict[fx.Node, Any]) -> Part:
    """Some nodes as a module; it takes the tensors they read, and gives those that are read elsewhere or not at all.

    Complex tensors come and go as pairs of real numbers: whether a backend takes complex inputs is not the question.
    """
    chosen = set(nodes)
    root, made = nn.Module(), fx.Graph()
    takes = _read_from_outside(graph, chosen, values)
    known: dict[fx.Node, Any] = {read: made.placeholder(f"i{number}") for number, read in enumerate(takes)}
    for read in takes:
        if _is_complex(values.get(read)):
            known[read] = made.call_function(torch.view_as_complex, (known[read],))
    for node in graph.graph.nodes:
        if node.op == "get_attr" and any(user in chosen for user in node.users):
            known[node] = _attribute(graph, node, root, made)
        elif node in chosen:
            known[node] = made.node_copy(node, lambda read: known[read] if read in known else values[read])
            if node.op == "call_module":
                _keep_module(graph, root, str(node.target))
    tensors = [node for node in graph.graph.nodes if node in chosen and isinstance(values.get(node), Tensor)]
    gives = [node for node in tensors if any(user not in chosen for user in node.users)]
    gives = gives or [node for node in tensors if not node.users]
    shown = [
        made.call_function(torch.view_as_real, (known[node],)) if _is_complex(values[node]) else known[node]
        for node in gives
    ]
    made.output(tuple(shown))
    return Part(fx.GraphModule(root, made, class_name="Part").eval(), tuple(takes), tuple(gives))


def _read_from_outside(graph: fx.GraphModule, chosen: set[fx.Node], values: dict[fx.Node, object]) -> list[fx.Node]:
    """What the chosen nodes read of others, but for weights and for values that can stand in the graph themselves."""
    reads = (read for node in graph.graph.nodes if node in chosen for read in node.all_input_nodes)
    outside = (read for read in reads if read not in chosen and read.op != "get_attr")
    return list(dict.fromkeys(read for read in outside if not is_plain(values.get(read))))


def _is_complex(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_complex()


def as_taken(value: Any) -> object:
    """A value as a part takes it: few backends take complex numbers from outside, whatever they do inside."""
    return torch.view_as_real(value.resolve_conj()) if _is_complex(value) else value


def as_given(given: Any, like: Any) -> object:
    """What a part gave, as the node gives it."""
    return torch.view_as_complex(given.contiguous()) if _is_complex(like) else given


def in_dtype_of(like: object, value: object) -> object:
    """A value that a backend handed back in a format of its own (int32 for int64), as the next op expects it.

    Inside the backend it would go on in that format; it is the border in the middle of the graph that needs the other.
    """
    if not isinstance(value, Tensor) or not isinstance(like, Tensor) or value.dtype == like.dtype:
        return value
    same_kind = value.is_floating_point() == like.is_floating_point() and value.is_complex() == like.is_complex()
    return value.to(like.dtype) if same_kind and torch.bool not in (value.dtype, like.dtype) else value


def _attribute(graph: fx.GraphModule, node: fx.Node, root: nn.Module, made: fx.Graph) -> fx.Node:
    value: object = graph
    for part in str(node.target).split("."):
        value = getattr(value, part)
    name = str(node.target).replace(".", "_")
    if isinstance(value, nn.Parameter | nn.Module):
        setattr(root, name, value)
    else:
        setattr(root, name, nn.Buffer(value) if isinstance(value, Tensor) else value)
    return made.get_attr(name)


def _keep_module(graph: fx.GraphModule, root: nn.Module, path: str) -> None:
    *above, name = path.split(".")
    for part in above:
        if not hasattr(root, part):
            root.add_module(part, nn.Module())
        root = getattr(root, part)
    root.add_module(name, graph.get_submodule(path))


# --- Whole graphs, some nodes by eager ---


class Mixed:
    """A whole graph in which some nodes are computed by eager and all others on the backend, with what eager gave."""

    def __init__(self, graph: ReceivedGraph, by_eager: Collection[fx.Node], compile_part: Compile) -> None:
        self._graph = graph
        self._compile = compile_part
        self._values = all_values(graph)
        plain = {node for node, value in self._values.items() if is_call(node) and is_plain(value)}
        self._by_eager = {*by_eager, *plain}
        self._runs: list[tuple[Part, Runs]] = []  # of each stage, from the first call on

    @property
    def uses_backend(self) -> bool:
        """Whether anything is left for the backend."""
        return any(is_call(node) and node not in self._by_eager for node in self._graph.module.graph.nodes)

    def run(self, *inputs: object) -> Arguments:
        """Run stage after stage; each takes what the earlier ones really gave, and is compiled in the first call."""
        graph = self._graph.module
        env: dict[fx.Node, Any] = dict(self._values)
        env |= dict(zip((node for node in graph.graph.nodes if node.op == "placeholder"), inputs, strict=True))
        given: dict[fx.Node, Any] = {}
        for number, (on_backend, nodes) in enumerate(self._stages()):
            if number == len(self._runs):
                self._runs.append(self._prepared(nodes, env, on_backend=on_backend))
            part, run = self._runs[number]
            results = zip(part.gives, run(*(as_taken(env[node]) for node in part.takes)), strict=True)
            given |= {node: as_given(value, self._values[node]) for node, value in results}
            env |= {node: in_dtype_of(self._values[node], given[node]) for node in part.gives}
        outputs: Any = fx.map_arg(graph.graph.output_node().args[0], {**env, **given}.__getitem__)
        return tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,)

    def _prepared(self, nodes: Collection[fx.Node], env: dict[fx.Node, Any], *, on_backend: bool) -> tuple[Part, Runs]:
        part = part_of(self._graph.module, nodes, env)
        if not on_backend or not part.gives:
            return part, part.module
        return part, self._compile(part.module, tuple(copy_of(as_taken(env[node])) for node in part.takes))

    def _stages(self) -> list[tuple[bool, list[fx.Node]]]:
        calls = [node for node in self._graph.module.graph.nodes if is_call(node)]
        if any(map(writes, calls)):
            return self._in_order(calls)
        level = self._levels(calls)
        stages: dict[int, list[fx.Node]] = {}
        for node in calls:
            stages.setdefault(level[node], []).append(node)
        return [(number % 2 == 0, stages[number]) for number in sorted(stages)]

    def _levels(self, calls: Sequence[fx.Node]) -> dict[fx.Node, int]:
        """Even levels run on the backend, odd ones by eager, each after what it reads; joined nodes share a level."""
        groups = _joined(self._graph.module.graph, self._values)
        level = {node: int(nodes[0] in self._by_eager) for nodes in groups for node in nodes}
        for _ in range(len(calls)):  # nodes come in order, so one pass does unless a joined node reads a later one
            before = dict(level)
            for nodes in groups:
                read = {one for node in nodes for one in node.all_input_nodes if one in level}
                least = max((level[one] for one in (*read, nodes[0])), default=0)
                level |= dict.fromkeys(nodes, least + (least % 2 != int(nodes[0] in self._by_eager)))
            if level == before:
                break
        return level

    def _in_order(self, calls: Iterable[fx.Node]) -> list[tuple[bool, list[fx.Node]]]:
        """Where a node writes to its arguments, only the order of the graph is right."""
        stages: list[tuple[bool, list[fx.Node]]] = []
        for node in calls:
            on_backend = node not in self._by_eager
            if not stages or stages[-1][0] is not on_backend:
                stages.append((on_backend, []))
            stages[-1][1].append(node)
        return stages


def writes(node: fx.Node) -> bool:
    """Whether a node writes to one of its arguments."""
    if isinstance(node.target, torch._ops.OpOverload):
        return bool(node.target._schema.is_mutable)
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    in_place = node.kwargs.get("inplace") is True or (name.endswith("_") and not name.endswith("__"))
    return in_place or name in ("setitem", "iadd", "imul", "isub", "itruediv", "iand", "ior") or "out" in node.kwargs
