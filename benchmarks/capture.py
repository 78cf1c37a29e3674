"""How long one capture takes, beside the peers' ways of looking at a model, each in its fastest mode that works.

Run it alone on the machine: `make bench`, or `PYTHONPATH=. python benchmarks/capture.py --rounds 5`. All figures come
from one process and are CPU seconds. The ways take turns in each round, and a ratio is the median over the rounds, so
that a slow moment of the machine does not fall on one way alone; the seconds shown are those of the best round.
"""

import argparse
import platform
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.image_nets import NETS
from torchstone.capture import capture
from torchstone.cost import price
from torchstone.models import load
from torchstone.models.inputs import InputOptions

sys.path.insert(0, str(Path(__file__).parent.parent))


MODELS = ("meta-llama/Llama-3.1-405B", "deepseek-ai/DeepSeek-V3", "bert-base-uncased", "microsoft/resnet-50")
SEQ_LEN = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A model on the meta device with its inputs, and its twin on fake tensors."""

    name: str
    model: nn.Module
    inputs: Any
    bare_inputs: dict[str, Any]  # without the mask, whose values plain meta tensors do not have


def main() -> None:
    """Measure every model and print one table each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--nets", action="store_true", help="only the image nets in which little repeats")
    parser.add_argument("--timm", type=int, metavar="N", help="also every Nth architecture of timm")
    parser.add_argument("models", nargs="*", default=MODELS)
    arguments = parser.parse_args()
    print(f"torch {torch.__version__}, Python {platform.python_version()}, {datetime.now(tz=UTC):%Y-%m-%d}\n")
    if not arguments.nets:
        for name in arguments.models:
            measure(subject(name), arguments.rounds)
        growth(arguments.rounds)
    little_repeats(arguments.timm)


def little_repeats(every: int | None) -> None:
    """Print what nets take in which most ops have shapes of their own; each one is seen for the first time."""
    image = torch.rand(1, 3, 224, 224)
    with torch.device("meta"):
        start = time.process_time()
        capture(NETS["convnet 3"](), image)
        first = time.process_time() - start
        capture(NETS["coat tiny"](), image)
    print(f"the first capture of the process takes {first:.2f} s; {start_up()}")
    compare("image nets in which little repeats", ((name, make, image) for name, make in NETS.items()))
    if every is not None:
        compare(f"architectures of timm, every {every}th", timm_nets(every))


def start_up() -> str:
    """What a capture takes that has one op call."""
    layer, x = nn.Linear(8, 8, device="meta"), torch.rand(600, 8)
    trace = capture(layer, x)
    capture_s, price_s = best_of(lambda: capture(layer, x), 50), best_of(lambda: price(trace), 50)
    if isinstance(capture_s, str) or isinstance(price_s, str):
        raise TypeError(capture_s, price_s)
    return f"start-up: {capture_s * 1e3:.2f} ms for a capture, {price_s * 1e3:.2f} ms for a price"


def timm_nets(every: int) -> Iterator[tuple[str, Callable[[], nn.Module], torch.Tensor]]:
    """Every Nth architecture of timm, which must be installed, with an image of its size."""
    timm = import_module("timm")  # an optional peer library

    for name in timm.list_models()[::every]:
        size = (timm.get_pretrained_cfg(name, allow_unregistered=True) or timm.models.PretrainedCfg()).input_size
        yield name, partial(timm.create_model, name), torch.rand(1, *size)


def compare(what: str, nets: Iterable[tuple[str, Callable[[], nn.Module], torch.Tensor]]) -> None:
    """Print what a capture with its price takes beside FlopCounterMode, in total and for each net.

    A net runs once without either, and the two take turns in being the first: what torch and the net do only once, and
    what a first touch of the weights costs, would otherwise fall on one of them alone. Both see its shapes anew.
    """
    rows: list[tuple[float, float, float, int, str]] = []
    for number, (name, make, image) in enumerate(nets):
        flops = FlopCounterMode(display=False)
        try:
            with torch.device("meta"):
                model = make().eval()
            counted_s = partial(count_flops, model, image, flops)
            with torch.no_grad():
                model(image.to("meta"))
            theirs_s = counted_s() if number % 2 else 0.0
            start = time.process_time()
            trace = capture(model, image)
            captured = time.process_time()
            cost = price(trace)
            end = time.process_time()
            theirs_s = theirs_s or counted_s()
        except Exception as error:  # noqa: BLE001 - not every net of a library can be built, or run by the peer
            print(f"  {name}: {type(error).__name__}: {str(error).splitlines()[0][:90]}")
            continue
        if cost.totals.matmul_flops != flops.get_total_flops():
            print(f"  {name}: FLOPs differ from FlopCounterMode's")
        rows.append((captured - start, end - captured, theirs_s, len(trace.ops), name))
    captures, prices, theirs, ops = (sum(column) for column in list(zip(*rows, strict=True))[:4])
    ours = captures + prices
    slower = sum(own + priced > peer for own, priced, peer, _, _ in rows)
    print(f"{len(rows)} {what}, {ops:,} op calls; slower than the peer: {slower}")
    print(
        f"  capture {captures:.2f} s, {captures / ops * 1e6:.0f} us/op; price {prices:.2f} s, "
        f"{prices / ops * 1e6:.0f} us/op; FlopCounterMode, meta {theirs:.2f} s: "
        f"{theirs / ours:.2f} x capture and price, {theirs / captures:.2f} x capture"
    )
    for own, priced, peer, calls, name in sorted(rows, key=lambda row: row[2] / (row[0] + row[1])):
        took = own + priced
        print(f"  {name:<16} {took:7.3f} s {took / calls * 1e6:7.0f} us/op   {peer / took:5.2f} x")
    print()


def count_flops(model: nn.Module, image: torch.Tensor, flops: FlopCounterMode) -> float:
    """Seconds that FlopCounterMode takes on the meta device."""
    start = time.process_time()
    with torch.no_grad(), flops:
        model(image.to("meta"))
    return time.process_time() - start


def subject(name: str, layers: int | None = None) -> Subject:
    """Build a model of the zoo on the meta device, in bfloat16: the peers can run experts in no other type there."""
    model, inputs = load(name, options=InputOptions(seq_len=SEQ_LEN, layers=layers, dtype="bfloat16"))
    bare = {key: value for key, value in inputs.kwargs.items() if key != "attention_mask"}
    return Subject(name=name, model=model, inputs=inputs, bare_inputs=bare)


def measure(given: Subject, rounds: int) -> None:
    """Print what each way of looking at the model takes."""
    trace = capture(given.model, given.inputs)
    ops = len(trace.ops)
    print(
        f"{given.name}: {len(trace.modules):,} modules, "
        f"{ops:,} op calls, {trace.provenance.reused_ops:,} of them taken over"
    )
    print(f"  torchstone ran on {trace.provenance.mode} tensors")
    ways: dict[str, Callable[[], Any]] = {
        "torchstone capture and price": lambda: price(capture(given.model, given.inputs)),
        "torchstone capture": lambda: capture(given.model, given.inputs),
        "torchstone capture --no-reuse": lambda: capture(given.model, given.inputs, reuse=False),
        "bare forward, meta": lambda: run_meta(given),
        "bare forward, fake": lambda: run_fake(given),
        "FlopCounterMode, meta": lambda: run_meta(given, FlopCounterMode(display=False)),
        "FlopCounterMode, fake": lambda: run_fake(given, FlopCounterMode(display=False)),
        "torchinfo, meta": lambda: run_torchinfo(given),
    }
    figures = in_turns(ways, rounds)
    own = figures["torchstone capture and price"]
    for name, figure in figures.items():
        if isinstance(figure, str) or isinstance(own, str):
            print(f"  {name:<31} does not work: {figure}")
        else:
            ratio = median(theirs / ours for theirs, ours in zip(figure, own, strict=True))
            best = min(figure)
            print(f"  {name:<31} {best:8.3f} s  {best / ops * 1e6:8.1f} us/op  {ratio:6.2f} x torchstone")
    print()


def in_turns(ways: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float] | str]:
    """CPU seconds of each way in each round, or why it does not work."""
    figures: dict[str, list[float] | str] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            seen = figures[name]
            if isinstance(seen, str):
                continue
            spent = best_of(way, 1)
            if isinstance(spent, str):
                figures[name] = spent
            else:
                seen.append(spent)
    return figures


def growth(rounds: int) -> None:
    """Print how time grows with layers that repeat."""
    print("Llama-3.1-405B with fewer layers: what one more equal layer costs")
    before: tuple[int, float] | None = None
    for layers in (4, 32, 125):
        given = subject(MODELS[0], layers)
        figure = best_of(lambda given=given: capture(given.model, given.inputs), rounds)  # type: ignore[misc]
        if isinstance(figure, str):
            raise TypeError(figure)
        per_layer = "" if before is None else f"  {(figure - before[1]) / (layers - before[0]) * 1e3:.2f} ms a layer"
        print(f"  {layers:4} layers {figure:8.3f} s{per_layer}")
        before = (layers, figure)


def best_of(way: Callable[[], Any], rounds: int) -> float | str:
    """CPU seconds of the fastest round, or why it does not work."""
    best = float("inf")
    for _ in range(rounds):
        start = time.process_time()
        try:
            way()
        except Exception as error:  # noqa: BLE001 - a peer may fail in any way; that is a figure, too
            return f"{type(error).__name__}: {str(error).splitlines()[0][:90]}"
        best = min(best, time.process_time() - start)
    return best


def run_meta(given: Subject, counter: Any = None) -> None:
    """A forward pass on the meta device."""
    inputs = {name: value.to("meta") for name, value in given.bare_inputs.items()}
    with torch.no_grad(), counter or nullcontext():
        given.model(**inputs)


def run_fake(given: Subject, counter: Any = None) -> None:
    """A forward pass on fake tensors; turning the weights into fake ones is part of it, as it is for a capture."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with torch.no_grad(), mode:
        weights = {
            name: torch.empty_like(tensor, device="cpu")
            for name, tensor in (*given.model.named_parameters(), *given.model.named_buffers())
        }
        inputs = {name: mode.from_tensor(value) for name, value in given.bare_inputs.items()}
        with counter or nullcontext():
            torch.func.functional_call(given.model, weights, args=(), kwargs=inputs)


def run_torchinfo(given: Subject) -> None:
    """A summary by torchinfo."""
    from torchinfo import summary

    summary(given.model, input_data=given.bare_inputs, device="meta", verbose=0)


if __name__ == "__main__":
    main()
