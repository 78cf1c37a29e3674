"""The tasks of a check, each in a process of its own: a module or a program on the backend, against eager.

Needs torch, the backend's own packages and the standard library; the answer is JSON.
"""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf, isfinite
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torchstone.backends.failures import COMPILE, EXHAUSTED, WRITES_TO_INPUT, exhausted, outcome_of, with_causes
from torchstone.backends.gradients import GradientBackend, WithGradients
from torchstone.backends.op_info import ops_named_in
from torchstone.backends.program import program_module
from torchstone.backends.protocol import Backend, CompileFailed, NotRun, Unsupported, first_line
from torchstone.check.child.model import Payload, backend_for, has_model, loaded_model
from torchstone.check.child.programs import as_written_by_hand, inputs_of_steps, starting_values
from torchstone.check.child.recording import RANDOM_STATE
from torchstone.check.child.values import Buffers, Reader, copied
from torchstone.foreign import foreign_code
from torchstone.numerics.expected import ExpectedOutputs
from torchstone.numerics.padding import tokens_of
from torchstone.numerics.pytree import named_tensors
from torchstone.numerics.tensor_files import read_tensors
from torchstone.numerics.verdict import error_limit, judge

Arguments = tuple[tuple[object, ...], dict[str, Any]]

_NUMBERS = (
    "noise_multiple", "pcc", "relative_l2", "cosine", "max_abs", "max_rel", "max_ulp", "allclose", "equal", "misplaced",
    "nan", "inf", "worst_at", "ulp_histogram",
)  # fmt: skip
_MOST_TEXT = 4_000
_WRAPPERS = ("BackendCompilerFailed",)  # of torch.compile: the words of the backend are in what they wrap
_SEED = 0
_MOST_CALLS = 8  # of what gives other values when it is called again
_SHARE_OF_DEADLINE = 0.25  # what took longer is not called again
_USUAL_DEADLINE_S = 60.0
_MUCH = 0.1  # of its error, by which a result differs when it is called again


@dataclass(frozen=True)
class Subject:
    """A module, fresh arguments for it as often as asked, and what eager gave."""

    module: nn.Module
    arguments: Callable[[], Arguments]
    expected: dict[str, Tensor]
    random_state: Tensor | None = None


def run_module(payload: Payload) -> dict[str, Any]:
    """A task: one module of the model that this process holds, with the arguments of the recorded call."""
    subject = subject_of_module(payload)
    answer = attempt(subject, backend_for(payload["backend"]), payload)
    if answer["outcome"] not in ("passed", "unsupported"):
        doubt = _eager_failure(subject, payload)
        if doubt:
            return {"outcome": "not run", "reason": doubt}
    return answer


def run_program(payload: Payload) -> dict[str, Any]:
    """A task: some recorded ops, with the values they had."""
    program = as_written_by_hand(payload["program"])
    if not program["steps"]:
        return {"outcome": "passed", "notes": ["it calls no op"]}
    found = inputs_of_steps(payload, starting_values(payload))
    return run_on_tensors(program, found, payload)


def export_unit(payload: Payload) -> dict[str, object]:
    """A task: only the IR of a module, or of its recorded ops."""
    if "path" in payload:
        subject = subject_of_module(payload)
    else:
        program = as_written_by_hand(payload["program"])
        subject = _subject_of_program(program, inputs_of_steps(payload, starting_values(payload)))
    exported = _export(subject, backend_for(payload["backend"]), payload, _Stage(payload["stage_file"]))
    return (
        {"outcome": "compile error", "reason": exported["ir_error"]} | exported
        if "ir_error" in exported
        else {"outcome": "passed"} | exported
    )


def run_on_tensors(program: dict[str, object], found: dict[str, Tensor], payload: Payload) -> dict[str, Any]:
    """A program with these inputs and constants on the backend; eager runs it first."""
    subject = _subject_of_program(program, found)
    _Stage(payload.get("stage_file", "")).reach("eager")
    torch.manual_seed(_SEED)
    with torch.no_grad():
        with foreign_code() as ran:  # whatever an op raises is the answer
            args, kwargs = subject.arguments()
            expected = dict(named_tensors(subject.module(*args, **kwargs)))
        if ran.error is not None:
            return {"outcome": "not run", "reason": f"eager itself raises: {first_line(ran.error)}"}
    return attempt(replace(subject, expected=expected), backend_for(payload["backend"]), payload)


def subject_of_module(payload: Payload) -> Subject:
    """The module of a recorded call, with its arguments and outputs."""
    held = loaded_model()
    document = json.loads(Path(payload["values"]).with_suffix(".json").read_text(encoding="utf-8"))
    tensors = read_tensors(Path(payload["values"]))

    module = held.model.get_submodule(payload["path"])
    buffers = Buffers(module)

    def arguments() -> Arguments:
        buffers.restore()
        reader = Reader(tensors, held.model)
        return reader.read(document["args"]), reader.read(document["kwargs"])

    expected = {path: tensors[f"out.{place}"] for place, path in enumerate(document["outputs"])}
    return Subject(module, arguments, expected, tensors.get(RANDOM_STATE))


def _subject_of_program(program: dict[str, Any], found: dict[str, Tensor]) -> Subject:
    module = program_module(program, {name: found[name] for name in program["constants"]}).eval()

    def arguments() -> Arguments:
        return tuple(copied(found[name]).detach() for name in program["inputs"]), {}

    return Subject(module, arguments, {})


def attempt(subject: Subject, backend: Backend, payload: Payload) -> dict[str, Any]:
    """Compile, run and judge a subject on a backend; whatever the backend raises is an answer."""
    stage = _Stage(payload.get("stage_file", ""))
    exported = _export(subject, backend, payload, stage)
    if payload.get("backward"):
        subject, backend = with_backward_pass(subject), GradientBackend(backend)
    stage.reach(COMPILE)
    with foreign_code(exhaustion_is_answer=True) as ran, torch.no_grad():  # whatever a backend raises is the outcome
        began_s = time.monotonic()
        args, kwargs = subject.arguments()
        run = backend.compile(subject.module, args, kwargs)
        stage.reach("run")
        args, kwargs = subject.arguments()
        _seed(subject.random_state)
        calls = Calls(subject, run, run(*args, **kwargs))
        if time.monotonic() - began_s < _SHARE_OF_DEADLINE * payload.get("deadline_s", _USUAL_DEADLINE_S):
            calls.repeat()
    if ran.error is not None:
        return exported | _refusal(ran.error, stage.name)
    verdicts = calls.judged(payload["tolerance"], _evidence(subject, payload))
    answer = exported | _judged(verdicts[0])
    if len(verdicts) > 1:
        return answer | calls.outcome(verdicts)
    written = _written_inputs(subject, (args, kwargs)) if verdicts[0]["passed"] else ""
    return answer if not written else answer | {"outcome": "wrong", "stage": "run", "reason": written}


class Calls:
    """Calls of one compiled function with the same inputs: they give the same values, or something is wrong."""

    def __init__(self, subject: Subject, run: Callable[..., Any], first: object) -> None:
        self._subject = subject
        self._run = run
        self._outputs = [_copies(first)]  # a backend may use the memory of its outputs again

    def repeat(self) -> None:
        """Call once more; where that gives other bits, often enough to tell state from chance."""
        second = self._call()
        if second.keys() == self._outputs[0].keys() and not _changed(self._outputs[0], second):
            return
        self._outputs.append(second)
        if self._eager_differs():
            del self._outputs[1:]
            return
        while len(self._outputs) < _MOST_CALLS:
            self._outputs.append(self._call())

    def judged(self, tolerance: dict[str, object], evidence: ExpectedOutputs) -> list[dict[str, Any]]:
        """The verdict of every call, or of the first where the others say the same."""
        found = [judge(self._subject.expected, one, tolerance, evidence) for one in self._outputs]
        unlike = any(self._are_unlike(found, 0, place) for place in range(1, len(found)))
        return found if unlike else found[:1]

    def outcome(self, verdicts: list[dict[str, Any]]) -> dict[str, object]:
        """What calls that differ come to: wrong from the second on, or other values every time."""
        steady = all(
            not verdicts[place]["passed"] and not self._are_unlike(verdicts, 1, place)
            for place in range(1, len(verdicts))
        )
        if verdicts[0]["passed"] and steady:
            judged = _judged(verdicts[1])
            return judged | {"reason": f"right in the first call; from the second on: {judged['reason']}"}
        right = sum(bool(verdict["passed"]) for verdict in verdicts)
        reason = f"the same call gives other values: {right} of {len(verdicts)} calls are right"
        return {"outcome": "varies", "stage": "run", "reason": reason}

    def _are_unlike(self, verdicts: list[dict[str, Any]], first: int, second: int) -> bool:
        """Whether two calls differ by more than noise: one alone is right, or they differ as much as they are wrong."""
        if verdicts[first]["passed"] or verdicts[second]["passed"]:
            return bool(verdicts[first]["passed"] != verdicts[second]["passed"])
        one, other, expected = self._outputs[first], self._outputs[second], self._subject.expected
        return one.keys() != other.keys() or any(
            _distance_of(one[name], other[name]) > _MUCH * _distance_of(one[name], expected[name])
            for name in one.keys() & expected.keys()
        )

    def _call(self) -> dict[str, Tensor]:
        args, kwargs = self._subject.arguments()
        _seed(self._subject.random_state)
        return _copies(self._run(*args, **kwargs))

    def _eager_differs(self) -> bool:
        """Whether the module itself is not the same when it is called again: it keeps a cache or a statistic."""
        given = []
        for _ in range(2):
            args, kwargs = self._subject.arguments()
            _seed(self._subject.random_state)
            given.append(_copies(self._subject.module(*args, **kwargs)))
        return bool(_changed(*given))


def _copies(outputs: object) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in named_tensors(outputs)}


def _distance_of(one: Tensor, other: Tensor) -> float:
    """How far two tensors are from each other; NaN and infinity are far from everything but themselves."""
    if one.shape != other.shape:
        return inf
    wide = torch.complex128 if one.is_complex() or other.is_complex() else torch.float64
    one, other = one.to(wide), other.to(wide)
    same = (one == other) | (one.isnan() & other.isnan())
    return float((one - other)[~same].abs().nan_to_num(inf, inf).norm()) if not bool(same.all()) else 0.0


def with_backward_pass(subject: Subject) -> Subject:
    """The subject with its gradients, which eager computes now: no recorded run has them."""
    module = WithGradients(subject.module)
    args, kwargs = subject.arguments()
    _seed(subject.random_state)
    with torch.no_grad():
        expected = dict(named_tensors(module(*args, **kwargs)))
    return replace(subject, module=module, expected=expected)


def _written_inputs(subject: Subject, used: Arguments) -> str:
    """What the backend wrote to although eager leaves it alone: its caller meets these values again."""
    before = dict(named_tensors(subject.arguments()))
    changed = _changed(before, dict(named_tensors(used)))
    if not changed:
        return ""
    args, kwargs = subject.arguments()
    _seed(subject.random_state)
    with torch.no_grad():
        subject.module(*args, **kwargs)
    changed -= _changed(before, dict(named_tensors((args, kwargs))))
    return f"{WRITES_TO_INPUT} {min(changed)}, which eager leaves as it is" if changed else ""


def _changed(before: dict[str, Tensor], after: dict[str, Tensor]) -> set[str]:
    return {
        name
        for name, one in before.items()
        if name in after and one.layout == torch.strided and not _same_bits(one, after[name])
    }


def _same_bits(one: Tensor, other: Tensor) -> bool:
    same_kind = one.shape == other.shape and one.dtype == other.dtype
    return same_kind and torch.equal(_bits(one), _bits(other))


def _bits(tensor: Tensor) -> Tensor:
    """The memory of a tensor: NaN equals NaN in it."""
    return tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)


def _evidence(subject: Subject, payload: Payload) -> ExpectedOutputs:
    tokens = tokens_of(loaded_model().kwargs) if has_model() else None
    profile = payload.get("profile", "default")
    return ExpectedOutputs(subject.module, subject.arguments, profile, subject.random_state, tokens)


def _export(subject: Subject, backend: Backend, payload: Payload, stage: _Stage) -> dict[str, object]:
    folder = payload.get("irs", "")
    if not folder:
        return {}
    stage.reach("export")
    try:
        with (
            foreign_code(exhaustion_is_answer=True) as ran,
            torch.no_grad(),
        ):  # whatever a backend raises is the outcome
            args, kwargs = subject.arguments()
            texts = backend.export(subject.module, args, kwargs)
    finally:
        backend.reset()
    if ran.error is not None:
        return {"ir_error": _short(first_line(ran.error))}
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (Path(folder) / f"{name}.txt").write_text(text, encoding="utf-8")
    except OSError as error:  # a full disk is not what the backend did
        return {"ir_error": f"the IR was not written: {error.strerror or error}"}
    return {"irs": list(texts)}


def _refusal(error: Exception, stage: str) -> dict[str, object]:
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    reason = str(error).strip().partition("\n")[0] if isinstance(error, (Unsupported, NotRun, CompileFailed)) else ""
    if type(error).__name__ in _WRAPPERS:
        reason = first_line(with_causes(error)[-1])
    if missing := exhausted(*map(str, with_causes(error))):
        reason = f"{EXHAUSTED}{missing}"
    return {
        "outcome": outcome_of(error, stage),
        "stage": stage,
        "reason": _short(reason or first_line(error)),
        "error": _short(first_line(error)),
        "traceback": _last_lines(text),
        "ops": list(getattr(error, "ops", ()) or ops_named_in("\n".join(map(str, with_causes(error))))),
    }


def _judged(verdict: dict[str, Any]) -> dict[str, object]:
    """The verdict with the numbers of the output that is furthest from what it should be."""
    outputs = [leaf for leaf in verdict["leaves"] if "shape" in leaf]
    wrong = [leaf for leaf in outputs if not leaf["passed"]]
    furthest = max(wrong or outputs, key=_distance, default=None)
    answer: dict[str, object] = {"outcome": "passed" if verdict["passed"] else "wrong"}
    if not verdict["passed"]:
        answer |= {"reason": verdict["reason"], "stage": "run"}
    if furthest is not None:
        answer["numbers"] = (
            {"output": furthest["path"], "state": verdict["state"]}
            | {name: _finite(furthest.get(name)) for name in _NUMBERS}
            | {f"noise_{name}": furthest.get("noise", {}).get(name, "") for name in ("format", "basis", "measure")}
            | {name: _finite(furthest.get("noise", {}).get(name)) for name in ("relative_error", "relative_noise")}
        )
        answer["tolerance"] = furthest.get("tolerance") or error_limit(furthest)
        if verdict["state"] == "suspicious":
            answer["notes"] = [f"suspicious: {verdict['reason']}"]
    return answer


def _distance(leaf: dict[str, Any]) -> tuple[float, float]:
    return _or(leaf.get("noise_multiple"), 0.0), -_or(leaf.get("pcc"), 1.0)


def _eager_failure(subject: Subject, payload: Payload) -> str:
    """Why the recorded outputs are no reference; "" when eager reproduces them."""
    args, kwargs = subject.arguments()
    _seed(subject.random_state)
    with foreign_code() as ran, torch.no_grad():  # a module may raise anything
        again = dict(named_tensors(subject.module(*args, **kwargs)))
    if ran.error is not None:
        return f"eager itself raises when the module runs alone: {first_line(ran.error)}"
    verdict = judge(subject.expected, again, payload["tolerance"], _evidence(subject, payload))
    return "" if verdict["passed"] else f"eager itself does not give the recorded outputs again: {verdict['reason']}"


class _Stage:
    """How far a task has come, on disk: a crash leaves nothing else behind."""

    def __init__(self, path: str) -> None:
        self.name = ""
        self._path = path

    def reach(self, name: str) -> None:
        self.name = name
        if self._path:
            with suppress(OSError):  # a full disk must not look like a failure of what is tried
                Path(self._path).write_text(name, encoding="ascii")


def _seed(state: Tensor | None) -> None:
    torch.manual_seed(_SEED)
    if state is not None:
        torch.set_rng_state(state)


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not isfinite(value) else value


def _or(value: float | None, other: float) -> float:
    return other if value is None else float(value)


def _last_lines(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else f"...\n{text[-_MOST_TEXT:].partition(chr(10))[2]}"


def _short(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}..."
