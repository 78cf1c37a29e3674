"""Find the smallest set of operators that must be kept in eager's precision for a model to be within noise.

The model's code runs in Python. Each function of torch that it calls on float tensors is compiled for the backend and
run there, except those that are kept. So every set is tried by running it. Functions are those that the code calls,
such as linear or softmax, which is also what a compiler is given.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from time import monotonic
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._pytree import tree_flatten, tree_unflatten

from torchstone.backends.protocol import Backend
from torchstone.check.child.drift import allow_many_compilations
from torchstone.check.child.model import Payload, backend_for, loaded_model
from torchstone.foreign import foreign_code
from torchstone.numerics.expected import ExpectedOutputs
from torchstone.numerics.padding import tokens_of
from torchstone.numerics.profiles import WRONG_ABOVE
from torchstone.numerics.verdict import judge

_SEED = 0
_SHARE_OF_DEADLINE = 0.8


def smallest_precise_set(payload: Payload) -> dict[str, Any]:
    """A task: `sources` are the layers that add the error, tried alone after a set of operators is found."""
    loaded = loaded_model()
    allow_many_compilations()
    trial = _Trial(loaded.model, (loaded.args, loaded.kwargs), backend_for(payload["backend"]), payload["profile"])
    until_s = monotonic() + _SHARE_OF_DEADLINE * payload["deadline_s"]
    return _search(trial, payload["sources"], lambda: monotonic() < until_s)


def _search(trial: _Trial, sources: Sequence[str], has_time: Callable[[], bool]) -> dict[str, Any]:
    before = trial.multiple(())
    kinds = list(trial.calls)
    answer: dict[str, object] = {"before": before, "kinds": kinds}
    if before <= WRONG_ABOVE:
        return answer | {"why": "operator by operator, the model is within noise on the backend"}
    alone = {kind: trial.multiple({kind}) for kind in kinds if has_time()}
    kept: list[str] = []
    after = before
    for kind in sorted(alone, key=lambda one: alone[one]):
        if not has_time():
            return answer | {"why": "the time for trying sets of operators ran out"}
        kept.append(kind)
        after = alone[kind] if len(kept) == 1 else trial.multiple(kept)
        if after <= WRONG_ABOVE:
            break
    if after > WRONG_ABOVE:
        return answer | {"why": "the model is not within noise with every operator in eager's precision"}
    for kind in list(kept):
        rest = [one for one in kept if one != kind]
        if rest and has_time() and (found := trial.multiple(rest)) <= WRONG_ABOVE:
            kept, after = rest, found
    answer |= {"ops": kept, "after": after, "calls": sum(trial.calls[kind] for kind in kept), "layers": []}
    if sources and has_time():
        within = trial.multiple(kept, within=sources)
        if within <= WRONG_ABOVE:
            answer |= {"after": within, "layers": list(sources), "calls": trial.kept_calls}
    return answer | {"runs": trial.runs}


class _Trial:
    """Runs the model with some operators on the backend and the others in eager, and judges the outputs."""

    def __init__(
        self, model: nn.Module, arguments: tuple[tuple[Any, ...], dict[str, Any]], backend: Backend, profile: str
    ) -> None:
        self.calls: Counter[str] = Counter()  # of the last run
        self.kept_calls = 0
        self.runs = 0
        self._model = model
        self._arguments = arguments
        self._compiled = _CompiledFunctions(backend)
        tokens = tokens_of(arguments[1])
        self._evidence = ExpectedOutputs(model, lambda: copy.deepcopy(arguments), profile, None, tokens)
        self._expected = self._run()

    def multiple(self, kept: Collection[str], within: Sequence[str] = ()) -> float:
        """The error in multiples of the noise when these operators are kept, everywhere or in some modules."""
        self.runs += 1
        with _inside(self._model, within) as is_inside:
            mode = _OnBackend(self._compiled, kept, is_inside)
            actual = self._run(mode)
        self.calls, self.kept_calls = mode.calls, mode.kept_calls
        verdict = judge(self._expected, actual, None, self._evidence)
        found = verdict["noise_multiple"]
        return float("inf") if found is None and not verdict["passed"] else float(found or 0.0)

    def _run(self, mode: _OnBackend | None = None) -> Any:
        args, kwargs = copy.deepcopy(self._arguments)
        torch.manual_seed(_SEED)
        with torch.no_grad(), mode or nullcontext():
            return self._model(*args, **kwargs)


@contextmanager
def _inside(model: nn.Module, paths: Sequence[str]) -> Iterator[Callable[[], bool]]:
    """Whether one of these modules is running; always, where none is named."""
    depth = [0]

    def enter(*_: Any) -> None:
        depth[0] += 1

    def leave(*_: Any) -> None:
        depth[0] -= 1

    with ExitStack() as stack:
        for path in dict.fromkeys(paths):
            module = model.get_submodule(path)
            stack.callback(module.register_forward_pre_hook(enter).remove)
            stack.callback(module.register_forward_hook(leave, always_call=True).remove)
        yield lambda: not paths or depth[0] > 0


class _OnBackend(TorchFunctionMode):
    """Sends functions to the backend, except those that are kept."""

    def __init__(self, compiled: _CompiledFunctions, kept: Collection[str], is_inside: Callable[[], bool]) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.kept_calls = 0
        self._compiled = compiled
        self._kept = kept
        self._is_inside = is_inside

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> object:
        """Run one function."""
        kwargs = kwargs or {}
        name = _kind(func)
        leaves = tree_flatten((args, kwargs))[0]
        floats = [one for one in leaves if isinstance(one, Tensor) and one.is_floating_point()]
        versions = [one._version for one in floats]
        result = func(*args, **kwargs)
        changed = versions != [one._version for one in floats]
        if not name or not floats or changed or not _is_computed(result, floats):
            return result
        self.calls[name] += 1
        if name in self._kept and self._is_inside():
            self.kept_calls += 1
            return result
        return self._compiled.run(func, args, kwargs, result)


def _kind(func: Any) -> str:
    """The name of a function without its module: linear, softmax, add; "" for what only reads an attribute."""
    name = (resolve_name(func) or getattr(func, "__name__", "")).rpartition(".")[2]
    return "" if name in ("__get__", "__set__") else name.strip("_")


def _is_computed(result: object, floats: Sequence[Tensor]) -> bool:
    """Whether a result has new float values, and is not a view or a cast."""
    outputs = [one for one in tree_flatten(result)[0] if isinstance(one, Tensor)]
    if not outputs or not all(one.is_floating_point() for one in outputs):
        return False
    memory = {one.untyped_storage().data_ptr() for one in floats}
    return not any(one.untyped_storage().data_ptr() in memory for one in outputs)


class _Function(nn.Module):
    """One call of a function as a module of its tensors."""

    def __init__(self, func: Any, leaves: Sequence[Any], structure: Any) -> None:
        super().__init__()
        self._func = func
        self._leaves = [None if isinstance(one, Tensor) else one for one in leaves]
        self._places = [place for place, one in enumerate(leaves) if isinstance(one, Tensor)]
        self._structure = structure

    def forward(self, *tensors: Tensor) -> object:
        leaves = list(self._leaves)
        for place, tensor in zip(self._places, tensors, strict=True):
            leaves[place] = tensor
        args, kwargs = tree_unflatten(leaves, self._structure)
        return self._func(*args, **kwargs)


class _CompiledFunctions:
    """Functions as the backend compiled them, once for each set of shapes and arguments."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._known: dict[Any, Callable[..., Any] | None] = {}

    def run(self, func: Any, args: Any, kwargs: Any, otherwise: Any) -> Any:
        """The result of the backend; eager's where it does not take the function."""
        leaves, structure = tree_flatten((args, kwargs))
        tensors = [one.detach() for one in leaves if isinstance(one, Tensor)]
        key = (func, str(structure), tuple(map(_described, leaves)))
        if key not in self._known:
            self._known[key] = self._compile(_Function(func, leaves, structure).eval(), tensors)
        run = self._known[key]
        if run is None:
            return otherwise
        with foreign_code(), torch.no_grad():  # many backends compile when first called, and may raise anything
            return run(*tensors)
        self._known[key] = None
        return otherwise

    def _compile(self, module: nn.Module, tensors: Sequence[Tensor]) -> Callable[..., object] | None:
        with foreign_code():  # a backend may raise anything
            return self._backend.compile(module, tuple(tensors), {})
        return None


def _described(value: object) -> object:
    return (tuple(value.shape), value.dtype, value.stride()) if isinstance(value, Tensor) else repr(value)
