"""What many equal layers cost: capturing them, and writing, reading and pricing the trace.

    python benchmarks/repetition.py [--layers 10000]

Each step runs in a process of its own. Figures are CPU seconds and the most memory that the process held, with all that
Python and torch take (a process that only imports them is shown first).
"""

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

T = TypeVar("T")
STEPS = ("import torch", "capture and save", "load and price", "torchstone cost FOLDER")


def main() -> None:
    """Run every step on a new folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=10_000)
    parser.add_argument("--step", choices=STEPS, help="run this step alone, on --folder")
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    if given.step:
        run_step(given.step, given.layers, given.folder)
        return
    with TemporaryDirectory() as folder:
        for step in STEPS:
            command = [sys.executable, __file__, "--layers", str(given.layers), "--step", step, "--folder", folder]
            subprocess.run(command, check=True)


def run_step(step: str, layers: int, folder: Path) -> None:
    """Do one step and print its figures."""
    print(step)
    if step == "import torch":
        import torch  # noqa: F401
    elif step == "capture and save":
        capture_layers(layers, folder)
    elif step == "load and price":
        price_layers(folder)
    used = resource.getrusage(resource.RUSAGE_SELF)
    if step == "torchstone cost FOLDER":
        subprocess.run([sys.executable, "-m", "torchstone", "cost", folder], check=True, stdout=subprocess.DEVNULL)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        print(f"  {'all':<10}{used.ru_utime + used.ru_stime:>9.2f} s")
    print(f"  {'memory':<10}{used.ru_maxrss / 1024:>9,.0f} MB", flush=True)


def capture_layers(layers: int, folder: Path) -> None:
    """63 op calls and four modules a layer."""
    import torch
    from torch import Tensor, nn

    from torchstone.capture import capture
    from torchstone.record.codec import save

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)

        def forward(self, x: Tensor) -> Tensor:
            for _ in range(9):
                x = x + self.down(torch.relu(self.up(self.norm(x))))
            return x

    model = nn.Sequential(*(Block() for _ in range(layers)))
    trace = timed("capture", lambda: capture(model, (torch.ones(2, 8),), "meta"))
    timed("save", lambda: save(folder / "trace.json", trace))
    print(f"  {'trace.json':<10}{(folder / 'trace.json').stat().st_size / 1e6:>9,.1f} MB")


def price_layers(folder: Path) -> None:
    """Read the trace and price it."""
    from torchstone.cost import price
    from torchstone.record.codec import load
    from torchstone.record.trace import Trace

    trace = timed("load", lambda: load(folder / "trace.json", Trace))
    table = timed("price", lambda: price(trace))
    print(f"  {'op calls':<10}{table.totals.op_calls:>9,}")


def timed(name: str, work: Callable[[], T]) -> T:
    """Do something and print the CPU seconds it took."""
    start = time.process_time()
    result = work()
    print(f"  {name:<10}{time.process_time() - start:>9.2f} s")
    return result


if __name__ == "__main__":
    main()
