"""The tasks that localize a failure on the graph a backend receives: describe it, run some steps of it, replace some.

Every task traces the module anew: a graph of dynamo has no written form that could be read back without running code.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn

from torchstone.backends.failures import compiling, same_words
from torchstone.backends.graphs import ReceivedGraph, hand_over
from torchstone.backends.interception import KernelOp, KernelOpMode, OpArguments, OpKeywords, op_name
from torchstone.backends.program import program_module
from torchstone.backends.protocol import Args, Backend, Kwargs, Run, first_line
from torchstone.check.child.graph_parts import (
    GraphValues,
    Mixed,
    Part,
    Step,
    as_taken,
    copy_of,
    is_call,
    is_plain,
    part_of,
    steps_of,
)
from torchstone.check.child.model import Payload, backend_for
from torchstone.check.child.programs import as_written_by_hand, inputs_of_steps, starting_values
from torchstone.check.child.run import Subject, attempt, subject_of_module
from torchstone.check.child.values import Buffers, copied
from torchstone.check.reduction import smallest_failing
from torchstone.foreign import foreign_code
from torchstone.numerics.dtypes import dtype_name
from torchstone.numerics.pytree import named_tensors

OPS = "ops"  # the kind of a graph that is the recorded ops of a module
_RANDOM = ("bernoulli", "dropout", "native_dropout", "rand", "randn", "randint", "randperm", "normal", "uniform",
           "multinomial", "exponential", "poisson")  # fmt: skip
_UNSET = ("empty", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted")
_PATH = re.compile(r"\[['\"]?(\w+)['\"]?\]")
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in \S+\n\s+(?P<code>[^\n]+)')
_MOST_CODE = 120

# --- The graphs of a unit ---


def received(payload: Payload) -> tuple[str, Sequence[ReceivedGraph]]:
    """The graphs that the backend receives for a unit, or its recorded ops as one graph."""
    backend = backend_for(payload["backend"])
    if "path" in payload and payload.get("kind") != OPS:
        subject = subject_of_module(payload)
        args, kwargs = subject.arguments()
        found = hand_over(backend, subject.module, args, kwargs, payload.get("kind", ""))
        if found is not None:
            return found.kind, found.graphs
    if "program" not in payload:
        msg = "its ops cannot run by themselves: one of them takes an argument that is neither a tensor nor a number"
        raise ValueError(msg)
    program = as_written_by_hand(payload["program"])
    if not program["steps"]:
        return OPS, ()
    tensors = inputs_of_steps(payload, starting_values(payload))
    module = program_module(program, {name: tensors[name] for name in program["constants"]}).eval()
    outputs = module.graph.output_node()
    if isinstance(outputs.args[0], fx.Node):
        outputs.args = ((outputs.args[0],),)
        module.recompile()
    return OPS, (ReceivedGraph(module, tuple(tensors[name].detach() for name in program["inputs"])),)


# --- describe: the steps as the search sees them ---


def describe_graph(payload: dict[str, object]) -> dict[str, Any]:
    """A task: every step with its op, its arguments, the kernels it comes down to, and where the code is."""
    with foreign_code() as ran:  # dynamo and torch.export raise anything; no graph is an answer
        kind, graphs = received(payload)
        steps, values = steps_of(graphs)
    if ran.error is not None:
        return {"kind": "", "why": first_line(ran.error), "steps": []}
    kernels = [_kernels(graph) for graph in graphs]
    number_of = {node: number for number, step in enumerate(steps) for node in step.nodes}
    ends = [
        value for graph, found in zip(graphs, values, strict=True) for value in (*graph.inputs, *_outputs(graph, found))
    ]
    return {
        "kind": kind,
        "why": "",
        "complex_ends": any(isinstance(value, Tensor) and value.is_complex() for value in ends),
        "steps": [_described(step, values[step.graph], kernels[step.graph], number_of) for step in steps],
    }


def _outputs(graph: ReceivedGraph, values: dict[fx.Node, object]) -> list[object]:
    return [values.get(node) for node in graph.module.graph.output_node().all_input_nodes]


def _described(
    step: Step, values: dict[fx.Node, Any], kernels: dict[fx.Node, list[str]], number_of: dict[fx.Node, int]
) -> dict[str, object]:
    called = [name for node in step.nodes for name in kernels.get(node, ())]
    op = shown_op(step.first, called)
    arguments = _arguments_text(step.first, values)
    reads = {number_of[read] for node in step.nodes for read in node.all_input_nodes if read in number_of}
    gives = [values[node] for node in step.nodes if isinstance(values.get(node), Tensor)]
    random = any(map(_is_random, called)) or _packet_of(op) in _UNSET  # kernels may well fill what they leave empty
    rest = [shown_op(node, kernels.get(node, [])) for node in step.nodes[1:]]
    text = json.dumps([op, arguments, [str(list(one.stride())) for one in gives if one.layout == torch.strided], rest])
    return {
        "name": step.first.name,
        "op": op,
        "kernels": called,
        "arguments": arguments,
        "output": ", ".join(map(_shown, gives)),
        "signature": sha256(text.encode()).hexdigest()[:16],
        "reads": sorted(reads - {number_of[step.first]}),
        "module": _module_path(step.first),
        "line": _source_line(step.first),
        "gives_tensor": bool(gives),
        "has_values": not random,
    }


def _packet_of(op: str) -> str:
    parts = op.split(".")
    return parts[1].rstrip("_").removesuffix("_like") if len(parts) > 1 else op


def _is_random(op: str) -> bool:
    return _packet_of(op) in _RANDOM


def _kernels(graph: ReceivedGraph) -> dict[fx.Node, list[str]]:
    noting = _NotingKernels()
    runner = _Noting(graph.module, noting)
    with torch.no_grad(), noting:
        runner.run(*map(copy_of, graph.inputs))
    return noting.found


class _NotingKernels(KernelOpMode):
    """Which op reaches a kernel while which node runs."""

    def __init__(self) -> None:
        super().__init__()
        self.node: fx.Node | None = None
        self.found: dict[fx.Node, list[str]] = {}

    def run_op(self, func: KernelOp, args: OpArguments, kwargs: OpKeywords) -> object:
        """Note an op, and run it."""
        if self.node is not None:
            self.found.setdefault(self.node, []).append(op_name(func))
        return func(*args, **kwargs)


class _Noting(fx.Interpreter):
    def __init__(self, graph: fx.GraphModule, noting: _NotingKernels) -> None:
        super().__init__(graph)
        self._noting = noting

    def run_node(self, n: fx.Node) -> object:
        self._noting.node = n if is_call(n) else None
        return super().run_node(n)


def shown_op(node: fx.Node, kernels: Sequence[str]) -> str:
    """The op of a node as ATen names it: aten.linear.default, aten.softmax.int; its own name where ATen has none."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    name = target if isinstance(target, str) else getattr(target, "__name__", str(target))
    packet = _ALIASES.get(name, name)
    same = [one for one in kernels if one.split(".")[1:2] == [packet]]
    if same:
        return same[0]
    if packet in ("getitem", "__getitem__") and kernels:
        return kernels[0]
    if target is not operator.getitem and packet not in ("getitem", "__getitem__"):
        overloads: list[str] = getattr(getattr(torch.ops.aten, packet, None), "overloads", list)()
        for wanted in ("default", "int", "Tensor", *overloads):
            if wanted in overloads:
                return f"aten.{packet}.{wanted}"
    home = getattr(target, "__module__", None)
    return f"{home}.{name}" if isinstance(home, str) and home != "builtins" else name


_ALIASES = {
    "truediv": "div", "iadd": "add_", "imul": "mul_", "isub": "sub_", "itruediv": "div_", "and_": "__and__",
    "or_": "__or__", "invert": "bitwise_not", "setitem": "copy_", "float": "_to_copy", "to": "_to_copy",
    "pos": "positive", "mod": "remainder", "floordiv": "floor_divide", "neg": "neg",
}  # fmt: skip


def _arguments_text(node: fx.Node, values: dict[fx.Node, object]) -> str:
    def shown(value: object) -> str:
        if isinstance(value, fx.Node):
            return shown_value(values.get(value))
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(map(shown, value))}]"
        return repr(value) if not callable(value) else getattr(value, "__name__", "function")

    def shown_value(value: object) -> str:
        if isinstance(value, Tensor):
            return _shown(value)
        return str(value) if is_plain(value) else type(value).__name__

    named = [f"{name}={shown(value)}" for name, value in node.kwargs.items() if value is not None]
    return ", ".join([*map(shown, node.args), *named])


def _shown(tensor: Tensor) -> str:
    return f"{dtype_name(tensor.dtype)}{list(tensor.shape)}"


def _module_path(node: fx.Node) -> str:
    """The path of the module whose code calls a node, from the unit on; "" for the unit itself."""
    stack = node.meta.get("nn_module_stack") or {}
    path = str(next(reversed(stack.values()))[0]) if stack else ""
    path = _PATH.sub(r".\1", path.replace("._modules", ""))
    _, _, inner = path.removeprefix("L").lstrip(".").partition(".")
    return inner.strip(".")


def _source_line(node: fx.Node) -> str:
    frames = list(_FRAME.finditer(node.stack_trace or ""))
    if not frames:
        return ""
    last = frames[-1]
    return f"{last['file']}:{last['line']}: {last['code'].strip()[:_MOST_CODE]}"


# --- run_steps: only these on the backend ---


def run_steps(payload: Payload) -> dict[str, object]:
    """A task: some steps on the backend, with the values that eager gives them."""
    backend = backend_for(payload["backend"])
    _, graphs = received(payload)
    for subject in part_subjects(graphs, payload["chosen_steps"]):
        answer = attempt(subject, backend, payload)
        if answer["outcome"] != "passed":
            return answer
        backend.reset()
    return {"outcome": "passed"} if not payload["chosen_steps"] else answer


def reduce_steps(payload: Payload) -> dict[str, object]:
    """A task: the smallest group of the given steps that fails as the whole does, all tries in this one process.

    Only for failures that leave the process as it was: what is found is run once more in a process of its own.
    """
    backend = backend_for(payload["backend"])
    _, graphs = received(payload)
    runs = 0

    def fails(group: Sequence[int]) -> bool:
        nonlocal runs
        runs += 1
        answers = []
        for subject in part_subjects(graphs, group):
            answers.append(attempt(subject, backend, {**payload, "stage_file": ""}))
            backend.reset()
        return any(ends_alike(answer, payload["whole"]) for answer in answers)

    left = payload["chosen_steps"]
    if not fails(left):
        return {"smallest": [], "runs": runs}
    return {"smallest": list(smallest_failing(left, fails, most_runs=payload["most_runs"])), "runs": runs}


def sweep_steps(payload: Payload) -> dict[str, object]:
    """A task: each of the given steps alone, one after the other; the one that ends this process is on disk before."""
    backend = backend_for(payload["backend"])
    _, graphs = received(payload)
    for place in payload["chosen_steps"]:
        Path(payload["progress"]).write_text(str(place), encoding="ascii")
        for subject in part_subjects(graphs, [place]):
            attempt(subject, backend, {**payload, "stage_file": ""})
            backend.reset()
    return {"ended": True}


def ends_alike(answer: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Whether a try ended in the way that is wanted, in about the same words."""
    if answer["outcome"] != wanted["outcome"]:
        return False
    return answer["outcome"] == "wrong" or same_words(answer.get("reason", ""), wanted["reason"])


def part_subjects(graphs: Sequence[ReceivedGraph], chosen: Iterable[int]) -> list[Subject]:
    """The chosen steps as modules, one for each graph that has some, with the values that eager gives them."""
    subjects = []
    for graph, part, inputs in chosen_parts(graphs, chosen):
        del graph
        subjects.append(subject_of_part(part.module, inputs))
    return subjects


def chosen_parts(
    graphs: Sequence[ReceivedGraph], chosen: Iterable[int]
) -> list[tuple[ReceivedGraph, Part, tuple[Any, ...]]]:
    """The chosen steps of each graph as a part, with what it takes."""
    steps, values = steps_of(graphs)
    picked = [steps[number] for number in sorted(chosen)]
    found = []
    for number, graph in enumerate(graphs):
        nodes = [node for step in picked if step.graph == number for node in step.nodes]
        if not nodes:
            continue
        part = part_of(graph.module, nodes, values[number])
        reader = GraphValues(graph.module, nodes)
        with torch.no_grad():
            reader.run(*map(copy_of, graph.inputs))
        found.append((graph, part, tuple(as_taken(reader.values[node]) for node in part.takes)))
    return found


def subject_of_part(module: nn.Module, inputs: tuple[object, ...]) -> Subject:
    """A module with arguments, and what eager gives for them."""
    buffers = Buffers(module)

    def arguments() -> tuple[tuple[object, ...], dict[str, Any]]:
        buffers.restore()
        return tuple(map(copy_of, inputs)), {}

    torch.manual_seed(0)
    with torch.no_grad():
        given = named_tensors(module(*arguments()[0]))
        expected = {name: copied(tensor) for name, tensor in given}  # it may be a buffer that the next run writes
    return Subject(module, arguments, expected)


# --- run_without: these by eager, everything else on the backend ---


def run_without(payload: Payload) -> dict[str, object]:
    """A task: the whole graph on the backend, but for some steps that eager computes inside it."""
    backend = backend_for(payload["backend"])
    _, graphs = received(payload)
    steps, _ = steps_of(graphs)
    replaced = {node for number in payload["replaced_steps"] for node in steps[number].nodes}
    answer: dict[str, object] = {"outcome": "passed"}
    for graph in graphs:
        mixed = _MixedBackend(backend, graph, replaced)
        answer = attempt(subject_of_part(graph.module, graph.inputs), mixed, payload)
        if answer["outcome"] != "passed":
            return answer
        backend.reset()
    return answer


class _MixedBackend:
    """Compiles a graph as the backend would, except for the nodes that eager computes."""

    def __init__(self, backend: Backend, graph: ReceivedGraph, replaced: set[fx.Node]) -> None:
        self.name = backend.name
        self.forks = backend.forks
        self._backend = backend
        self._mixed = Mixed(graph, replaced, self._compiled)

    def compile(self, module: nn.Module, args: Args, kwargs: Kwargs) -> Run:  # noqa: ARG002 - the protocol
        """Parts are compiled when what they take is known."""
        return self._mixed.run

    def _compiled(self, module: nn.Module, args: tuple[Any, ...]) -> Run:
        with compiling():  # this is in the middle of a run, and must not be taken for a failure of the run
            return self._backend.compile(module, args, {})

    def __getattr__(self, name: str) -> Callable[..., Any]:
        found: Callable[..., object] = partial(getattr(self._backend, name))
        return found
