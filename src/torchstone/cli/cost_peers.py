"""torchstone cost --compare-with: other counters on the same model, and why they differ."""

from multiprocessing import get_context
from typing import TYPE_CHECKING

import msgspec

from torchstone.cli.model_options import ModelRequest, saved_trace
from torchstone.cli.options import Session
from torchstone.cli.progress import step
from torchstone.errors import InputError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from torchstone.cost.peers import PeerCount
    from torchstone.record.cost import CostTable

_LARGE_BYTES = 1 << 30  # beyond this a model is counted without values


def peer_counts(table: "CostTable", request: ModelRequest, wanted: str, session: Session) -> "list[PeerCount]":
    """Run the counters that are wanted, one after the other."""
    from torchstone.cost.peers import chosen_counters

    names = chosen_counters(wanted)
    if saved_trace(request.model) is not None:
        msg = f"{request.model} is a finished run; --compare-with needs the model itself"
        raise InputError(msg)
    if request.backward:
        msg = "other counters count a forward pass; leave out --backward, or --compare-with"
        raise InputError(msg)
    device = "cpu" if table.totals.parameter_bytes < _LARGE_BYTES else "meta"
    counts = []
    for name in names:
        with step(f"counting with {name}", session):
            counts.append(_count_apart(name, request, device))
    return counts


def _count_apart(name: str, request: ModelRequest, device: str) -> "PeerCount":
    """Run one counter in a process of its own: some leave torch patched, and some end the process."""
    from torchstone.cost.peers import PeerCount

    context = get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_count, args=(sender, name, request, device))
    child.start()
    sender.close()
    try:
        return msgspec.json.decode(receiver.recv_bytes(), type=PeerCount)
    except EOFError:
        child.join()
        error = f"ended its process (exit code {child.exitcode})"
        return PeerCount(name=name, total_flops=None, by_op={}, skipped={}, seconds=0.0, error=error)
    finally:
        child.join()


def _count(sender: "Connection", name: str, request: ModelRequest, device: str) -> None:
    """The child's side."""
    from torchstone.cost.peers import count_with
    from torchstone.models.loading import load

    model, inputs = load(request.model, inputs=request.inputs, options=request.options, device=device)
    sender.send_bytes(msgspec.json.encode(count_with(name, model, inputs.args, dict(inputs.kwargs))))


def comparison_document(table: "CostTable", counts: "list[PeerCount]") -> bytes:
    """The counts and their differences, as part of the cost document."""
    from torchstone.cost.differences import differences, inferred

    return msgspec.json.encode(
        {
            "matmul_flops": table.totals.matmul_flops,
            "counters": [
                {
                    "count": count,
                    "differences": differences(table, count.by_op, count.skipped) if count.by_op else (),
                    "inferred": "" if count.by_op or count.total_flops is None else inferred(table, count.total_flops),
                }
                for count in counts
            ],
        }
    )


def comparison_text(table: "CostTable", counts: "list[PeerCount]") -> str:
    """A line for each counter, and below them what each sees differently."""
    from torchstone.cost.differences import differences, inferred
    from torchstone.report.text import aligned
    from torchstone.units import show_seconds

    ours = table.totals.matmul_flops * 2 // table.conventions.multiply_add
    lines = [("counter", "FLOPs", "of torchstone's", "time", "")]
    lines.append(("torchstone (matmul)", f"{ours:,}", "1.000", "", ""))
    details: list[str] = []
    for count in counts:
        if count.total_flops is None:
            lines.append((count.name, "-", "-", show_seconds(count.seconds), count.error))
            continue
        ratio = f"{count.total_flops / ours:.3f}" if ours else "-"
        lines.append((count.name, f"{count.total_flops:,}", ratio, show_seconds(count.seconds), ""))
        if not count.by_op:
            details.extend([] if count.total_flops == ours else [f"{count.name}: {inferred(table, count.total_flops)}"])
            continue
        details.extend(
            f"{count.name}: {one.op}: {one.theirs:,} against {one.ours:,}: {one.reason}"
            for one in differences(table, count.by_op, count.skipped)
        )
    return "\n".join((aligned(lines, right=(1, 2, 3)), *details))
