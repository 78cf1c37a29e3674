"""The same model in other FLOP counters -> their counts, and why each differs from ours."""

import os
import signal
import time
from collections.abc import Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess

import msgspec

from torchstone.errors import InputError, TorchstoneError
from torchstone.record.cost import CostComparison, CostTable, PeerComparison, PeerCount
from torchstone.record.task import Limits
from torchstone.workflows.model_source import ModelRequest, saved_trace
from torchstone.workflows.progress import SILENT, Progress

_LARGE_BYTES = 1 << 30  # a model with more parameters is counted on the meta device, without values
PATIENCE = Limits(deadline_s=300.0)  # of one counter; waiting for a CPU does not count


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

    A counter that fails, hangs or ends its process is a result. Each runs in a process of its own, started by spawn: a
    script that calls this needs `if __name__ == "__main__"`.
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


def _count_in_child(name: str, model: ModelRequest, device: str, patience: Limits = PATIENCE) -> PeerCount:
    """Run one counter in a process of its own: some leave torch patched, and some end the process or never answer."""
    context = get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_count, args=(sender, name, model, device))
    began_s = time.monotonic()
    child.start()
    sender.close()
    try:
        if late := _wait(receiver, child, patience):
            return _without_count(name, late, began_s)
        return msgspec.json.decode(receiver.recv_bytes(), type=PeerCount)
    except EOFError:  # it died before it answered
        child.join()
        return _without_count(name, f"ended its process (exit code {child.exitcode})", began_s)
    finally:
        _end(child)


def _wait(receiver: Connection, child: SpawnProcess, patience: Limits) -> str:
    """Wait for an answer or the end of the child; why not any longer, else ""."""
    from torchstone.workers.limits import CENSUS_S, Usage, census, overdue

    usage, began_s, pid = Usage(), time.monotonic(), child.pid or 0
    while not receiver.poll(CENSUS_S):
        usage.look(census([pid])[pid])
        wall_s = time.monotonic() - began_s
        if overdue(patience, usage, wall_s):
            return f"had not answered after {wall_s:.0f} s ({usage.cpu_s:.0f} s of CPU time)"
    return ""


def _end(child: SpawnProcess) -> None:
    """End the child with all processes that it started, which may hold its output open."""
    if child.is_alive() and child.pid is not None:
        child.join(timeout=1.0)  # it has answered and is about to end
    if child.is_alive() and child.pid is not None:
        if hasattr(os, "killpg") and os.getpgid(child.pid) == child.pid:
            os.killpg(child.pid, signal.SIGKILL)
        else:
            child.kill()
    child.join()


def _without_count(name: str, error: str, began_s: float) -> PeerCount:
    seconds = time.monotonic() - began_s
    return PeerCount(name=name, total_flops=None, by_op={}, skipped={}, seconds=seconds, error=error)


def _count(sender: Connection, name: str, request: ModelRequest, device: str) -> None:
    """The child's side: a session of its own, so that all of it can be ended, and no output but the answer."""
    if hasattr(os, "setsid"):
        os.setsid()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):  # counters and what they import write warnings among the lines of the report
        os.dup2(nowhere, stream)
    from torchstone.cost.peers import count_with
    from torchstone.models.load_model import load

    began_s = time.monotonic()
    try:
        model, inputs = load(request.model, inputs=request.inputs, options=request.options, device=device)
    except TorchstoneError as error:
        answer = _without_count(name, str(error), began_s)
    else:
        answer = count_with(name, model, inputs.args, inputs.kwargs)
    sender.send_bytes(msgspec.json.encode(answer))
