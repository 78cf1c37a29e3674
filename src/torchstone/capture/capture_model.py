"""capture(): run a model once and keep everything that happened."""

import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves

from torchstone import __version__
from torchstone.capture.assumed_values import NO_VALUES, AssumedValues
from torchstone.capture.describe import class_path
from torchstone.capture.module_tree import ModuleTree
from torchstone.capture.restore_state import plain_holders, uncollected
from torchstone.capture.run import Run
from torchstone.capture.tensor_modes import FakeWorld, MetaWorld, MovedWorld, RealWorld, StandInWorld
from torchstone.errors import CaptureError
from torchstone.models.inputs import Inputs, inputs_from_value
from torchstone.models.prepare import memory_shortage
from torchstone.record.trace import Provenance, Trace


class Mode(StrEnum):
    """What the model runs on."""

    AUTO = "auto"
    META = "meta"
    FAKE = "fake"
    CPU = "cpu"
    CUDA = "cuda"


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What the caller knows about a model: what should stand in the record, and how to get it with values."""

    model: str = ""
    phase: str = ""
    inputs: str = ""
    command: str = ""
    notes: tuple[str, ...] = ()
    materialise: Callable[[], nn.Module] | None = None  # builds the model with real weights


_NOTHING_KNOWN = About()
_SMALL_BYTES = 1 << 28
_NEVER_LAZY = frozenset({nn.Parameter, nn.Buffer, torch.Tensor, type(None)})
_NO_GRAPH = "does not require grad and does not have a grad_fn"  # torch's words where autograd is off
_NO_FAST_PATH = (
    "nn.TransformerEncoder ran op by op: its fused kernel takes a nested tensor, which cannot be recorded "
    "(torch.backends.mha.set_fastpath_enabled(False) does the same in eager)"
)


def capture(
    model: nn.Module,
    inputs: object,
    mode: str = "auto",
    *,
    reuse: bool = True,
    backward: bool = False,
    about: About = _NOTHING_KNOWN,
) -> Trace:
    """Run a model on example inputs and record every module call and every op.

    `inputs` is a tensor, a tuple or list of arguments, a dict of keyword arguments, an (args, kwargs) pair, or what
    `models.load` gives. `mode` says what the model runs on; auto takes the fastest that does what a real run does:
    fake, then cpu. A model that raises gives a trace up to that point, with its `failure`.
    """
    with uncollected():
        given = inputs_from_value(inputs, origin="the given inputs")
        tree = ModuleTree(model)
        _refuse_unobservable(tree, given)
        with plain_holders(tree.modules):
            return _capture(_Attempt(model=model, tree=tree, inputs=given, reuse=reuse, backward=backward), mode, about)


def _capture(attempt: "_Attempt", mode: str, about: About) -> Trace:
    wanted = _mode(mode)
    if wanted is Mode.AUTO:
        run, used, reason = _run_auto(attempt, about.materialise)
    else:
        run, used, reason = _run_in(attempt, wanted, about.materialise)
    _refuse_nested(run)
    provenance = Provenance(
        model=about.model or class_path(type(attempt.model)),
        mode=used.value,
        mode_reason=reason,
        phase=about.phase,
        inputs=about.inputs,
        versions=_versions(),
        command=about.command,
        created=datetime.now(tz=UTC).isoformat(timespec="seconds"),
        reused_ops=run.reused_ops,
    )
    differences = tuple(f"unlike in a real run, {difference}" for difference in run.differences)
    trace = run.trace(provenance, about.notes + differences + run.notes)
    run.close()
    return trace


def _refuse_unobservable(tree: ModuleTree, inputs: Inputs) -> None:
    """Refuse what cannot be recorded, each with its way out."""
    classes = {kind for kind in set(map(type, tree.modules)) if issubclass(kind, torch.jit.ScriptModule)}
    places = zip(tree.paths, tree.modules, strict=True)
    scripted = next((path for path, module in places if type(module) in classes), None) if classes else None
    if scripted is not None:
        msg = (
            f"{scripted or 'the model'} is a TorchScript module, whose modules run inside torch's interpreter and "
            "cannot be observed; give the nn.Module that it was made from, or a .pt2 file of torch.export"
        )
        raise CaptureError(msg)
    places = zip(tree.paths, tree.modules, strict=True)
    lazy = next((f"{path}.{name}" for path, module in places for name in _lazy_names(module)), None)
    if lazy is not None:
        name = lazy.removeprefix(".")
        msg = f"{name} is lazy and has no shape yet; call the model once on real inputs before it is captured"
        raise CaptureError(msg)
    nested = [
        tensor
        for tensor in tree_leaves((inputs.args, inputs.kwargs))
        if isinstance(tensor, torch.Tensor) and tensor.is_nested
    ]
    if nested:
        msg = (
            f"one of the inputs is a nested tensor ({str(nested[0].layout).removeprefix('torch.')}), whose rows have "
            "no common shape; pad it to one shape and pass a mask"
        )
        raise CaptureError(msg)


def _refuse_nested(run: Run) -> None:
    """Refuse a model that works with nested tensors inside: nothing can look into one, so that torch ends the run."""
    if _meets_nested(run.error):
        msg = (
            "the model makes a nested tensor, whose rows have no common shape, so that its ops cannot be recorded; let "
            f"it work on padded tensors and a mask (torch: {str(run.error).splitlines()[0][:100]})"
        )
        raise CaptureError(msg)


def _meets_nested(error: Exception | None) -> bool:
    """Whether a nested tensor ended a run: torch also names it in lists of all kinds of tensors that an op takes."""
    words = str(error).partition("only available for these backends")[0]
    return error is not None and ("NestedTensor" in words or "NestedInt" in words)


def _lazy_names(module: nn.Module) -> list[str]:
    """The parameters and buffers of a module that have no shape yet."""
    own = vars(module)
    tables = [table for table in (own["_parameters"], own["_buffers"]) if table]
    if all(_NEVER_LAZY.issuperset(map(type, table.values())) for table in tables):
        return []
    held = {**own["_parameters"], **own["_buffers"]}
    return [
        name
        for name, tensor in held.items()
        if tensor is not None and type(tensor) not in _NEVER_LAZY and is_lazy(tensor)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    model: nn.Module
    tree: ModuleTree
    inputs: Inputs
    reuse: bool
    backward: bool

    def run(self, world: RealWorld | StandInWorld, model: nn.Module | None = None) -> Run:
        tree = self.tree if model is None or model is self.model else ModuleTree(model)
        run = Run(tree, world, reuse=self.reuse, backward=self.backward)
        run.execute(self.inputs.args, self.inputs.kwargs)
        if not self.backward and _NO_GRAPH in str(run.error):  # the model differentiates inside its forward pass
            run = Run(tree, world, reuse=False, backward=False, differentiable=True)
            run.execute(self.inputs.args, self.inputs.kwargs)
        if not _meets_nested(run.error) or not torch.backends.mha.get_fastpath_enabled():
            return run
        # nn.TransformerEncoder packs a padded batch into a nested tensor before its fused kernel, and nothing can look
        # into one. Its other path gives the same values from ordinary ops.
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            run = Run(tree, world, reuse=self.reuse, backward=self.backward)
            run.execute(self.inputs.args, self.inputs.kwargs)
        finally:
            torch.backends.mha.set_fastpath_enabled(True)
        world.differences[_NO_FAST_PATH] = None
        return run


def _run_in(attempt: _Attempt, mode: Mode, materialise: Callable[[], nn.Module] | None) -> tuple[Run, Mode, str]:
    reason = "asked for"
    match mode:
        case Mode.META:
            return attempt.run(MetaWorld()), mode, reason
        case Mode.FAKE:
            run = attempt.run(FakeWorld())
            return (_run_assuming(attempt) if isinstance(run.error, NO_VALUES) else run), mode, reason
        case Mode.CUDA:
            return attempt.run(_cuda()), mode, reason
        case _:
            return attempt.run(RealWorld(), _with_values(attempt.model, materialise)), Mode.CPU, reason


def _run_auto(attempt: _Attempt, materialise: Callable[[], nn.Module] | None) -> tuple[Run, Mode, str]:
    """Fake, then cpu: the fastest that does what a real run does.

    Meta is faster, and only taken when asked for: torch and models look at the device and go other ways there.
    """
    run = attempt.run(FakeWorld())
    if run.error is not None and attempt.reuse:  # a module that was never run may have been expected to have run
        run = replace(attempt, reuse=False).run(FakeWorld())
    if run.error is None:
        return run, Mode.FAKE, "fastest faithful mode"
    runs_really = not _without_values(attempt.model) or (materialise is not None and _is_small(attempt.model))
    if isinstance(run.error, NO_VALUES) and not runs_really:
        assuming = _run_assuming(attempt)
        if assuming.error is None:
            return assuming, Mode.FAKE, f"{_words(run.error)}, so that some values are assumed"
    why = _words(run.error)
    if _without_values(attempt.model):
        no_way = "the model has no values to run on the cpu" if materialise is None else memory_shortage(attempt.model)
        if no_way:
            return run, Mode.FAKE, f"{why}; {no_way}"
    return attempt.run(RealWorld(), _with_values(attempt.model, materialise)), Mode.CPU, why


def _run_assuming(attempt: _Attempt) -> Run:
    """Run on fake tensors, with values assumed for what the model reads back."""
    return attempt.run(FakeWorld(AssumedValues()))


def _words(error: Exception) -> str:
    words = str(error).strip().splitlines()
    return f"fake tensors stop with {type(error).__name__}: {words[0][:160] if words else 'no message'}"


def _is_small(model: nn.Module) -> bool:
    """Whether real values are made and run in seconds: what they lead to is then known, not assumed."""
    return sum(one.numel() * one.element_size() for one in model.parameters()) <= _SMALL_BYTES


def _mode(name: str) -> Mode:
    try:
        return Mode(name)
    except ValueError:
        msg = f"there is no capture mode {name!r}; choose one of {', '.join(Mode)}"
        raise CaptureError(msg) from None


def _without_values(model: nn.Module) -> bool:
    return any(tensor.is_meta for held in (model.parameters(), model.buffers()) for tensor in held)


def _with_values(model: nn.Module, materialise: Callable[[], nn.Module] | None) -> nn.Module:
    if not _without_values(model):
        return model
    if materialise is None:
        msg = "this model has no values (it is on the meta device), so it cannot run on the cpu; use --mode fake"
        raise CaptureError(msg)
    return materialise()


def _cuda() -> MovedWorld:
    if not torch.cuda.is_available():
        msg = "there is no CUDA device here; use --mode cpu or --mode fake"
        raise CaptureError(msg)
    return MovedWorld(torch.device("cuda"))


def _versions() -> dict[str, str]:
    libraries = {name: getattr(sys.modules.get(name), "__version__", None) for name in ("transformers",)}
    present = {name: str(version) for name, version in libraries.items() if version}
    return {"torchstone": __version__, "python": platform.python_version(), "torch": str(torch.__version__), **present}
