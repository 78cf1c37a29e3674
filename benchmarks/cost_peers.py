"""FLOPs and time of torchstone and of other counters, against counts made by hand from published dimensions.

Each counter runs in a process of its own over all models, on the meta device, without a mask (most counters cannot run
with one there). Times are CPU seconds of the best round, building the model left out. Counters that are not installed
are named and left out: `pip install fvcore calflops ptflops ultralytics-thop torchinfo deepspeed` adds them.

    python benchmarks/cost_peers.py [--rounds 2] [--seq-len 128] [MODEL ...]
"""

import argparse
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.hand_counts import MODELS, hand_count

OWN = "torchstone"


def main() -> None:
    """Run every counter in a child, and print one table of ratios and one of times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seq-len", type=int, default=128)
    parser.add_argument("--tool", help=argparse.SUPPRESS)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    given = parser.parse_args()
    if given.tool:
        run_tool(given.tool, given.models, given.seq_len, given.rounds)
        return
    tools = [OWN, *installed()]
    results = {tool: run_child(tool, given) for tool in tools}
    print_table("FLOPs over the count by hand (1 is right)", given, results, ratio)
    print_table("CPU seconds", given, results, seconds)


def installed() -> list[str]:
    """The counters that are there; the others are named."""
    from torchstone.cost.peers import COUNTERS

    there = [name for name, (module, _) in COUNTERS.items() if find_spec(module) is not None]
    missing = [name for name in COUNTERS if name not in there]
    if missing:
        print(f"not installed, left out: {', '.join(missing)}\n")
    return there


def run_child(tool: str, given: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """The figures of one counter for each model; a child that dies has none for the rest."""
    command = [sys.executable, __file__, "--tool", tool, "--rounds", str(given.rounds), "--seq-len", str(given.seq_len)]
    done = subprocess.run([*command, *given.models], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    found = {}
    for line in done.stdout.decode().splitlines():
        if line.startswith('{"model"'):
            figures = json.loads(line)
            found[figures["model"]] = figures
    return found


def run_tool(tool: str, models: list[str], seq_len: int, rounds: int) -> None:
    """The child: one line of JSON for each model."""
    warnings.simplefilter("ignore")
    from torchstone.models.inputs import InputOptions
    from torchstone.models.load_model import load

    for name in models:
        model, inputs = load(name, options=InputOptions(seq_len=seq_len))
        kwargs = {key: value.to("meta") for key, value in inputs.kwargs.items() if key != "attention_mask"}
        count = own_counter(model, inputs) if tool == OWN else peer_counter(tool, model, kwargs)
        figures: dict[str, Any] = {"model": name, "flops": None, "seconds": None, "error": ""}
        for _ in range(rounds):
            start = time.process_time()
            flops, error = count()
            spent = time.process_time() - start
            figures |= {"flops": flops, "error": error}
            figures["seconds"] = spent if figures["seconds"] is None else min(spent, figures["seconds"])
        print(json.dumps(figures), flush=True)


def own_counter(model: Any, inputs: Any) -> Callable[[], tuple[int | None, str]]:
    """Capture and price, mask and all."""
    from torchstone.capture import capture
    from torchstone.cost import price

    def count() -> tuple[int | None, str]:
        return price(capture(model, inputs)).totals.matmul_flops, ""

    return count


def peer_counter(tool: str, model: Any, kwargs: dict[str, Any]) -> Callable[[], tuple[int | None, str]]:
    """One of the others."""
    from torchstone.cost.peers import count_with

    def count() -> tuple[int | None, str]:
        found = count_with(tool, model, (), kwargs)
        return found.total_flops, found.error

    return count


def print_table(
    title: str,
    given: argparse.Namespace,
    results: dict[str, dict[str, dict[str, Any]]],
    cell: Callable[[str, dict[str, Any] | None, int], str],
) -> None:
    """Models down, counters across."""
    width = max(len(name) for name in given.models)
    print(title)
    print(" " * width, *(f"{tool:>12}" for tool in results))
    for model in given.models:
        cells = (cell(model, figures.get(model), given.seq_len) for figures in results.values())
        print(f"{model:<{width}}", *(f"{text:>12}" for text in cells))
    print()


def ratio(model: str, figures: dict[str, Any] | None, seq_len: int) -> str:
    """A count over the truth; `exact` only when every FLOP agrees."""
    if figures is None or figures["flops"] is None:
        return "fails"
    truth = hand_count(model, seq_len)
    return "exact" if figures["flops"] == truth else f"{figures['flops'] / truth:.3f}"


def seconds(model: str, figures: dict[str, Any] | None, seq_len: int) -> str:  # noqa: ARG001 - one signature
    """The time of one count; of one that failed, none."""
    return "-" if figures is None or figures["flops"] is None else f"{figures['seconds']:.3f}"


if __name__ == "__main__":
    main()
