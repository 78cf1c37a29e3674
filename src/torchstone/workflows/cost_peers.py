"""The same model in other FLOP counters -> their counts, and why each differs from ours."""

from collections.abc import Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection

import msgspec

from torchstone.errors import InputError
from torchstone.record.cost import CostComparison, CostTable, PeerComparison, PeerCount
from torchstone.workflows.model_source import ModelRequest, saved_trace
from torchstone.workflows.progress import SILENT, Progress

_LARGE_BYTES = 1 << 30  # a model with more parameters is counted on the meta device, without values


def chosen_peers(model: ModelRequest, names: str) -> tuple[str, ...]:
    """The counters that `names` lists, separated by commas, or "all".

    Raises InputError for an unknown counter, a saved trace, and a request with a backward pass.
    """
    from torchstone.cost.peers import chosen_counters

    chosen = chosen_counters(names)
    if saved_trace(model.model) is not None:
        msg = f"{model.model} is a saved trace, but --compare-with runs the model; give the model itself"
        raise InputError(msg)
    if model.backward:
        msg = "other counters count a forward pass only; drop --backward or --compare-with"
        raise InputError(msg)
    return chosen


def compare_with_peers(
    table: CostTable, model: ModelRequest, names: Sequence[str], progress: Progress = SILENT
) -> CostComparison:
    """Run the named counters one after the other and explain how their FLOPs differ from those of the table.

    A counter that fails or ends its process is a result. Each runs in a process of its own, started by spawn: a script
    that calls this needs `if __name__ == "__main__"`.
    """
    from torchstone.cost.peers import missing

    device = "cpu" if table.totals.parameter_bytes < _LARGE_BYTES else "meta"
    absent = {name: count for name in names if (count := missing(name)) is not None}
    waiting = [name for name in names if name not in absent]
    if len(waiting) > 1:
        progress.note(f"counting with {', '.join(waiting)}, one after the other, each in a process of its own")
    compared = []
    for name in names:
        if name in absent:
            compared.append(_compared(table, absent[name]))
            continue
        with progress.step(f"counting with {name} ({waiting.index(name) + 1} of {len(waiting)})"):
            compared.append(_compared(table, _count_in_child(name, model, device)))
    return CostComparison(matmul_flops=table.totals.matmul_flops, counters=tuple(compared))


def _compared(table: CostTable, count: PeerCount) -> PeerComparison:
    from torchstone.cost.peers import differences, inferred

    if count.by_op:
        return PeerComparison(count=count, differences=differences(table, count.by_op, count.skipped), inferred="")
    explained = "" if count.total_flops is None else inferred(table, count.total_flops)
    return PeerComparison(count=count, differences=(), inferred=explained)


def _count_in_child(name: str, model: ModelRequest, device: str) -> PeerCount:
    """Run one counter in a process of its own: some leave torch patched, and some end the process."""
    context = get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_count, args=(sender, name, model, device))
    child.start()
    sender.close()
    try:
        return msgspec.json.decode(receiver.recv_bytes(), type=PeerCount)
    except EOFError:  # it died before it answered
        child.join()
        error = f"ended its process (exit code {child.exitcode})"
        return PeerCount(name=name, total_flops=None, by_op={}, skipped={}, seconds=0.0, error=error)
    finally:
        child.join()


def _count(sender: Connection, name: str, request: ModelRequest, device: str) -> None:
    """The child's side."""
    from torchstone.cost.peers import count_with
    from torchstone.models.load_model import load

    model, inputs = load(request.model, inputs=request.inputs, options=request.options, device=device)
    sender.send_bytes(msgspec.json.encode(count_with(name, model, inputs.args, inputs.kwargs)))
