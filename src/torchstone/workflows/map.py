"""A model -> its ops as calls of ttnn, each judged on a board: what maps, what is accepted, what to do else."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from torchstone.errors import InputError
from torchstone.record.codec import write_atomically
from torchstone.record.mapping import MappedModule, MappedOp, ModelMapping, worst
from torchstone.units import many
from torchstone.workflows.executors import ExecutorRequest, opened_executor
from torchstone.workflows.memory_plan import answer_of, mapping_environment, plan_memory, run_programs
from torchstone.workflows.model_source import ModelRequest, load_trace
from torchstone.workflows.progress import SILENT, Progress

if TYPE_CHECKING:
    from torchstone.backends.ttnn.boards import Board
    from torchstone.mapping.payloads import ChildAnswer
    from torchstone.record.task import Environment
    from torchstone.record.trace import Trace

_DEADLINE_S = 180.0  # a composed op builds several kernels when it is called for the first time
_PER_CHILD = 50
_MOST_SKELETON_OPS = 400
SKELETONS = "ttnn_modules"
_TRIES = 4  # processes that build the same kernel for the first time disturb each other
_LONGEST = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class MapRequest:
    """Which model to map, on which board, with which rules."""

    model: ModelRequest
    device: str = "n150"
    python: str = ""  # an environment with ttnn; "": the one that `torchstone ttnn setup` makes
    rules: tuple[Path, ...] = ()  # files with rules of the user, after those of installed packages
    jobs: int = 2
    search: bool = True  # look for a layout that is accepted where the usual one is not
    folder: Path | None = None
    names: tuple[str, ...] = field(default=())  # ops to map; (): all


def map_model(request: MapRequest, progress: Progress = SILENT) -> ModelMapping:
    """Map every distinct op configuration of a model and call it on the board.

    Raises InputError for an unknown board, an environment without ttnn and files that are no rules.
    """
    from torchstone.backends.ttnn.environment import describe_environment, interpreter_of
    from torchstone.cost import price

    board = _board(request.device)
    trace = load_trace(request.model, progress)  # first: a wrong path is said before an environment is looked for
    environment = describe_environment(interpreter_of(request.python))
    if not environment.ttnn:
        msg = (
            f"{environment.python} has no ttnn; run `torchstone ttnn setup`, or name another environment with --python"
        )
        raise InputError(msg)
    with progress.step("pricing"):
        costs = price(trace).signatures
    rules = [*_entry_point_rules(), *map(str, _existing(request.rules))]
    payloads, texts = payloads_of(trace)
    counts = trace.signature_calls()
    with progress.step(f"calling {many(len(set(payloads)), 'configuration')} on {board.label}"):
        answers = judge_payloads(
            payloads, mapping_environment(board, environment.python, rules), jobs=request.jobs, search=request.search
        )
    ops = []
    for number, key in enumerate(payloads):
        flops = costs[number].flops * counts[number]
        ops.append(
            _mapped(trace.recorded_ops.signatures[number].op, texts[number], answers[key], counts[number], flops)
        )
    mapping = ModelMapping(
        model=trace.provenance.model,
        device=board.label,
        mock=board.is_mock,
        version=f"ttnn {environment.ttnn}",
        ops=tuple(sorted(ops, key=lambda one: (one.outcome == "accepted", -one.flops, -one.calls, one.op))),
        modules=_modules(trace, [answers[key]["outcome"] for key in payloads]),
        notes=_notes(trace),
    )
    if request.folder is not None:
        placed = mapping_environment(board, environment.python, rules)
        mapping = replace(mapping, plan=plan_memory(trace, placed, progress))
        mapping = replace(mapping, skeletons=_skeletons(trace, placed, request, progress))
        _write(request.folder, trace, mapping, progress)
    return mapping


def _skeletons(trace: "Trace", environment: "Environment", request: MapRequest, progress: Progress) -> dict[str, str]:
    """Write a file for each unique module that is small enough; for the others, why there is none."""
    from torchstone.mapping.programs import program_of
    from torchstone.record.unique import unique_modules
    from torchstone.workflows.result_folder import writing_to

    assert request.folder is not None  # noqa: S101 - the caller asks for files
    first_call = {module: row for row, module in reversed(list(enumerate(trace.module_calls.modules)))}
    number_of = {module.path: number for number, module in enumerate(trace.modules)}
    programs: dict[str, dict[str, object]] = {}
    found: dict[str, str] = {}
    for unique in unique_modules(trace).modules:
        row = first_call.get(number_of[unique.module_path])
        if row is None or unique.container:
            continue
        call = trace.module_calls[row]
        count = call.end_op - call.first_op
        if 0 < count <= _MOST_SKELETON_OPS:
            programs[unique.id] = {**program_of(trace, call), "code": True}
        elif count:
            found[unique.id] = f"none: {many(count, 'op is', 'ops are')} too many for one file"
    with progress.step(f"writing skeletons of {many(len(programs), 'module')}"):
        answers = run_programs(list(programs.values()), environment, jobs=request.jobs)
    folder = request.folder / SKELETONS
    with writing_to(request.folder):
        for name, answer in zip(programs, answers, strict=True):
            if answer.get("source"):
                write_atomically(folder / f"{name}.py", answer["source"].encode())
                found[name] = f"{SKELETONS}/{name}.py"
            else:
                found[name] = f"none: {answer['outcome']}: {answer.get('detail') or ''}"
    return found


def _write(folder: Path, trace: "Trace", mapping: ModelMapping, progress: Progress) -> None:
    from torchstone.workflows.result_folder import MAPPING_FILE, write_trace

    write_trace(folder, trace, progress, documents={MAPPING_FILE: mapping})


def _board(name: str) -> "Board":
    from torchstone.backends.ttnn.boards import UnknownBoardError, find_board

    try:
        return find_board(name)
    except UnknownBoardError as error:
        raise InputError(str(error)) from error


def _existing(files: tuple[Path, ...]) -> Iterator[Path]:
    for file in files:
        if not file.is_file():
            msg = f"cannot read {file}, given with --rules; give a Python file that uses @maps"
            raise InputError(msg)
        yield file.resolve()


def _entry_point_rules() -> list[str]:
    """The files of installed packages that bring rules: they are executed in the environment that has ttnn."""
    from torchstone.mapping.table import GROUP

    found = [find_spec(entry.value.partition(":")[0]) for entry in entry_points(group=GROUP)]
    return [spec.origin for spec in found if spec is not None and spec.origin]


def payloads_of(trace: "Trace") -> tuple[list[str], list[str]]:
    """For each signature its payload as text, the same for those that differ in strides only, and its arguments."""
    from torchstone.mapping.payloads import payload_of
    from torchstone.record.value import show_value

    keys, texts = [], []
    for signature in trace.recorded_ops.signatures:
        keys.append(json.dumps(payload_of(signature), sort_keys=True))
        shown = ", ".join(f"{one.name}={show_value(one.value)}" for one in signature.arguments if one.value is not None)
        texts.append(shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 3]}...")
    return keys, texts


def judge_payloads(
    keys: Sequence[str], environment: "Environment", *, jobs: int = 2, search: bool = True
) -> "dict[str, ChildAnswer]":
    """The answer of each payload; a failure of the kernel cache or the compiler is tried again, and is no verdict."""
    from torchstone.mapping.payloads import JUDGE
    from torchstone.record.task import Limits, Task
    from torchstone.sweep.run import was_not_judged

    distinct = list(dict.fromkeys(keys))
    tries = dict.fromkeys(distinct, 0)
    answers: dict[str, dict[str, object]] = {}
    pool = ExecutorRequest(jobs=jobs, tasks_per_child=_PER_CHILD)
    with opened_executor(environment, Limits(deadline_s=_DEADLINE_S), pool) as executor:

        def submit(number: int) -> None:
            tries[distinct[number]] += 1
            payload = {**json.loads(distinct[number]), "search": search}
            executor.submit(Task(id=str(number), entry=JUDGE, payload=payload))

        for number in range(len(distinct)):
            submit(number)
        for result in executor.results():
            key = distinct[int(result.id)]
            if was_not_judged(result.evidence.error or "") and tries[key] < _TRIES:
                submit(int(result.id))
            else:
                answers[key] = answer_of(result)
    return answers


def _mapped(op: str, arguments: str, answer: "ChildAnswer", calls: int, flops: int) -> MappedOp:
    return MappedOp(
        op=op,
        arguments=arguments,
        kind=answer.get("kind", "none"),
        outcome=answer["outcome"],
        detail=str(answer.get("detail") or ""),
        text=str(answer.get("text") or ""),
        cause=str(answer.get("cause") or answer.get("detail") or ""),
        place=str(answer.get("place") or ""),
        variant=str(answer.get("variant") or ""),
        variant_l1_bytes=answer.get("variant_l1_bytes"),
        library_calls=tuple(answer.get("calls") or ()),
        programs=answer.get("programs"),
        calls=calls,
        flops=flops,
    )


def _modules(trace: "Trace", outcomes: list[str]) -> tuple[MappedModule, ...]:
    """The worst outcome of each module's own ops, and of all inside it."""
    own: dict[int, list[str]] = {}
    for row, signatures in trace.own_signatures.items():
        if row >= 0:
            module = trace.recorded_calls.modules[row]
            own.setdefault(module, []).extend(outcomes[number] for number, _ in signatures)
    alone = [worst(own.get(number, [])) for number in range(len(trace.modules))]
    for module, row in zip(trace.call_origins.modules, trace.call_origins.rows, strict=True):
        if not alone[module]:  # a copy of an equal layer
            alone[module] = worst(own.get(trace.recorded_calls.modules[row], []))
    inside = list(alone)
    for number in range(len(trace.modules) - 1, 0, -1):
        parent = trace.modules[number].parent
        inside[parent] = worst([one for one in (inside[parent], inside[number]) if one])
    return tuple(
        MappedModule(path=module.path, own=alone[number], inclusive=inside[number])
        for number, module in enumerate(trace.modules)
    )


def _notes(trace: "Trace") -> tuple[str, ...]:
    notes = ["floating point runs as bfloat16 and integers as int32, in tiles in DRAM"]
    if trace.failure is not None:
        notes.append(f"the forward pass ended early in {trace.failure.module or 'the root'}: {trace.failure.error}")
    return tuple(notes)
