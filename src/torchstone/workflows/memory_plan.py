"""A model's memory on a board, before there is a card: its mapped ops executed one after the other on a mock device."""

from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from torchstone.errors import InputError
from torchstone.record.cost import DevicePlan
from torchstone.record.mapping import ACCEPTED, MemoryPlan, ModelMapping, ModulePlan, PlacedWeights
from torchstone.units import many
from torchstone.workflows.executors import ExecutorRequest, opened_executor
from torchstone.workflows.progress import SILENT, Progress

if TYPE_CHECKING:
    from torchstone.backends.ttnn.boards import Board
    from torchstone.mapping.payloads import ChildAnswer
    from torchstone.record.task import Environment, TaskResult
    from torchstone.record.trace import Trace

_PROGRAM_S = 1_200.0
_PROGRAMS_PER_CHILD = 8
_MOST_OPS = 30_000  # of a model that is executed op by op
_TILE = 32
_BITS = {"float64": 64, "int64": 64, "float32": 32, "int32": 32, "uint32": 32, "bfloat16": 16, "float16": 16,
         "int16": 16, "uint16": 16, "int8": 8, "uint8": 8, "bool": 8, "complex64": 64}  # fmt: skip
_WHOLE = ("int", "uint")
_DEVICE_FLOAT_BYTES, _DEVICE_WHOLE_BYTES = 2, 4  # floats and booleans are bfloat16 there, integers int32


def plan_memory(trace: "Trace", environment: "Environment", progress: Progress = SILENT) -> MemoryPlan | None:
    """Execute the whole model on the board; None for a model of too many ops."""
    from torchstone.mapping.programs import on_the_host, program_of

    if not len(trace.module_calls) or trace.size.op > _MOST_OPS:
        return None
    root = trace.module_calls[0]
    program = program_of(trace, root)
    host = on_the_host(program)
    program |= {"memory": True, "host": sorted(host)}
    with progress.step(f"executing {len(program['steps']):,} ops on the device"):
        (answer,) = run_programs([program], environment, jobs=1)
    names = [one["op"] for one in program["steps"]]
    allocated, peaks, failed = answer.get("allocated") or [], answer.get("peaks") or [], answer.get("failed_step")
    l1, dram = tuple(one[0] for one in allocated), tuple(one[1] for one in allocated)
    l1_op, dram_op = tuple(one[0] for one in peaks), tuple(one[1] for one in peaks)
    capacity = answer.get("capacity") or [0, 0, 0]
    return MemoryPlan(
        outcome=answer["outcome"],
        detail=str(answer.get("detail") or ""),
        failed_op="" if failed is None else names[failed],
        failed_step=failed,
        failed_module="" if failed is None else _module_of(trace, root.first_op + failed),
        l1_bank_bytes=l1,
        dram_bank_bytes=dram,
        l1_op_bytes=l1_op,
        dram_op_bytes=dram_op,
        l1_buffer_bytes=tuple(one[2] for one in peaks),
        l1_capacity_bytes=capacity[0],
        dram_capacity_bytes=capacity[1],
        dram_banks=capacity[2],
        weights=_placed(program["tensors"], host, capacity[2]),
        peak_l1_op=_op_at_peak(l1_op, names, [one[3] for one in peaks]),
        peak_dram_op=_op_at_peak(dram_op, names, []),
        modules=_modules(trace, root.first_op, l1_op, dram_op),
    )


def plan_for_hardware(trace: "Trace", hardware: str, python: str, progress: Progress = SILENT) -> ModelMapping:
    """The plan of a traced model on the mock board of a hardware preset, in a document without ops.

    Raises InputError for hardware that is no board, an environment without ttnn, and a model of too many ops.
    """
    from torchstone.backends.ttnn.boards import BOARDS, find_board
    from torchstone.backends.ttnn.environment import describe_environment, interpreter_of

    if hardware not in BOARDS:
        msg = f"there is no mock board for --hardware {hardware}; drop --python, or give one of {', '.join(BOARDS)}"
        raise InputError(msg)
    environment = describe_environment(interpreter_of(python))
    if not environment.ttnn:
        msg = f"{environment.python} has no ttnn; run `torchstone ttnn setup`, or drop --python"
        raise InputError(msg)
    board = find_board(hardware)
    plan = plan_memory(trace, mapping_environment(board, environment.python), progress)
    if plan is None:
        msg = (
            f"{many(trace.size.op, 'op call is', 'op calls are')} too many to execute one after the "
            f"other; limit them with --layers"
        )
        raise InputError(msg)
    return ModelMapping(
        model=trace.provenance.model,
        device=board.label,
        mock=board.is_mock,
        version=f"ttnn {environment.ttnn}",
        plan=plan,
    )


def read_plan(path: Path) -> ModelMapping:
    """The mapping.json of a folder or file, which must have a plan; raises InputError where there is none."""
    from torchstone.record.codec import load
    from torchstone.workflows.result_folder import MAPPING_FILE

    file = path / MAPPING_FILE if path.is_dir() else path
    if not file.is_file():
        msg = f"{file}, given with --plan, is not there; `torchstone map MODEL --dir DIR` writes it"
        raise InputError(msg)
    found = load(file, ModelMapping)
    if found.plan is None:
        msg = f"{file} has no memory plan: the model has too many ops; map it with --layers"
        raise InputError(msg)
    return found


def plan_beside(model: str, hardware: str) -> ModelMapping | None:
    """The plan that an earlier `torchstone map` left in a result folder, if it is for this hardware."""
    from torchstone.workflows.result_folder import MAPPING_FILE

    folder = Path(model)
    if not folder.is_dir() or not (folder / MAPPING_FILE).is_file():
        return None
    from torchstone.record.codec import load

    found = load(folder / MAPPING_FILE, ModelMapping)
    return found if found.plan is not None and found.device.split(" ")[0] == hardware else None


def beside_estimate(mapping: ModelMapping, estimate_bytes: int) -> DevicePlan:
    """The peaks of a plan, and why its DRAM differs from the peak that a trace states."""
    plan = mapping.plan
    assert plan is not None  # noqa: S101 - the readers above refuse a document without
    dram = plan.peak_dram_bytes * plan.dram_banks
    difference: list[tuple[str, int]] = []
    if plan.weights is not None and plan.outcome == ACCEPTED:
        sizes = plan.weights
        difference = [
            ("weights of convolutions, which conv2d takes from the host", -sizes.host_bytes),
            ("weights and inputs in bfloat16 and int32", sizes.device_bytes - sizes.model_bytes),
            ("weights and inputs in whole tiles of 32 x 32", sizes.tiled_bytes - sizes.device_bytes),
            ("weights and inputs in equal shares of all banks", sizes.placed_bytes - sizes.tiled_bytes),
        ]
        rest = dram - estimate_bytes - sum(size for _, size in difference)
        difference.append(("activations: element types, tiles, banks, copies for views, temporaries of ops", rest))
    return DevicePlan(
        board=f"{'mock ' if mapping.mock else ''}{mapping.device}",
        version=mapping.version,
        outcome=plan.outcome,
        detail=plan.detail,
        dram_bytes=dram,
        dram_capacity_bytes=plan.dram_capacity_bytes * plan.dram_banks,
        l1_bytes=plan.peak_l1_bytes,
        l1_capacity_bytes=plan.l1_capacity_bytes,
        estimate_bytes=estimate_bytes,
        difference=tuple((reason, size) for reason, size in difference if size),
    )


# --- Programs in the environment that has ttnn ---


def mapping_environment(board: "Board", python: str, rules: Sequence[str] = ()) -> "Environment":
    """For calls of rules on a board."""
    from msgspec.structs import replace

    from torchstone.mapping.payloads import SET_UP
    from torchstone.sweep.run import ttnn_environment

    base = ttnn_environment(board, python=python)
    return replace(base, setup=SET_UP, setup_payload={**base.setup_payload, "rules": list(rules)})


def run_programs(programs: list[dict[str, object]], environment: "Environment", jobs: int) -> "list[ChildAnswer]":
    """The answer of each program; how its process ended where there is none."""
    from torchstone.mapping.programs import RUN
    from torchstone.record.task import Limits, Task

    answers: dict[str, dict[str, object]] = {}
    pool = ExecutorRequest(jobs=jobs, tasks_per_child=_PROGRAMS_PER_CHILD)
    with opened_executor(environment, Limits(deadline_s=_PROGRAM_S), pool) as executor:
        for number, program in enumerate(programs):
            executor.submit(Task(id=str(number), entry=RUN, payload=program))
        for result in executor.results():
            answers[result.id] = answer_of(result)
    return [answers[str(number)] for number in range(len(programs))]


def answer_of(result: "TaskResult") -> dict[str, object]:
    """What the child side said, or how its process ended."""
    from torchstone.record.task import Ending

    if result.ending is Ending.ANSWERED and isinstance(result.answer, dict):
        return result.answer
    died = {Ending.CRASHED: "crashed", Ending.NO_ANSWER: "crashed", Ending.TIMED_OUT: "timed out"}
    outcome = died.get(result.ending, "not run")
    detail = result.evidence.error or result.ending.value
    said = {"detail": detail, "cause": detail, "text": result.evidence.last_output}
    return {"outcome": outcome, "kind": "unknown", **said}


# --- What the answer means ---


def _op_at_peak(sizes: Sequence[int | None], names: Sequence[str], calls: Sequence[str]) -> str:
    known = [(size, -at) for at, size in enumerate(sizes) if size is not None]
    if not known:
        return ""
    at = -max(known)[1]
    return f"{names[at]} (ttnn.{calls[at]})" if calls and calls[at] else names[at]


def _module_of(trace: "Trace", op: int) -> str:
    row = trace.ops[op].module_call
    return trace.modules[trace.module_calls.modules[row]].path if row >= 0 else ""


def _modules(
    trace: "Trace", first: int, l1: Sequence[int | None], dram: Sequence[int | None]
) -> tuple[ModulePlan, ...]:
    """The peak of each module over all of its calls that ran."""
    found: dict[int, list[int | None]] = {}
    for row in range(len(trace.module_calls)):
        call = trace.module_calls[row]
        span = slice(call.first_op - first, min(call.end_op - first, len(l1)))
        if l1[span]:
            before = found.get(call.module)
            now = [_highest(l1[span]), _highest(dram[span])]
            found[call.module] = now if before is None else [_highest(pair) for pair in zip(before, now, strict=True)]
    return tuple(
        ModulePlan(path=trace.modules[module].path, l1_bytes=sizes[0], dram_bytes=sizes[1])
        for module, sizes in sorted(found.items())
    )


def _highest(sizes: Sequence[int | None]) -> int | None:
    return None if None in sizes else max(size for size in sizes if size is not None)


def _placed(tensors: "list[ChildAnswer]", host: set[int], banks: int) -> PlacedWeights:
    """The bytes of weights and inputs: in torch, in the element types of the device, in tiles, and in its banks."""
    model = device = tiled = placed = 0
    for one in tensors:
        if one["number"] in host:
            continue
        count = prod(one["shape"])
        whole = str(one["dtype"]).startswith(_WHOLE)
        each = _DEVICE_WHOLE_BYTES if whole else _DEVICE_FLOAT_BYTES
        tiles = _tiles(one["shape"]) if count else 0
        page = _TILE * _TILE * each
        model += count * _BITS.get(one["dtype"], 32) // 8
        device += count * each
        tiled += tiles * page
        placed += -(-tiles // banks) * banks * page if banks else 0
    on_host = sum(prod(one["shape"]) * _BITS.get(one["dtype"], 32) // 8 for one in tensors if one["number"] in host)
    return PlacedWeights(
        model_bytes=model, device_bytes=device, tiled_bytes=tiled, placed_bytes=placed, host_bytes=on_host
    )


def _tiles(shape: Sequence[int]) -> int:
    rows, columns = [1, 1, *shape][-2:]
    return prod(shape[:-2]) * -(-rows // _TILE) * -(-columns // _TILE)
