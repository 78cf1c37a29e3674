"""Measure how the error of a model grows over its layers on a backend; runs in the process that has the model.

The backend runs the whole model and returns what goes into and comes out of every layer. Each layer then runs in
float64 on the inputs that it had there, and on eager's inputs. What the backend returned beside the first is what the
layer added in this run. The difference of the two, over the difference of their inputs, is the factor by which the
layer amplifies what it inherits. The backend also runs each layer alone on eager's inputs: an error that it adds only
in the whole model, or only on inputs that are off already, has another cause.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import isfinite, sqrt
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from torchstone.backends.protocol import Backend, first_line
from torchstone.check.child.model import Payload, backend_for, loaded_model
from torchstone.foreign import foreign_code
from torchstone.numerics.expected import Draws, ExpectedOutputs
from torchstone.numerics.float64 import Float64Mode
from torchstone.numerics.noise_floor import Deviation, NoiseFloor
from torchstone.numerics.padding import tokens_of
from torchstone.numerics.profiles import SUSPICIOUS_ABOVE, WRONG_ABOVE
from torchstone.numerics.pytree import named_tensors
from torchstone.numerics.selection import Selection
from torchstone.numerics.verdict import WRONG, judge

Measured: TypeAlias = dict[str, Any]  # what is measured, as JSON
Arguments = tuple[tuple[Any, ...], Measured]

_SEED = 0
_OTHERWISE = 3.0  # an error that changes by more than this factor when layers are exposed is another one
_MANY_COMPILATIONS = 65_536


def measure(payload: Payload) -> Measured:
    """A task: the errors at every layer; `layers` has their paths in the order of the calls."""
    model = loaded_model()
    backend = backend_for(payload["backend"])
    allow_many_compilations()
    arguments = (model.args, model.kwargs)
    return _Drift(model.model, arguments, payload["layers"], backend, payload.get("profile", "default")).measured()


def allow_many_compilations() -> None:
    """Let dynamo compile every layer: beyond its usual limit it would run eager, without a word."""
    config = getattr(sys.modules.get("torch._dynamo"), "config", None)
    for name in ("recompile_limit", "accumulated_recompile_limit", "cache_size_limit", "accumulated_cache_size_limit"):
        if config is not None and hasattr(config, name):
            setattr(config, name, _MANY_COMPILATIONS)


@dataclass
class Boundary:
    """The float tensors that go into one call of a layer, and those that come out."""

    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)


class Observed(nn.Module):
    """A model that also returns the tensors at the boundaries of some of its modules, in the order of their calls."""

    def __init__(self, model: nn.Module, paths: Sequence[str]) -> None:
        super().__init__()
        self.model = model
        self._seen: list[list[Tensor]] = []
        self._hooks = []
        for path in dict.fromkeys(paths):
            module = model.get_submodule(path)
            self._hooks.append(module.register_forward_pre_hook(self._enter, with_kwargs=True))
            self._hooks.append(module.register_forward_hook(self._leave))

    def forward(self, *args: object, **kwargs: object) -> Any:
        """The outputs of the model, and for each call of a layer its inputs and its outputs."""
        self._seen.clear()
        output = self.model(*args, **kwargs)
        return output, [list(tensors) for tensors in self._seen]

    def close(self) -> None:
        """Remove the hooks."""
        for hook in self._hooks:
            hook.remove()

    def _enter(self, _: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        self._seen.append([*_floats(args), *_floats(kwargs)])

    def _leave(self, _: nn.Module, args: tuple[object, ...], output: object) -> None:  # noqa: ARG002 - torch's signature
        self._seen.append(_floats(output))


def _floats(value: object) -> list[Tensor]:
    """The float tensors in a value, one level deep: simple enough for a compiler to trace."""
    if isinstance(value, Tensor):
        return [value] if value.is_floating_point() else []
    items = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
    return [item for item in items if isinstance(item, Tensor) and item.is_floating_point()]


class _Drift:
    """One measurement."""

    def __init__(
        self, model: nn.Module, arguments: Arguments, paths: Sequence[str], backend: Backend, profile: str
    ) -> None:
        self._model = model
        self._arguments = arguments
        self._paths = list(paths)
        self._backend = backend
        self._profile = profile
        self._tokens = tokens_of(arguments[1])

    def measured(self) -> Measured:
        """Everything that the verdict needs, as JSON."""
        plain = self._run_on_backend(self._model)
        with self._exposed() as observed:
            evidence = ExpectedOutputs(observed, self._fresh, self._profile, None, self._tokens)
            expected = self._eager(observed)
            if len(expected[1]) != 2 * len(self._paths):
                msg = f"the layers were called {len(expected[1]) // 2} times, but {len(self._paths)} when captured"
                raise RuntimeError(msg)
            verdict = judge(expected[0], plain, None, _Part(evidence, "0"))
            final = _worst_leaf(verdict)
            actual, how = self._exposed_run(observed, expected, evidence, final)
            layers = self._layers(expected[1], actual[1], evidence)
        return {"layers": layers, "final": final, "observed": how, "wrong": verdict["state"] == WRONG}

    @contextmanager
    def _exposed(self) -> Iterator[Observed]:
        observed = Observed(self._model, self._paths)
        try:
            yield observed
        finally:
            observed.close()

    def _fresh(self) -> Arguments:
        return copy.deepcopy(self._arguments)

    def _eager(self, module: nn.Module) -> Any:
        args, kwargs = self._fresh()
        torch.manual_seed(_SEED)
        with torch.no_grad():
            return module(*args, **kwargs)

    def _run_on_backend(self, module: nn.Module) -> Any:
        with torch.no_grad():
            args, kwargs = self._fresh()
            run = self._backend.compile(module, args, kwargs)
            args, kwargs = self._fresh()
            torch.manual_seed(_SEED)
            return run(*args, **kwargs)

    def _exposed_run(
        self, observed: Observed, expected: Any, evidence: ExpectedOutputs, final: Measured
    ) -> tuple[Any, str]:
        """The boundaries of one backend run; where that changes the result or fails, of a run layer by layer."""
        with foreign_code() as ran:  # whatever a backend raises: there is another way
            actual = self._run_on_backend(observed)
            again = _worst_leaf(judge(expected[0], actual[0], None, _Part(evidence, "0")))
            if len(actual[1]) == len(expected[1]) and not _otherwise(final, again):
                return (actual[0], _as_in_eager(expected[1], actual[1])), "one run"
            why = "the error is another one when the layers are exposed"
        if ran.error is not None:
            why = f"the layers cannot be exposed: {first_line(ran.error)}"
        actual = self._run_layer_by_layer(observed)
        return (actual[0], _as_in_eager(expected[1], actual[1])), f"layer by layer ({why})"

    def _run_layer_by_layer(self, observed: Observed) -> Any:
        """Eager runs the code around the layers, the backend each layer on what it got from the one before it."""
        undo: list[Callable[[], None]] = []
        try:
            for path in dict.fromkeys(self._paths):
                undo.append(self._on_backend(self._model.get_submodule(path)))
            return self._eager(observed)
        finally:
            for restore in undo:
                restore()

    def _on_backend(self, module: nn.Module) -> Callable[[], None]:
        """Let the calls of a module run on the backend; returns what undoes it."""
        code = module.forward
        busy = False

        def forward(*args: object, **kwargs: object) -> Any:
            nonlocal busy
            if busy:
                return code(*args, **kwargs)
            busy = True
            try:
                with _without_hooks(module):  # the outer call is the one that is seen
                    return _compiled(self._backend, module, (args, kwargs))(*args, **kwargs)
            finally:
                busy = False

        module.__dict__["forward"] = forward

        def restore() -> None:
            del module.__dict__["forward"]

        return restore

    def _layers(self, wanted: Any, given: Any, evidence: ExpectedOutputs) -> list[Measured]:
        golden = self._golden_arguments()
        found = []
        for number, path in enumerate(self._paths):
            inside, outside = 2 * number, 2 * number + 1
            verdict = judge(wanted[outside], given[outside], None, _Part(evidence, f"1.{outside}"))
            layer = self._model.get_submodule(path)
            one = {"path": path, "class_name": type(layer).__name__, "total": _worst_leaf(verdict)}
            with _without_hooks(layer):
                one |= self._layer(layer, golden[number], given[inside], given[outside])
            found.append(one)
        return found

    def _layer(self, layer: nn.Module, golden: Arguments, inside: list[Tensor], outside: list[Tensor]) -> Measured:
        one: Measured = {"alone": self._added_alone(layer, golden)}
        moved = _replaced(golden, inside)
        if moved is None:
            return one
        one |= _amplification(layer, golden, moved)
        one["added"] = self._judged(layer, moved, outside)
        if _is_less(one["alone"], one["added"]) and one["inherited"]:
            one["alone_on_inherited"] = self._added_alone(layer, moved)
        return one

    def _judged(self, layer: nn.Module, arguments: Arguments, actual: object) -> Measured:
        """How far some outputs are from those that the layer should have for these arguments."""
        floats = _FloatsOf(layer)
        evidence = ExpectedOutputs(floats, lambda: copy.deepcopy(arguments), self._profile, None, self._tokens)
        args, kwargs = copy.deepcopy(arguments)
        torch.manual_seed(_SEED)
        with foreign_code() as ran, torch.no_grad():  # a layer may raise anything: it is unknown then
            expected = floats(*args, **kwargs)
        if ran.error is not None:
            return {"why": f"eager itself raises: {first_line(ran.error)}"}
        return _worst_leaf(judge(expected, actual, None, evidence))

    def _added_alone(self, layer: nn.Module, arguments: Arguments) -> Measured:
        """The error of a layer that the backend runs alone."""
        args, kwargs = copy.deepcopy(arguments)
        with foreign_code() as ran, torch.no_grad():  # whatever a backend raises: this layer is unknown
            run = _compiled(self._backend, layer, arguments)
            torch.manual_seed(_SEED)
            actual = _floats(run(*args, **kwargs))
        if ran.error is not None:
            return {"why": first_line(ran.error)}
        return self._judged(layer, arguments, actual)

    def _golden_arguments(self) -> list[Arguments]:
        """What every layer is called with in an eager run."""
        found: list[Arguments] = []

        def keep(_: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
            found.append(copy.deepcopy((args, kwargs)))

        hooks = [
            self._model.get_submodule(path).register_forward_pre_hook(keep, with_kwargs=True)
            for path in dict.fromkeys(self._paths)
        ]
        try:
            self._eager(self._model)
        finally:
            for hook in hooks:
                hook.remove()
        return found


class _FloatsOf(nn.Module):
    """A layer that returns its float tensors in a list."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, *args: object, **kwargs: object) -> list[Tensor]:
        return _floats(self.layer(*args, **kwargs))


def _is_less(first: Measured, second: Measured) -> bool:
    """Whether an error is much smaller than another one, which is beyond noise."""
    if "multiple" not in first or "multiple" not in second:
        return False
    return bool(second["multiple"] > WRONG_ABOVE and first["multiple"] * _OTHERWISE < second["multiple"])


class _Part:
    """The evidence about one part of nested outputs, under its own paths."""

    def __init__(self, whole: ExpectedOutputs, prefix: str) -> None:
        self._whole = whole
        self._prefix = prefix

    def _path(self, path: str) -> str:
        return f"{self._prefix}.{path}" if path else self._prefix

    def float64(self, path: str) -> Tensor | None:
        return self._whole.float64(self._path(path))

    def floor(self, path: str, number_format: str, values: Deviation) -> NoiseFloor:
        return self._whole.floor(self._path(path), number_format, values)

    def selection(self, path: str) -> Selection | None:
        return self._whole.selection(self._path(path))

    def integers(self, path: str, number_format: str) -> Sequence[Tensor]:
        return self._whole.integers(self._path(path), number_format)

    def drawn(self, path: str) -> Draws | None:
        return self._whole.drawn(self._path(path))

    def counted(self, path: str, shape: Sequence[int]) -> Tensor | None:
        return self._whole.counted(self._path(path), shape)


def _compiled(backend: Backend, module: nn.Module, arguments: Arguments) -> Callable[..., Any]:
    with torch.no_grad():
        args, kwargs = copy.deepcopy(arguments)
        return backend.compile(module, args, kwargs)


@contextmanager
def _without_hooks(module: nn.Module) -> Iterator[None]:
    """The boundaries of the whole model are known: hooks would only hinder a compiler."""
    tables = ("_forward_hooks", "_forward_pre_hooks", "_forward_hooks_with_kwargs", "_forward_pre_hooks_with_kwargs")
    kept = {name: getattr(module, name).copy() for name in tables}
    for name in tables:
        getattr(module, name).clear()
    try:
        yield
    finally:
        for name, hooks in kept.items():
            getattr(module, name).update(hooks)


def _named_floats(value: object) -> dict[str, Tensor]:
    return {path: one for path, one in named_tensors(value) if one.is_floating_point()}


def _worst_leaf(verdict: Measured) -> Measured:
    """The noise multiple and the relative error of the output that is furthest off; nothing where none is judged."""
    leaves = [leaf for leaf in verdict["leaves"] if leaf.get("noise_multiple") is not None]
    if not leaves:
        return {}
    worst = max(leaves, key=lambda leaf: leaf["noise_multiple"])
    relative = (worst.get("noise") or {}).get("relative_error")
    relative = worst.get("relative_l2") if relative is None else relative
    noise = (worst.get("noise") or {}).get("relative_noise")
    found = {"multiple": worst["noise_multiple"], "relative": relative, "noise": noise, "pcc": worst.get("pcc")}
    return {name: value for name, value in found.items() if value is not None and isfinite(value)}


def _as_in_eager(wanted: list[list[Tensor]], given: list[list[Tensor]]) -> list[list[Tensor]]:
    """Tensors between layers in the dtypes of eager: which one a backend keeps them in is its own business."""
    return [
        [other.to(one.dtype) for one, other in zip(ones, others, strict=False)]
        for ones, others in zip(wanted, given, strict=True)
    ]


def _otherwise(before: Measured, after: Measured) -> bool:
    """Whether two errors of the same output are so different that they have another cause."""
    if max(before.get("multiple", 0.0), after.get("multiple", 0.0)) <= SUSPICIOUS_ABOVE:
        return False
    first, second = before.get("relative", 0.0), after.get("relative", 0.0)
    return bool(max(first, second) > _OTHERWISE * min(first, second))


def _replaced(golden: Arguments, given: Sequence[Tensor]) -> Arguments | None:
    """The arguments of a layer with the float tensors that the backend had; None where they do not fit."""
    args, kwargs = copy.deepcopy(golden)
    if len(_floats(args)) + len(_floats(kwargs)) != len(given):
        return None
    ahead = iter(given)

    def swapped(value: object) -> Any:
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return value
        other = next(ahead)
        return other.detach().to(value.dtype).clone() if other.shape == value.shape else value

    return tuple(map(swapped, args)), {name: swapped(value) for name, value in kwargs.items()}


def _amplification(layer: nn.Module, golden: Arguments, moved: Arguments) -> Measured:
    """The relative error that a layer inherits, and the factor by which its float64 values amplify it."""
    pairs = list(zip(_floats([*golden[0], *golden[1].values()]), _floats([*moved[0], *moved[1].values()]), strict=True))
    inherited = _relative([(one.double(), other.double()) for one, other in pairs if not torch.equal(one, other)])
    if inherited is None:
        return {"inherited": 0.0}
    try:
        exact, other = _float64_outputs(layer, golden), _float64_outputs(layer, moved)
    except (RuntimeError, ValueError, TypeError, NotImplementedError, IndexError, KeyError) as error:
        return {"inherited": inherited, "why_no_factor": first_line(error)}
    passed_on = _relative([(exact[path], other[path]) for path in exact if path in other])
    return {"inherited": inherited, "passed_on": passed_on or 0.0, "factor": (passed_on or 0.0) / inherited}


def _float64_outputs(layer: nn.Module, arguments: Arguments) -> dict[str, Tensor]:
    args, kwargs = copy.deepcopy(arguments)
    mode = Float64Mode()
    with torch.no_grad():
        torch.manual_seed(_SEED)
        with mode:
            outputs = _named_floats(layer(*args, **kwargs))
        return {path: mode.twin(one) for path, one in outputs.items()}


def _relative(pairs: Sequence[tuple[Tensor, Tensor]]) -> float | None:
    """The root mean square of the differences over that of the values; None where there is neither."""
    error = power = 0.0
    for wanted, given in pairs:
        if wanted.shape != given.shape:
            continue
        usable = wanted.isfinite() & given.isfinite() & (wanted.abs() < 1e30)  # noqa: PLR2004 - constants of masks
        error += float((wanted - given)[usable].square().sum())
        power += float(wanted[usable].square().sum())
    return sqrt(error / power) if power and error else None
