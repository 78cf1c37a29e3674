"""What `torchstone cost` prints about time, devices and training; a prediction is always called one."""

from collections import Counter

from torchstone.record.cost import CostTable
from torchstone.record.hardware import Bound, Prediction, TensorParallel
from torchstone.record.trace import Trace
from torchstone.report.cost_text import share
from torchstone.report.inspect_text import paint_label
from torchstone.report.text import Paint, aligned, plain
from torchstone.units import show_bytes, show_count, show_seconds

_MICRO = 1_000_000


def prediction_text(table: CostTable, trace: Trace, top: int, paint: Paint = plain) -> str:
    """Everything that was asked for beside the costs themselves; empty when nothing was."""
    parts = []
    if table.prediction is not None:
        parts += [slowest_text(table, table.prediction, trace, top, paint), _time_text(table.prediction, paint)]
    if table.tensor_parallel is not None:
        memory = None if table.prediction is None else table.prediction.hardware.memory_bytes
        parts.append(split_text(table.tensor_parallel, memory, paint))
    if table.optimiser is not None:
        parts.append(_optimiser_text(table, paint))
    return "\n\n".join(parts)


def _time_text(prediction: Prediction, paint: Paint) -> str:
    hardware = prediction.hardware
    bounds = ", ".join(
        f"{show_seconds(seconds)} bound by {bound.value}" for bound, seconds in prediction.by_bound_s.items() if seconds
    )
    rows = [
        ("predicted", f"{show_seconds(prediction.total_s)} on {hardware.title}, op after op ({bounds})"),
        ("fused", f"{show_seconds(prediction.fused_s)} when pointwise chains and attention stay on chip"),
        ("ideal", f"{show_seconds(prediction.ideal_s)} when everything overlaps; nothing is faster"),
        ("fits", _fits(prediction)),
        ("source", f"{hardware.source}; a roofline, not a measurement"),
    ]
    rows.extend(("note", note) for note in prediction.notes)
    return aligned([(paint_label(label, paint), value) for label, value in rows], header=False)


def _fits(prediction: Prediction) -> str:
    memory = show_bytes(prediction.hardware.memory_bytes)
    answer = "yes" if prediction.fits else "no"
    batch = "" if prediction.largest_batch is None else f"; largest batch about {prediction.largest_batch:,}"
    batch = "; not even a batch of 1 fits" if prediction.largest_batch == 0 else batch
    return f"{answer}: {show_bytes(prediction.peak_bytes)} of {memory}{batch}"


def slowest_text(table: CostTable, prediction: Prediction, trace: Trace, top: int, paint: Paint = plain) -> str:
    """The ops that take most of the predicted time, with what they wait for."""
    times: dict[str, list[float]] = {}
    bounds: dict[str, dict[Bound, float]] = {}
    for signature, cost, found in zip(trace.ops.signatures, table.signatures, prediction.signatures, strict=True):
        if found is None:
            continue
        row = times.setdefault(signature.op, [0.0, 0.0, 0.0])
        seconds = found.seconds * cost.calls
        row[0] += seconds
        row[1] += cost.flops * cost.calls
        row[2] += (cost.bytes_read + cost.bytes_written) * cost.calls
        by_bound = bounds.setdefault(signature.op, {})
        by_bound[found.bound] = by_bound.get(found.bound, 0.0) + seconds
    slowest = sorted((op for op in times if times[op][0]), key=lambda op: (-times[op][0], op))[:top]
    lines = [("op", "predicted", "share", "bound", "FLOPs per byte")]
    lines.extend(
        (
            op,
            show_seconds(times[op][0]),
            share(round(times[op][0] * _MICRO), round(prediction.total_s * _MICRO)),
            max(bounds[op], key=lambda bound, op=op: bounds[op][bound]).value,  # type: ignore[misc]
            f"{times[op][1] / times[op][2]:.1f}" if times[op][2] else "-",
        )
        for op in slowest
    )
    return aligned(lines, right=(1, 2, 4), paint=paint)


def split_text(split: TensorParallel, memory_bytes: int | None = None, paint: Paint = plain) -> str:
    """What each device of a split does, holds and sends."""
    calls = Counter[str]()
    for one in split.collectives:
        calls[one.kind] += one.calls
    kinds = " and ".join(f"{count:,} {kind}" for kind, count in sorted(calls.items(), reverse=True))
    room = "" if memory_bytes is None else f" in {show_bytes(memory_bytes)}"
    held = f"{show_bytes(split.weight_bytes)} of weights{room}"
    rows = [
        ("devices", f"{split.devices}, each {show_count(split.flops)}FLOPs and {held}"),
        ("exchange", f"{show_bytes(split.collective_bytes)} sent by each, in {kinds or 'no exchange'}"),
    ]
    if split.seconds is not None:
        rows.append(("predicted", f"{show_seconds(split.seconds)} with the exchanges"))
    rows.extend(("note", note) for note in split.notes)
    return aligned([(paint_label(label, paint), value) for label, value in rows], header=False)


def _optimiser_text(table: CostTable, paint: Paint) -> str:
    step = table.optimiser
    if step is None:
        return ""
    held = table.totals.peak_bytes + step.state_bytes
    rows = [
        ("optimizer", f"{step.name} over {step.parameters:,} parameters: {show_count(step.flops)}FLOPs a step"),
        ("states", f"{show_bytes(step.state_bytes)}, gradients {show_bytes(step.gradient_bytes)}"),
        ("peak", f"{show_bytes(held)} with the states"),
    ]
    if table.prediction is not None:
        hardware = table.prediction.hardware
        moved_s = (step.bytes_read + step.bytes_written) / hardware.memory_bytes_per_s
        seconds = max(moved_s, step.flops / hardware.vector_flops, hardware.launch_s)
        rows.append(("predicted", f"{show_seconds(seconds)} for the step, beside the passes"))
    return aligned([(paint_label(label, paint), value) for label, value in rows], header=False)
