"""torchstone diff: two folders of results, compared part by part, and one page that shows them side by side."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from difflib import SequenceMatcher
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from torchstone.errors import InputError
from torchstone.record.base import Document
from torchstone.record.codec import load, save
from torchstone.record.diff import Change, FolderDiff, ModuleDiff, OpDiff, Quantity, TensorDiff
from torchstone.record.files import matching
from torchstone.record.folder_lock import SHORT_WRITE_S, exclusive
from torchstone.record.trace import Trace
from torchstone.record.value import tensors_in
from torchstone.units import many, show_bytes
from torchstone.workflows.model_source import TRACE_FILE
from torchstone.workflows.progress import SILENT, Progress
from torchstone.workflows.result_folder import COST_FILE, write_result, writing_to

if TYPE_CHECKING:
    from torchstone.record.check import CheckComparison
    from torchstone.record.cost import CostTable
    from torchstone.record.reference import GoldenData, TensorVerdict

DIFF_FILE = "diff.json"
_CHECK_FILE, _GOLDEN_FILE, _MEMORY = "check.json", "golden_data.json", "*_timeline.json.gz"
_TENSORS_FILE = "golden_data.safetensors"
_GOLDEN = "golden"  # the kind of a difference, beside weights
D = TypeVar("D", bound=Document)
T = TypeVar("T")
Pair = tuple[Path, Path]


def diff_folders(before: Path, after: Path, folder: Path | None = None, progress: Progress = SILENT) -> FolderDiff:
    """Compare what two folders both hold; written to `folder` with a report where one is given.

    Raises InputError for folders that have nothing in common, and UnreadableFileError for a damaged document.
    """
    with nullcontext() if folder is None else exclusive(folder, wait_s=SHORT_WRITE_S):
        return _compared(before, after, folder, progress)


def _compared(before: Path, after: Path, folder: Path | None, progress: Progress) -> FolderDiff:
    from torchstone.record.cost import CostTable
    from torchstone.record.reference import GoldenData

    sides = (before, after)
    for side in sides:
        if not side.is_dir():
            msg = f"{side} is not a folder; give two folders that commands wrote with --dir"
            raise InputError(msg)
    shared, notes = _shared_documents(sides)
    traces = _both(sides, TRACE_FILE, Trace) if TRACE_FILE in shared else None
    costs = _both(sides, COST_FILE, CostTable) if COST_FILE in shared else None
    golden = _both(sides, _GOLDEN_FILE, GoldenData) if _GOLDEN_FILE in shared else None
    checks, check_change = _check_part(sides) if _CHECK_FILE in shared else (None, "")
    memory_change, memory_written = _memory_part(sides, folder, progress)
    compared = tuple(
        name
        for name, found in (("structure", traces), ("cost", costs), ("check", checks), ("memory", memory_written),
                            ("golden data", golden))
        if found
    )  # fmt: skip
    if not compared:
        msg = f"{before} and {after} hold nothing that can be compared: no trace, cost, check, golden data or memory"
        raise InputError(msg)
    statuses = _statuses(sides, traces) if traces and _CHECK_FILE in shared else ({}, {})
    modules = tuple(_modules(traces, costs, statuses)) if traces else ()
    tensors = tuple(_tensors(golden)) if golden else ()
    values = _golden_values(sides, golden, tensors, progress) if golden else _Values()
    tensors += values.tensors
    found = FolderDiff(
        sides=(str(before), str(after)), models=_models(traces, costs, golden, checks),
        quantities=tuple(_quantities(traces, costs)), modules=_with_tensors(modules, tensors, golden),
        ops=tuple(_ops(traces, costs)) if traces else (), tensors=tensors,
        compared=compared, check_change=check_change, memory_change=memory_change,
        notes=(*notes, *values.notes),
    )  # fmt: skip
    if folder is not None:
        if checks is not None:
            with writing_to(folder):
                save(folder / "check_comparison.json", checks)
        write_result(folder / DIFF_FILE, found, progress)
    return found


def _both(sides: Pair, name: str, kind: type[D]) -> tuple[D, D]:
    return load(sides[0] / name, kind), load(sides[1] / name, kind)


def _models(
    traces: tuple[Trace, Trace] | None,
    costs: "tuple[CostTable, CostTable] | None",
    golden: "tuple[GoldenData, GoldenData] | None",
    checks: "CheckComparison | None",
) -> tuple[str, str]:
    if traces is not None:
        return traces[0].provenance.model, traces[1].provenance.model
    named = costs or golden
    if named is not None:
        return named[0].model, named[1].model
    return (checks.models[0], checks.models[1]) if checks is not None else ("", "")


def _shared_documents(sides: Pair) -> tuple[set[str], list[str]]:
    """The documents that both folders hold, and what one of them lacks; asked once, as folders may change meanwhile."""
    shared: set[str] = set()
    notes = []
    for name in (TRACE_FILE, COST_FILE, _CHECK_FILE, _GOLDEN_FILE):
        there = [(side / name).is_file() for side in sides]
        if all(there):
            shared.add(name)
        elif any(there):
            notes.append(f"only {sides[there.index(True)]} has {name}")
    return shared, notes


# --- Totals ---


def _quantities(traces: tuple[Trace, Trace] | None, costs: "tuple[CostTable, CostTable] | None") -> Iterator[Quantity]:
    if traces is not None:
        yield _of("model", "text", *(one.provenance.model for one in traces))
        yield _of("modules", "count", *(len(one.modules) for one in traces))
        yield _of("op calls", "count", *(one.size.op for one in traces))
        yield _of("parameters", "count", *(sum(_own_parameters(one).values()) for one in traces))
        yield _of("forward pass ended early", "text", *(one.failure.error if one.failure else "no" for one in traces))
        names = sorted({name for one in traces for name in one.provenance.versions})
        for name in names:
            yield _of(f"version of {name}", "text", *(one.provenance.versions.get(name) for one in traces))
    if costs is not None:
        totals = [one.totals for one in costs]
        yield _of("FLOPs", "count", *(one.flops for one in totals))
        yield _of("matmul FLOPs", "count", *(one.matmul_flops for one in totals))
        yield _of("bytes moved", "bytes", *(one.bytes_read + one.bytes_written for one in totals))
        yield _of("parameter bytes", "bytes", *(one.parameter_bytes for one in totals))
        yield _of("peak memory, ideal lifetimes", "bytes", *(one.peak_bytes for one in totals))
        yield _of("peak memory, eager lifetimes", "bytes", *(one.peak.eager_bytes for one in costs))
        yield _of("calls without a price", "count", *(one.unpriced_calls for one in totals))
        predicted = [one.prediction for one in costs]
        yield _of("predicted for", "text", *(one.hardware.name if one else None for one in predicted))
        yield _of("predicted time", "seconds", *(one.total_s if one else None for one in predicted))
        yield _of("fits", "text", *(one.verdict.value if one else None for one in predicted))


def _of(name: str, unit: str, before: float | str | None, after: float | str | None) -> Quantity:
    return Quantity(name=name, unit=unit, before=before, after=after)


# --- Structure ---


def _modules(
    traces: tuple[Trace, Trace],
    costs: "tuple[CostTable, CostTable] | None",
    statuses: tuple[Mapping[str, str], Mapping[str, str]] = ({}, {}),
) -> Iterator[ModuleDiff]:
    """The paths of both sides, aligned: what was removed stands where it stood."""
    about = [_ModuleFacts(trace, costs[side] if costs else None, statuses[side]) for side, trace in enumerate(traces)]
    old, new = ([one.path for one in trace.modules] for trace in traces)
    kept = set(new)
    for _, first, first_end, second, second_end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        yield from (_module(path, about) for path in old[first:first_end] if path not in kept)
        yield from (_module(path, about) for path in new[second:second_end])


class _ModuleFacts:
    """What is compared of each module of one side."""

    def __init__(self, trace: Trace, cost: "CostTable | None", statuses: Mapping[str, str]) -> None:
        self.classes = {one.path: one.class_name for one in trace.modules}
        self.parameters = _own_parameters(trace)
        self.shapes = _shapes(trace)
        self.flops: dict[str, int] = {one.path: one.flops for one in cost.modules} if cost else {}
        self.moved = {one.path: one.bytes_read + one.bytes_written for one in cost.modules} if cost else {}
        self.peaks = _peaks(trace, cost.timeline_bytes) if cost else {}
        self.statuses = statuses


def _peaks(trace: Trace, live_bytes: Sequence[int]) -> dict[str, int]:
    """The largest live memory while each module runs; modules that run no op have none."""
    found: dict[str, int] = {}
    calls = trace.module_calls
    for module, first, end in zip(calls.modules, calls.first_ops, calls.end_ops, strict=True):
        path, live = trace.modules[module].path, live_bytes[first:end]
        if live:
            found[path] = max(found.get(path, 0), *live)
    return found


def _statuses(sides: Pair, traces: tuple[Trace, Trace]) -> tuple[dict[str, str], dict[str, str]]:
    """The status of each module on the backend, where both sides have a check of their model."""
    from torchstone.record.check import CheckResult
    from torchstone.report.sections.check import module_statuses

    results = _both(sides, _CHECK_FILE, CheckResult)
    first, second = (
        {module.path: status for module, status in zip(trace.modules, module_statuses(result, trace), strict=False)}
        for result, trace in zip(results, traces, strict=True)
    )
    return first, second


def _own_parameters(trace: Trace) -> dict[str, int]:
    """The elements of the parameters that each module holds itself; a shared one counts where it is first held."""
    seen: set[int] = set()
    found = {}
    for module in trace.modules:
        own = {one.tensor for one in module.parameters} - seen
        seen |= own
        found[module.path] = sum(trace.held_spec(number).elements for number in own)
    return found


def _shapes(trace: Trace) -> dict[str, str]:
    from torchstone.report.view.modules import show_specs

    found: dict[str, str] = {}
    calls = trace.module_calls
    for module, signature in zip(calls.modules, calls.signature_of, strict=True):
        path = trace.modules[module].path
        if path not in found:
            one = calls.signatures[signature]
            given = [spec for argument in one.arguments for spec in tensors_in(argument.value)]
            found[path] = f"{show_specs(given)} -> {show_specs(tensors_in(one.output))}"
    return found


def _module(path: str, sides: list[_ModuleFacts]) -> ModuleDiff:
    first, second = sides
    found = ModuleDiff(
        path=path, change=Change.SAME,
        classes=_pair(path, first.classes, second.classes), shapes=_pair(path, first.shapes, second.shapes),
        parameters=_pair(path, first.parameters, second.parameters), flops=_pair(path, first.flops, second.flops),
        moved_bytes=_pair(path, first.moved, second.moved), peak_bytes=_pair(path, first.peaks, second.peaks),
        statuses=_pair(path, first.statuses, second.statuses),
    )  # fmt: skip
    if path not in first.classes or path not in second.classes:
        return replace(found, change=Change.ADDED if path in second.classes else Change.REMOVED)
    pairs = (found.classes, found.shapes, found.parameters, found.flops, found.moved_bytes, found.statuses)
    return found if all(one == other for one, other in pairs) else replace(found, change=Change.CHANGED)


def _pair(path: str, first: Mapping[str, T], second: Mapping[str, T]) -> tuple[T | None, T | None]:
    return first.get(path), second.get(path)


def _ops(traces: tuple[Trace, Trace], costs: "tuple[CostTable, CostTable] | None") -> Iterator[OpDiff]:
    calls = [_op_calls(trace) for trace in traces]
    flops: list[Mapping[str, int]] = [{one.op: one.flops for one in cost.ops} for cost in costs] if costs else [{}, {}]
    for op in sorted(calls[0].keys() | calls[1].keys()):
        pair = (calls[0][op], calls[1][op])
        priced = (flops[0].get(op), flops[1].get(op))
        if pair[0] != pair[1] or priced[0] != priced[1]:
            yield OpDiff(op=op, calls=pair, flops=priced)


def _op_calls(trace: Trace) -> Counter[str]:
    found: Counter[str] = Counter()
    for signature, times in trace.signature_calls().items():
        found[trace.recorded_ops.signatures[signature].op] += times
    return found


# --- Golden data ---


def _tensors(golden: "tuple[GoldenData, GoldenData]") -> Iterator[TensorDiff]:
    first, second = ({one.name: f"{one.dtype}{list(one.shape)}" for one in side.tensors} for side in golden)
    yield from _differences(_GOLDEN, first, second)
    weights = [side.weights.hashes for side in golden]
    if all(weights):
        shortened = [{name: text[:12] for name, text in side.items()} for side in weights]
        yield from _differences("weight", *shortened)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Values:
    """Golden tensors whose values differ beyond noise, and what was compared or could not be."""

    tensors: tuple[TensorDiff, ...] = ()
    notes: tuple[str, ...] = ()


def _golden_values(
    sides: Pair, golden: "tuple[GoldenData, GoldenData]", others: Sequence[TensorDiff], progress: Progress
) -> _Values:
    """Compare the values of golden tensors that have the same name, shape and dtype on both sides.

    The judge is that of `reference compare`, with the noise that the first folder states. Equal files need no torch.
    """
    hashes = [one.tensors_sha256 for one in golden]
    if all(hashes) and hashes[0] == hashes[1]:
        return _Values()
    problem = _why_not_compared(sides)
    if not problem:
        with progress.step("comparing golden tensors"):
            return _judged_values(sides, {one.name for one in others})
    if not all(hashes):
        return _Values(notes=(f"the values of golden tensors were not compared: {problem}",))
    detail = f"sha256 {hashes[0][:12]}, now {hashes[1][:12]}; its values were not compared: {problem}"
    return _Values(tensors=(TensorDiff(name=_TENSORS_FILE, kind=_GOLDEN, change=Change.CHANGED, detail=detail),))


def _why_not_compared(sides: Pair) -> str:
    missing = next((side for side in sides if not (side / _TENSORS_FILE).is_file()), None)
    if missing is not None:
        return f"{missing} has no {_TENSORS_FILE}"
    return "" if find_spec("torch") else "this needs torch; pip install 'torchstone[torch]'"


def _judged_values(sides: Pair, others: Collection[str]) -> _Values:
    from torchstone.record.reference import Role, Status
    from torchstone.reference.compare_port import basis_of, compare_named
    from torchstone.reference.golden_files import load_golden

    first, second = (load_golden(side) for side in sides)
    shared = {name: tensor for name, tensor in second.tensors.items() if name not in others}
    verdicts = compare_named(first, shared, candidate=str(sides[1]), basis=basis_of(first, None)).verdicts
    differing = [one for one in verdicts if one.errors is not None and not one.errors.equal]
    beyond = [one for one in differing if one.status is not Status.PASSED]
    within = [one for one in differing if one.status is Status.PASSED]
    not_kept = [one for one in verdicts if one.status is Status.NOT_KEPT]
    notes = [f"different within noise: {many(len(within), 'golden tensor')}{_largest(within)}"] if within else []
    notes += [f"values not kept, and not compared: {many(len(not_kept), 'golden tensor')}"] if not_kept else []
    if beyond and any(one.role is Role.INPUT for one in beyond):
        notes.append("the inputs differ, so the other golden tensors must differ, too")
    return _Values(tensors=tuple(map(_value_diff, beyond)), notes=tuple(notes))


def _largest(within: "Sequence[TensorVerdict]") -> str:
    multiples = [one.noise_multiple for one in within if one.noise_multiple is not None]
    return f", at most {max(multiples):.2g} times the noise" if multiples else ""


def _value_diff(one: "TensorVerdict") -> TensorDiff:
    said = [one.state]
    said += [f"{one.noise_multiple:.3g} times the noise"] if one.noise_multiple is not None else []
    if one.errors is not None and one.errors.max_abs is not None:
        said.append(f"largest difference {one.errors.max_abs:.3g}")
    said += [one.detail] if one.detail else []
    return TensorDiff(
        name=one.name, kind=_GOLDEN, change=Change.CHANGED, detail="; ".join(said),
        verdict=one.state, noise_multiple=one.noise_multiple,
    )  # fmt: skip


def _with_tensors(
    modules: tuple[ModuleDiff, ...], tensors: Sequence[TensorDiff], golden: "tuple[GoldenData, GoldenData] | None"
) -> tuple[ModuleDiff, ...]:
    """The modules with the number of golden tensors and weights of their own that differ."""
    if golden is None or not tensors:
        return modules
    owners = {one.name: one.module or "" for side in golden for one in side.tensors}
    paths = {one.path for one in modules}
    counts: Counter[str] = Counter()
    for tensor in tensors:
        owner = owners.get(tensor.name) if tensor.kind == _GOLDEN else tensor.name.rpartition(".")[0]
        counts[owner if owner in paths else ""] += 1  # "": the model itself
    return tuple(
        replace(
            one,
            tensors=counts[one.path],
            change=Change.CHANGED if one.change is Change.SAME and counts[one.path] else one.change,
        )
        for one in modules
    )


def _differences(kind: str, first: Mapping[str, str], second: Mapping[str, str]) -> Iterator[TensorDiff]:
    for name in sorted(first.keys() | second.keys()):
        if name not in first or name not in second:
            change = Change.ADDED if name in second else Change.REMOVED
            yield TensorDiff(name=name, kind=kind, change=change, detail=first.get(name) or second[name])
        elif first[name] != second[name]:
            yield TensorDiff(name=name, kind=kind, change=Change.CHANGED, detail=f"{first[name]}, now {second[name]}")


# --- Check and memory, which have comparisons of their own ---


def _check_part(sides: Pair) -> "tuple[CheckComparison, str]":
    from torchstone.check.summary import compare_folders

    found = compare_folders(sides)
    differing = [one for one in found.modules if one.differs]
    changed = [one for one in differing if None not in one.statuses]
    alone = len(differing) - len(changed)
    fixed = sorted(set(found.findings[0]) - set(found.findings[1]))
    new = sorted(set(found.findings[1]) - set(found.findings[0]))
    said = [f"{many(len(changed), 'unique module')} ended otherwise"] if changed else []
    said += [f"{many(alone, 'unique module was', 'unique modules were')} checked on one side only"] if alone else []
    said += [f"fixed: {', '.join(fixed)}"] if fixed else []
    said += [f"new: {', '.join(new)}"] if new else []
    return found, "; ".join(said)


def _memory_part(sides: Pair, folder: Path | None, progress: Progress) -> tuple[str, bool]:
    """The comparison of two reports of device memory in words, and whether there is one."""
    from torchstone.workflows.memory import CompareRequest, compare_memory

    if not all(any(matching(side, _MEMORY)) for side in sides):
        return "", False
    request = CompareRequest(sources=tuple(str(side.resolve()) for side in sides), directory=folder)
    (found,) = compare_memory(request, progress).comparisons
    said = []
    for pair in found.peaks:
        used = [
            None if one is None else one.state.allocated * one.state.banks * (1 << 20) // found.ticks_per_mib
            for one in pair
        ]
        if used[0] != used[1]:
            memory = next(one.memory for one in pair if one is not None)
            shown = ["not read" if one is None else show_bytes(one) for one in used]
            said.append(f"{memory} peak {shown[0]}, now {shown[1]}")
    if found.removed_ops or found.added_ops:
        said.append(f"{many(found.removed_ops, 'op')} removed, {found.added_ops} added")
    return "; ".join(said), True
