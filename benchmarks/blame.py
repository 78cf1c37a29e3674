"""Planted faults on six architectures: whether the headline of `torchstone check` is true, and what it costs.

    python benchmarks/blame.py [--quick] [--only TEXT] [--minifier N] [--out benchmarks/results/blame.md]

A fault is planted in a dynamo backend that rewrites nodes of the graph it receives, so the truth is known. Every fault
is checked through the command line. Precision and recall compare the ops that the headline names with those planted.
Drift is planted by a backend that rounds (see drift.py); what counts is the kind that is found. Faults of inductor are
those that torch can inject itself. Some faults go through torch's own minifier, too (TORCHDYNAMO_REPRO_LEVEL=4): its
CPU seconds are those of the run that writes the launcher and of the launcher, as those of a check are of all processes.
"""

import argparse
import ast
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

HERE = str(Path(__file__).resolve())
sys.path.insert(0, str(Path(HERE).parent.parent))
from benchmarks import drift  # noqa: E402 - this file may be loaded by its path
from benchmarks.planted_backend import ATEN, OWN  # noqa: E402 - so may be this one

PLANTED = str(Path(HERE).with_name("planted_backend.py"))  # the models and the backend

# --- Models with drift ---


DEPTH = 6  # of the models with drift


def _drifting(model: str, kind: str) -> tuple[Callable[[], nn.Module], Callable[[], tuple[Any, ...]]]:
    return lambda: drift.case(model, DEPTH, kind)[0], lambda: drift.case(model, DEPTH, kind)[1]


load_transformer_uniform, transformer_uniform_inputs = _drifting("transformer", "uniform")
load_transformer_single_source, transformer_single_source_inputs = _drifting("transformer", "single source")
load_transformer_amplifier, transformer_amplifier_inputs = _drifting("transformer", "amplifier")
load_residual_uniform, residual_uniform_inputs = _drifting("residual", "uniform")
load_residual_single_source, residual_single_source_inputs = _drifting("residual", "single source")
load_residual_amplifier, residual_amplifier_inputs = _drifting("residual", "amplifier")


# --- The faults ---


@dataclass(frozen=True)
class Fault:
    """A model, what is planted, and the ops that the headline must name: those of the chain."""

    model: str
    chain: str
    how: str = "wrong"
    quick: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    backend: str = "planted"  # planted, inductor or rounding

    @property
    def truth(self) -> str:
        """The ops as the headline writes them; of a drift, its kind."""
        if self.backend == "rounding":
            return self.how
        return " + ".join(ATEN[op] for op in self.chain.split("+"))

    @property
    def title(self) -> str:
        """For people."""
        if self.backend == "rounding":
            return f"{self.model}: drift, {self.how}"
        more = "".join(f", {name} {value}" for name, value in self.options.items())
        where = "" if self.backend == "planted" else f" on {self.backend}"
        return f"{self.model}: {self.chain} {self.how}{more}{where}"


FAULTS = (
    # one op, at the level that dynamo hands over
    Fault("mlp", "linear", quick=True), Fault("mlp", "relu"), Fault("mlp", "tanh", "nan"),
    Fault("encoder", "softmax", quick=True), Fault("encoder", "matmul"), Fault("encoder", "embedding"),
    Fault("encoder", "layer_norm", "slightly"), Fault("encoder", "gelu", "slightly"),
    Fault("resnet", "conv2d", quick=True), Fault("resnet", "batch_norm"), Fault("resnet", "mean"),
    Fault("tiny:llama", "linear"), Fault("tiny:llama", "silu"), Fault("tiny:llama", "rsqrt"),
    Fault("tiny:llama", "scaled_dot_product_attention"), Fault("tiny:bert", "gelu"), Fault("tiny:bert", "layer_norm"),
    Fault("tiny:bert", "scaled_dot_product_attention", "nan"), Fault("tiny:vit", "conv2d"), Fault("tiny:vit", "cat"),
    # fusions
    Fault("encoder", "linear+add", quick=True), Fault("encoder", "gelu+linear"),
    Fault("encoder", "linear+gelu"), Fault("encoder", "linear+gelu+linear"), Fault("resnet", "conv2d+batch_norm"),
    Fault("resnet", "conv2d+batch_norm+relu"), Fault("resnet", "batch_norm+add"), Fault("mlp", "linear+relu"),
    Fault("mlp", "relu+layer_norm"), Fault("tiny:llama", "silu+mul"), Fault("tiny:vit", "linear+gelu"),
    Fault("tiny:bert", "linear+gelu+linear"),
    # only some sizes, some values, one layer
    Fault("resnet", "conv2d", options={"size": 16}), Fault("mlp", "linear", options={"size": 8}),
    Fault("encoder", "linear", options={"size": 64}), Fault("tiny:vit", "linear", "raise", options={"size": 64}),
    Fault("encoder", "linear", options={"above": 0.4, "argument": 1}, quick=True),
    Fault("encoder", "gelu", options={"above": 3.0}),
    # crash, hang, memory
    Fault("encoder", "softmax", "crash", quick=True), Fault("resnet", "batch_norm", "crash"),
    Fault("tiny:llama", "silu", "crash"), Fault("mlp", "linear+relu", "crash"), Fault("encoder", "softmax", "hang"),
    Fault("mlp", "layer_norm", "hang"), Fault("mlp", "tanh", "memory"),
    # refusals
    Fault("tiny:bert", "gelu", "named"), Fault("encoder", "softmax", "named"), Fault("mlp", "tanh", "unnamed"),
    Fault("tiny:vit", "conv2d", "unnamed"), Fault("resnet", "relu", "raise"),
    Fault("encoder", "linear+gelu", "unnamed"),
    # layouts, odd sizes, batches of one, state, one output of several, writes in place, whole numbers, number formats
    Fault("encoder", "matmul", options={"when": "not contiguous", "argument": 1}),
    Fault("convnet", "conv2d", options={"when": "odd"}), Fault("convnet", "layer_norm", options={"when": "batch of 1"}),
    Fault("convnet", "layer_norm", options={"when": "not contiguous", "argument": 0}),
    Fault("convnet", "conv2d+permute"), Fault("convnet", "gelu", options={"when": "again"}),
    Fault("recurrent", "chunk"), Fault("recurrent", "topk", options={"output": 0}),
    Fault("recurrent", "sigmoid", "varies"), Fault("recurrent", "argmax", "off by one"),
    Fault("recurrent", "to", "truncated"), Fault("recurrent", "sigmoid+mul"), Fault("unet", "relu_", "in place"),
    Fault("unet", "conv_transpose2d"),
    Fault("unet", "max_pool2d", options={"when": "odd", "argument": 0}), Fault("unet", "cat", "nan"),
    Fault("unet", "conv_transpose2d", "hang"), Fault("running", "mul_", "in place"),
    Fault("running", "nan_to_num", "nan lost", options={"argument": 0}), Fault("running", "gt", "flipped"),
    Fault("running", "silu", "varies"),
    # faults that torch can inject into inductor
    Fault("mlp", "relu", "accuracy", backend="inductor"), Fault("mlp", "relu", "compile_error", backend="inductor"),
    # drift
    *(Fault(model, "", kind, backend="rounding") for model in ("transformer", "residual")
      for kind in ("uniform", "single source", "amplifier")),
)  # fmt: skip


# --- Running them ---


@dataclass(frozen=True)
class Ran:
    """One fault, checked."""

    fault: Fault
    named: tuple[str, ...]  # in the headline
    sentence: str
    nodes: tuple[int, ...]
    confirmed: bool
    runs: int
    cpu_s: float
    minifier: tuple[float, int] | None = None  # CPU seconds, nodes

    @property
    def right(self) -> bool:
        """Exactly what was planted."""
        return self.named == (self.fault.truth,)


def model_arguments(fault: Fault) -> list[str]:
    """A model on the command line."""
    model = fault.model
    if fault.backend != "rounding" and model not in OWN:
        return [model]
    home = HERE if fault.backend == "rounding" else PLANTED
    model = f"{model}_{fault.how.replace(' ', '_')}" if fault.backend == "rounding" else model
    return [f"{home}::load_{model}", "--inputs", f"{home}::{model}_inputs"]


def backend_arguments(fault: Fault) -> list[str]:
    """A backend on the command line, with its fault."""
    match fault.backend:
        case "inductor":
            config = {"cpp.inject_relu_bug_TESTING_ONLY": fault.how}
            return ["--backend", "inductor", "--backend-option", f"config={json.dumps(config)}"]
        case "rounding":
            name, options = (
                f"{Path(HERE).with_name('drift.py')}::Rounding",
                drift.case(fault.model, DEPTH, fault.how)[3],
            )
            chosen = ["--drift"]
        case _:
            name, options = f"{PLANTED}::Planted", {"chain": fault.chain, "how": fault.how, **fault.options}
            chosen = []
    given = [text for one, value in options.items() for text in ("--backend-option", f"{one}={json.dumps(value)}")]
    return ["--backend", name, *given, *chosen]


def check(fault: Fault, folder: Path) -> Ran:
    """Check a fault through the command line."""
    command = [sys.executable, "-m", "torchstone", "check", "run", *model_arguments(fault), *backend_arguments(fault),
               "--no-ir", "--quiet", "--dir", str(folder), "--memory-limit", "2GiB"]  # fmt: skip
    command += ["--timeout", "40" if fault.how == "hang" else "300"]
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")}  # what another check compiled is not there
    code, printed, used_s = run(command, variables=cache)
    if code not in (0, 1):
        return Ran(fault, (f"exit code {code}",), printed[-300:], nodes=(), confirmed=False, runs=0, cpu_s=used_s)
    result = json.loads((folder / "check.json").read_text(encoding="utf-8"))
    if fault.backend == "rounding":
        drift = result["drift"] or {"kind": "not measured", "verdict": ""}
        return Ran(fault, (drift["kind"],), drift["verdict"], (), confirmed=False, runs=result["tasks"], cpu_s=used_s)
    headline = [one for one in result["findings"] if one["proven"] and one["ops"]]
    summary = (folder / "summary.md").read_text(encoding="utf-8").split("\n\n")[1]
    return Ran(
        fault, tuple(dict.fromkeys(one["op"] for one in headline)), summary, tuple(one["nodes"] for one in headline),
        all(one["confirmed"] for one in headline), result["tasks"], used_s,
    )  # fmt: skip


def run(
    command: Sequence[str],
    folder: Path | None = None,
    variables: dict[str, str] | None = None,
    timeout_s: float = 7200.0,
) -> tuple[int, str, float]:
    """The exit code of a command, what it printed, and the CPU seconds of all its processes."""
    with tempfile.TemporaryFile("w+") as printed:
        child = subprocess.Popen(
            command, stdout=printed, stderr=subprocess.STDOUT, cwd=folder, env={**os.environ, **(variables or {})}
        )
        alarm = threading.Timer(timeout_s, child.kill)
        alarm.start()
        _, status, used = os.wait4(child.pid, 0)
        alarm.cancel()
        child.returncode = os.waitstatus_to_exitcode(status)
        printed.seek(0)
        return child.returncode, printed.read(), used.ru_utime + used.ru_stime


# torch's minifier as people run it: a run of the model that writes minifier_launcher.py, and a run of that
BEGINS = """
import json, os, sys
sys.path.insert(0, {folder!r})
import torch, planted_backend as blame
from torch._dynamo import register_backend
fault = json.loads(os.environ["FAULT"])
if fault["backend"] == "planted":
    backend = blame.Planted(chain=fault["chain"], how=fault["how"], **fault["options"])

    @register_backend(name="planted")
    def planted(graph, example):
        backend.receive(graph, example)
        return graph
"""
RUNS_THE_MODEL = """
torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = fault["how"] if fault["backend"] == "inductor" else None
if fault["model"] in blame.OWN:
    model, args, kwargs = getattr(blame, "load_" + fault["model"])(), getattr(blame, fault["model"] + "_inputs")(), {{}}
else:
    from torchstone.models import load
    model, inputs = load(fault["model"], device="cpu")
    args, kwargs = inputs.args, inputs.kwargs
with torch.no_grad():
    torch.compile(model, backend=fault["backend"], dynamic=False)(*args, **kwargs)
"""
LAUNCHES = """
import runpy
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def minified(fault: Fault, timeout_s: float) -> tuple[float, int] | None:
    """CPU seconds of both processes and calls in the result; None where the minifier gave none.

    At the level of aot torch minifies for inductor only; a backend of dynamo is minified at the level of dynamo.
    """
    about = {"model": fault.model, "chain": fault.chain, "how": fault.how, "options": fault.options,
             "backend": fault.backend}  # fmt: skip
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        level = "aot" if fault.backend == "inductor" else "dynamo"
        variables = {"FAULT": json.dumps(about), "TORCHDYNAMO_REPRO_AFTER": level, "TORCHDYNAMO_REPRO_LEVEL": "4",
                     "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")}  # fmt: skip
        begins = BEGINS.format(folder=str(Path(HERE).parent))
        (folder / "run.py").write_text(begins + RUNS_THE_MODEL.format(), encoding="utf-8")
        (folder / "launch.py").write_text(begins + LAUNCHES, encoding="utf-8")
        _, _, first_s = run([sys.executable, "run.py"], folder, variables, timeout_s)
        launcher = next(folder.rglob("minifier_launcher.py"), None)
        if launcher is None:
            return None
        _, _, second_s = run([sys.executable, "launch.py", str(launcher)], folder, variables, timeout_s)
        found = next(folder.rglob("repro.py"), None)
        return None if found is None else (first_s + second_s, calls_in(found.read_text(encoding="utf-8")))


def calls_in(script: str) -> int:
    """The calls in the forward of a script of the minifier."""
    tree = next(
        one for one in ast.walk(ast.parse(script)) if isinstance(one, ast.FunctionDef) and one.name == "forward"
    )
    return sum(isinstance(one, ast.Call) for one in ast.walk(tree))


# --- The table ---


def table(ran: Sequence[Ran]) -> Iterator[str]:
    """Everything that was measured, as Markdown."""
    every, ran = ran, [one for one in ran if one.fault.backend != "rounding"]
    drifts = [one for one in every if one.fault.backend == "rounding"]
    compared = [(one.cpu_s, one.minifier[0]) for one in ran if one.minifier is not None]
    named = sum(len(one.named) for one in ran)
    hits = sum(one.fault.truth in one.named for one in ran)
    nodes = [number for one in ran for number in one.nodes]
    yield f"{len(every)} planted faults on {len({one.fault.model for one in every})} architectures; "
    yield f"Python {platform.python_version()}, torch {torch.__version__}, {os.cpu_count()} cores.\n"
    yield "| measure | value |\n|---|---:|"
    yield f"| precision of the headline | {hits / max(named, 1):.3f} |"
    yield f"| recall of the headline | {hits / max(len(ran), 1):.3f} |"
    yield f"| headlines that are exactly right | {sum(one.right for one in ran)} of {len(ran)} |"
    yield f"| scripts that fail again | {sum(one.confirmed and bool(one.nodes) for one in ran)} of {len(ran)} |"
    yield f"| median nodes in the script | {statistics.median(nodes) if nodes else 'none'} |"
    yield f"| runs on the backend, median | {statistics.median(one.runs for one in every):g} |"
    yield f"| CPU seconds, median | {statistics.median(one.cpu_s for one in every):.1f} |"
    if drifts:
        yield f"| drift classified right | {sum(one.right for one in drifts)} of {len(drifts)} |"
    if compared:
        yield f"| fewer CPU seconds than torch's minifier | {sum(a < b for a, b in compared)} of {len(compared)} |"
    yield ""
    yield "| fault | headline | right | nodes | runs | CPU s | minifier: CPU s | nodes |"
    yield "|---|---|---|---:|---:|---:|---:|---:|"
    for one in every:
        other = ("", "") if one.minifier is None else (f"{one.minifier[0]:.1f}", str(one.minifier[1]))
        shown = ", ".join(name.replace("aten.", "") for name in one.named) or "nothing proven"
        cells = (one.fault.title, shown, "yes" if one.right else "NO", ", ".join(map(str, one.nodes)), one.runs,
                 f"{one.cpu_s:.1f}", *other)  # fmt: skip
        yield "| " + " | ".join(map(str, cells)) + " |"


def main() -> None:
    """Check every fault, print the table, and write it where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="six faults")
    parser.add_argument("--only", default="", help="faults whose title contains this")
    parser.add_argument("--minifier", type=int, default=0, help="so many of the faults through torch's minifier, too")
    parser.add_argument("--jobs", type=int, default=1, help="checks at once")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    chosen = [one for one in FAULTS if (one.quick or not given.quick) and given.only in one.title]
    comparable = [one for one in chosen if one.backend == "inductor" and given.minifier]
    comparable += [one for one in chosen if one.backend == "planted" and one.how == "wrong"][: given.minifier]
    ran: list[Ran] = []
    with ThreadPoolExecutor(given.jobs) as pool:
        for one in pool.map(lambda fault: measured(fault, minify=fault in comparable), chosen):
            ran.append(one)
            print(
                f"{'right' if one.right else 'WRONG'}  {one.fault.title}: {one.sentence}", file=sys.stderr, flush=True
            )
            if given.out is not None:
                given.out.write_text("# Planted faults\n\n" + "\n".join(table(ran)) + "\n", encoding="utf-8")
    print("\n".join(table(ran)))


def measured(fault: Fault, *, minify: bool) -> Ran:
    """A fault, checked, and reduced by torch's minifier where asked."""
    with tempfile.TemporaryDirectory() as folder:
        one = check(fault, Path(folder))
    return replace(one, minifier=minified(fault, timeout_s=3600)) if minify else one


if __name__ == "__main__":
    main()
