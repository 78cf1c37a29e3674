"""The side of a sweep that runs vectors: in the backend's environment, where nothing but torch need be installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from torchstone.backends.failures import EXHAUSTED, exhausted, is_out_of_memory, with_causes
from torchstone.backends.gradients import GradientBackend, WithGradients
from torchstone.backends.lookup import open_backend
from torchstone.backends.program import program_module, random_ops, written_names
from torchstone.backends.program_format import ProgramError, portable
from torchstone.backends.protocol import Backend, CompileFailed, NotRun, Unsupported
from torchstone.foreign import foreign_code
from torchstone.numerics.compare import identical
from torchstone.numerics.expected import ExpectedOutputs
from torchstone.numerics.pytree import named_tensors
from torchstone.numerics.verdict import judge
from torchstone.sweep.child.answers import answer_of, first_line
from torchstone.sweep.child.inputs import make_inputs
from torchstone.sweep.child.program import (
    NothingToCompareError,
    is_kernel,
    program_for,
    run_steps,
    unread_names,
    unread_outputs,
)
from torchstone.sweep.child.timing import timed

_MOST_DIFFERENCES = 256  # elements whose finite differences are taken one by one
_EAGER_REFUSES = "eager PyTorch refuses it"


@dataclass
class _Opened:
    """What the process was set up with, before it was copied."""

    backend: Backend | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


_opened = _Opened()


def set_up(payload: Mapping[str, Any]) -> None:
    """Open the backend once; every vector runs in a copy of this process."""
    torch.set_num_threads(int(payload.get("threads", 1)))
    import_module("torch._dynamo")  # the first dispatch mode or compiler of a process loads it, which takes seconds
    backend = open_backend(payload["backend"], payload.get("options") or {})
    backend.warm_up()
    _opened.backend = backend


def run_vector(payload: Mapping[str, object]) -> dict[str, Any]:
    """Run one op on the backend and compare it with eager PyTorch on the CPU."""
    backend = _opened.backend
    if backend is None:
        set_up(payload)
        backend = _opened.backend
    assert backend is not None  # noqa: S101 - set_up opens it
    with foreign_code() as ran:  # eager PyTorch refuses what is no valid call, in any way it likes
        case = Case(payload)
    if isinstance(ran.error, (NothingToCompareError, NotReproducibleError, Unsupported, ProgramError)):
        return answer_of("not run", str(ran.error), stage="reference")
    if ran.error is not None:
        if payload.get("refused") and not payload.get("only_reference"):
            return _judge_refusal(backend, payload, ran.error)
        return answer_of("not run", f"{_who_refuses(payload)}: {first_line(ran.error)}", stage="reference")
    if payload.get("only_reference"):
        return answer_of("passed", "", stage="reference")
    return _run_on(backend, case, payload)


_NOT_IMPLEMENTED = ("not implemented", "not supported", "not yet supported", "unsupported")  # in eager: others may


def _judge_refusal(backend: Backend, payload: Mapping[str, Any], error: Exception) -> dict[str, Any]:
    """A call that eager PyTorch refused when it was recorded, and refuses now: a backend must refuse it, too."""
    refusal = first_line(error)
    unsure = isinstance(error, NotImplementedError) or any(word in str(error).lower() for word in _NOT_IMPLEMENTED)
    with foreign_code() as ran:  # an op that gives lists of tensors must run before the program is known
        module = program_module(program_for(payload))
    if ran.error is not None:
        unsure = True
    if unsure or _who_refuses(payload) != _EAGER_REFUSES:
        return answer_of("not run", f"{_who_refuses(payload)}: {refusal}", stage="reference")
    inputs = make_inputs(payload["inputs"], seed=int(payload.get("seed", 0)))
    answer = _attempt(backend, module, inputs)
    if not isinstance(answer, dict):
        reason = f"gives a result where eager PyTorch refuses the call: {refusal}"
        verdict = {"passed": False, "state": "wrong", "reason": reason, "leaves": []}
        return answer_of("wrong", reason, verdict=verdict)
    if answer["outcome"] in ("not run", "out of memory"):
        return answer
    return answer_of("passed", "", verdict={"passed": True, "state": "passed", "reason": "", "leaves": []})


def _who_refuses(payload: Mapping[str, Any]) -> str:
    """Eager PyTorch, or only the form in which torchstone gives the call to other devices."""
    if not any(is_kernel(step["op"]) for step in payload["steps"]):
        return _EAGER_REFUSES
    names = [about["name"] for about in payload["inputs"]]
    with foreign_code() as ran:  # eager PyTorch refuses what is no valid call, in any way it likes
        inputs = make_inputs(payload["inputs"], seed=int(payload.get("seed", 0)))
        with torch.no_grad():
            run_steps(payload, dict(zip(names, inputs, strict=True)))
    if ran.error is not None:
        return _EAGER_REFUSES
    return "eager PyTorch runs it, but not the op that stands for it on other devices"


class NotReproducibleError(Exception):
    """The op gives something else each time."""


class Case:
    """One call or chain of calls, what it should give, and fresh copies of its inputs for whoever runs it."""

    def __init__(self, payload: Mapping[str, Any]) -> None:
        self._payload = payload
        names = [about["name"] for about in payload["inputs"]]
        inputs = self.inputs()
        self.program = program_for(payload)
        self.module: nn.Module = program_module(self.program)
        self.may_write = {names.index(name) for name in written_names(self.program)}
        self.expected = self._reference(inputs)
        if any(is_kernel(step["op"]) for step in payload["steps"]):
            self._check_rewrite(dict(zip(names, self.inputs(), strict=True)))
        if random_ops(self.program) and not judge(self.expected, self._reference(inputs, seed=1))["passed"]:
            msg = f"{payload['op']} draws random numbers: there is nothing to compare with"
            raise NotReproducibleError(msg)
        self.has_gradients = bool(payload.get("backward")) and not random_ops(self.program) and self._differentiate()
        self.given = inputs
        paths = [path for path, _ in named_tensors(self.expected)]
        self.unread = frozenset() if self.has_gradients else unread_outputs(self.program, paths)

    def _differentiate(self) -> bool:
        """Judge gradients, too, where eager PyTorch has some."""
        plain = self.module
        outputs = [
            tree for tree in portable(self.program)["outputs"] if tree["tensor"] not in unread_names(self.program)
        ]
        with foreign_code() as ran:  # an op without a derivative says so in any way it likes
            self.module = WithGradients(program_module({**self.program, "outputs": outputs}))
            expected = self._reference(self.inputs())
        if ran.error is not None:
            self.module = plain
            return False
        if not expected["gradients"]:
            self.module = plain
            return False
        self.expected = expected
        return True

    def _check_rewrite(self, tensors: Mapping[str, Tensor]) -> None:
        """The traced op is the golden one: the op that stands for it on other devices must give what it gives."""
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            known = run_steps(self._payload, tensors)
        golden = tuple(known[tree["tensor"]] for tree in portable(self.program)["outputs"])
        given = tuple(tensor for _, tensor in named_tensors(self.expected))
        verdict = judge(_one(golden), _one(given), None, ExpectedOutputs(self.module, self.arguments, "default"))
        if not verdict["passed"] and not random_ops(self.program):
            msg = f"the op that stands for {self._payload['op']} on other devices gives something else: "
            raise NotReproducibleError(msg + verdict["reason"])

    def arguments(self) -> tuple[tuple[Tensor, ...], dict[str, object]]:
        """Fresh inputs as the arguments of the program."""
        return tuple(self.inputs()), {}

    def inputs(self) -> list[Tensor]:
        """New tensors with the values of this vector."""
        return make_inputs(self._payload["inputs"], seed=int(self._payload.get("seed", 0)))

    def _reference(self, inputs: list[Tensor], *, seed: int = 0) -> Any:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.module(*inputs)


def _one(tensors: tuple[Tensor, ...]) -> object:
    """As a program gives them: one tensor, or a tuple."""
    return tensors[0] if len(tensors) == 1 else tensors


def _run_on(backend: Backend, case: Case, payload: Mapping[str, object]) -> dict[str, object]:
    inputs = case.inputs()
    ended = _attempt(GradientBackend(backend) if case.has_gradients else backend, case.module, inputs)
    return ended if isinstance(ended, dict) else _judged(case, ended[0], inputs, payload, ended[1])


def _attempt(
    backend: Backend | GradientBackend, module: nn.Module, inputs: list[Tensor]
) -> tuple[object, Callable[..., Any]] | dict[str, Any]:
    """What a backend gives, and what it compiled; or how it failed."""
    stage = "compile"
    with foreign_code(exhaustion_is_answer=True) as ran:  # a backend may raise anything, and that is the result
        compiled = backend.compile(module, tuple(inputs), {})
        stage = "run"
        with ExitStack() as kept:
            kept.enter_context(torch.random.fork_rng(devices=[]))
            torch.manual_seed(0)
            actual = compiled(*inputs)
    if ran.error is not None:
        return _refusal(ran.error, stage)
    return actual, compiled


def _refusal(error: Exception, stage: str) -> dict[str, Any]:
    if missing := exhausted(*map(str, with_causes(error))):
        return answer_of("not run", f"{EXHAUSTED}{missing}", stage=stage, error=error)
    match error:
        case Unsupported():
            return answer_of("unsupported", str(error), stage=stage)
        case NotRun():
            return answer_of("not run", str(error), stage=stage)
        case CompileFailed():
            return answer_of("compile error", first_line(error), stage=stage, error=error)
        case _:
            kind = "out of memory" if is_out_of_memory(error) else "raised"
            return answer_of(kind, first_line(error), stage=stage, error=error)


def _judged(
    case: Case, actual: object, inputs: list[Tensor], payload: Mapping[str, Any], compiled: Callable[..., Any]
) -> dict[str, object]:
    evidence = ExpectedOutputs(case.module, case.arguments, payload.get("profile") or "default")
    verdict = judge(case.expected, actual, payload.get("tolerance"), evidence, case.unread)
    verdict |= {"aliasing": _aliasing(case, actual, inputs)}
    reason = _also_wrong(case, verdict, inputs, strict_stride=bool(payload.get("strict_stride")))
    if verdict["passed"] and reason:
        verdict |= {"passed": False, "reason": reason}
    if not verdict["passed"] and case.has_gradients and not _gradients_are_confirmed(case, verdict):
        reason = "finite differences do not confirm the gradients of eager PyTorch, so there is nothing to compare with"
        return answer_of("not run", reason, verdict=verdict)
    if not verdict["passed"]:
        return answer_of("wrong", verdict["reason"], verdict=verdict)
    answer = answer_of("passed", verdict["reason"], verdict=verdict)
    if payload.get("perf"):
        answer["timing"] = timed(compiled, case.module, case.inputs(), payload["perf"])
    return answer


def _gradients_are_confirmed(case: Case, verdict: dict[str, Any]) -> bool:
    """Whether gradcheck agrees with eager PyTorch in float64 here; True where no gradient was judged wrong."""
    wrong = [leaf["path"] for leaf in verdict["leaves"] if not leaf["passed"] and not leaf.get("unread")]
    if not any(path.startswith("gradients") for path in wrong):
        return True
    assert isinstance(case.module, WithGradients)  # noqa: S101 - it has gradients
    program = case.module.module
    wide = [one.double().requires_grad_() if one.is_floating_point() else one for one in case.inputs()]
    fast = sum(one.numel() for one in wide) > _MOST_DIFFERENCES
    with foreign_code() as ran, torch.enable_grad():  # what cannot be run in float64 is not confirmed
        confirmed = torch.autograd.gradcheck(program, wide, fast_mode=fast, raise_exception=False)
    if ran.error is not None:
        confirmed = False
    verdict["gradcheck"] = confirmed
    return confirmed


def _also_wrong(case: Case, verdict: Mapping[str, Any], inputs: list[Tensor], *, strict_stride: bool) -> str:
    """What the comparison of values does not see: other element types, other strides, inputs that were written to."""
    for leaf in verdict["leaves"]:
        if leaf.get("unread"):
            continue
        where = f"{leaf['path']}: " if leaf["path"] else ""
        if leaf.get("same_dtype") is False:
            return f"{where}{leaf['actual_dtype']} instead of {leaf['dtype']}"
        if strict_stride and leaf.get("same_stride") is False:
            return f"{where}stride {leaf['actual_stride']} instead of {leaf['stride']}"
    for number, (before, after) in enumerate(zip(case.given, inputs, strict=True)):
        if number not in case.may_write and not identical(before, after):
            return f"input {number} was changed, and the op does not write to it"
    return ""


def _aliasing(case: Case, actual: object, inputs: list[Tensor]) -> dict[str, list[int]]:
    """Which inputs the outputs share memory with, for eager and for the backend; reported, not judged."""
    return {"eager": _shared(case.expected, case.given), "backend": _shared(actual, inputs)}


def _shared(outputs: object, inputs: list[Tensor]) -> list[int]:
    tensors = (tensor for _, tensor in named_tensors(outputs))
    held = {tensor.untyped_storage().data_ptr() for tensor in tensors if tensor.layout == torch.strided}
    return [number for number, tensor in enumerate(inputs) if tensor.untyped_storage().data_ptr() in held]
