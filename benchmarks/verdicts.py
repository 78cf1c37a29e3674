"""Planted faults and correct ports: how often the judge, PCC, allclose and torch's minifier rule are right.

    PYTHONPATH=src:. python benchmarks/verdicts.py [--quick] [--only bert] [--backends aot_eager,inductor,onnxruntime]
                                                   [--write benchmarks/results/verdicts.md]

Each fault is planted in one op call of a layer. The op alone, the layer alone and the whole model are judged, each
from correct inputs. A fault is *above the noise* at a level if its error there (RMS, from float64) is more than 3
times that of correct kernels in another order: this does not depend on how the judge measures noise.
"""

import argparse
import contextlib
import copy
import json
import logging
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._dynamo.utils import same
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map

from benchmarks.planted_faults import FAULTS, ROUNDINGS, BlockFloatMode, Fault, FaultMode, ReorderedMode, short_name
from benchmarks.small_nets import OWN, small_net
from torchstone.backends.lookup import open_backend
from torchstone.backends.protocol import CompileFailed, Unsupported
from torchstone.models import load
from torchstone.numerics.dispatch import KernelOpMode
from torchstone.numerics.expected import ExpectedOutputs
from torchstone.numerics.padding import tokens_of
from torchstone.numerics.pytree import named_tensors
from torchstone.numerics.verdict import judge

TINY = (
    "bert", "gpt2", "llama", "t5", "mixtral", "vit", "swin", "convnext", "resnet", "clip",
    "wav2vec2", "deberta-v2", "mamba", "whisper",
)  # fmt: skip
QUICK = ("bert", "llama", "convnext", "encoder", "recurrent", "unet")
LEVELS = ("op", "module", "model")
RULES = ("judge", "PCC 0.99", "allclose", "minifier")
ABOVE_NOISE = 3.0
FEW = 16  # elements


# --- One model, its layers and op calls with what they were given ---


@dataclass
class Unit:
    """An op, a layer or a model with fresh arguments, what it gives, and the evidence for the judge."""

    module: nn.Module
    arguments: Callable[[], tuple[tuple[Any, ...], dict[str, Any]]]
    tokens: Tensor | None = None
    profile: str = "default"

    @cached_property
    def expected(self) -> dict[str, Tensor]:
        """What eager gives."""
        return self.run()

    @cached_property
    def evidence(self) -> ExpectedOutputs:
        """The float64 values and the noise, worked out once."""
        return ExpectedOutputs(self.module, self.arguments, self.profile, tokens=self.tokens)

    @cached_property
    def legal_error(self) -> dict[str, float]:
        """How far correct kernels in another order are off, or the rounding of the result."""
        other, legal = self.run(ReorderedMode()), {}
        for path, value in self.expected.items():
            exact = self.evidence.float64(path)
            if exact is not None:
                own, reordered = _rms(value.double() - exact), _rms(other[path].double() - exact)
                # The rounding errors of a few elements may all be large: half a step, where many have a quarter.
                rounding = torch.finfo(value.dtype).eps / (2 if value.numel() < FEW else 4)
                legal[path] = max(own, reordered, rounding * _rms(exact))
        return legal

    def run(self, mode: KernelOpMode | None = None) -> dict[str, Tensor]:
        """Run it on fresh arguments."""
        args, kwargs = self.arguments()
        with torch.no_grad(), mode or contextlib.nullcontext():
            return dict(named_tensors(self.module(*args, **kwargs)))

    def is_above_noise(self, actual: Mapping[str, Tensor]) -> bool:
        """Whether an error is more than correct kernels have."""
        for path, legal in self.legal_error.items():
            exact = self.evidence.float64(path)
            if exact is None or path not in actual or actual[path].shape != exact.shape:
                return True
            if _rms(actual[path].double() - exact) > ABOVE_NOISE * legal:
                return True
        return False


def _rms(values: Tensor) -> float:
    finite = values[values.isfinite()]
    return float(finite.abs().square().mean().sqrt()) if finite.numel() else 0.0


@dataclass
class _Layer:
    path: str
    first_op: int
    arguments: Callable[[], tuple[tuple[Any, ...], dict[str, Any]]]


@dataclass
class _Op:
    func: Any
    args: Any
    kwargs: Any
    layer: str
    number_in_layer: int
    number: int


class _OpModule(nn.Module):
    """One op call as a module whose arguments are its tensors."""

    def __init__(self, op: _Op) -> None:
        super().__init__()
        self.op = op.func
        self.rest = op

    def forward(self, args: Any, kwargs: Any) -> Any:
        return self.op(*args, **kwargs)


class _Recorder(KernelOpMode):
    """Keeps the op calls that faults can be planted in, with the layer that was running."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.ops: dict[str, list[_Op]] = defaultdict(list)
        self.layers: dict[str, _Layer] = {}
        self._count = 0
        self._running: list[str] = []
        self._hooks = [hook for path, one in _layers(model) for hook in self._watch(path, one)]

    def _watch(self, path: str, module: nn.Module) -> Iterator[Any]:
        def enter(_module: nn.Module, args: Any, kwargs: Any) -> None:
            if path not in self.layers:
                with _disable_current_modes():
                    given = copy.deepcopy((args, kwargs))
                self.layers[path] = _Layer(path, self._count, lambda: copy.deepcopy(given))
                self._running.append(path)
            else:
                self._running.append("")  # another call of the same layer

        def leave(*_: Any) -> None:
            self._running.pop()

        yield module.register_forward_pre_hook(enter, with_kwargs=True)
        yield module.register_forward_hook(leave)

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def run_op(self, func: Any, args: Any, kwargs: Any) -> Any:
        layer = self._running[-1] if self._running else ""
        for fault in FAULTS if layer else ():
            if fault.applies(func, args, kwargs):
                own_args, own_kwargs = copy.deepcopy(tree_map(_plain, (args, kwargs)))
                place = self._count - self.layers[layer].first_op
                self.ops[fault.name].append(_Op(func, own_args, own_kwargs, layer, place, self._count))
        self._count += 1
        return func(*args, **kwargs)


def _plain(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) and not isinstance(value, nn.Parameter) else value


def _layers(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """The modules that stand in a list and have parts of their own, the innermost lists first to be found."""
    found = []
    for path, module in model.named_modules():
        if isinstance(module, (nn.ModuleList, nn.Sequential)):
            found += [(f"{path}.{name}" if path else name, one) for name, one in module.named_children()]
    inside = [(path, one) for path, one in found if any(True for _ in one.parameters())]
    outer = [f"{path}." for path, _ in inside]
    return [(path, one) for path, one in inside if not any(path.startswith(other) for other in outer)]


# --- The rules side by side ---


def verdicts(unit: Unit, actual: Mapping[str, Tensor]) -> dict[str, str]:
    """What each rule says: passed, suspicious or wrong."""
    found = judge(unit.expected, dict(actual), None, unit.evidence)
    said = {"judge": found["state"], "multiple": found["noise_multiple"], "reason": found["reason"]}
    pcc = [one.get("pcc") for one in found["leaves"] if one.get("pcc") is not None]
    said["PCC 0.99"] = "passed" if all(one >= 0.99 for one in pcc) else "wrong"
    said["allclose"] = "passed" if _all_close(unit.expected, actual) else "wrong"
    exact = {path: unit.evidence.float64(path) for path in unit.expected}
    fits = all(_same(unit.expected[path], actual.get(path), exact[path]) for path in unit.expected)
    return said | {"minifier": "passed" if fits else "wrong"}


def _all_close(expected: Mapping[str, Tensor], actual: Mapping[str, Tensor]) -> bool:
    try:
        torch.testing.assert_close(dict(actual), dict(expected), equal_nan=True, check_stride=False, check_dtype=False)
    except AssertionError:
        return False
    return True


def _same(expected: Tensor, actual: Tensor | None, exact: Tensor | None) -> bool:
    """The rule of torch's minifier, with its tolerance; a candidate in another dtype is judged in that dtype."""
    if actual is None:
        return False
    if not expected.is_floating_point():
        return bool(torch.equal(expected, actual))
    tolerance = torch._dynamo.config.repro_tolerance  # noqa: SLF001 - the minifier's own
    return bool(
        same(expected.to(actual.dtype), actual, exact, tol=tolerance, equal_nan=True, log_error=lambda *_: None)
    )


# --- The trials ---


@dataclass
class Trial:
    """One judged result."""

    model: str
    dtype: str
    what: str  # the fault, or the port
    level: str
    where: str
    said: dict[str, Any]
    above_noise: bool = False


@dataclass
class Benchmark:
    """All trials of a run."""

    layers: int
    backends: tuple[str, ...]
    only_backends: bool = False  # no faults, and no ports but these
    trials: list[Trial] = field(default_factory=list)
    ports: list[Trial] = field(default_factory=list)
    not_run: list[str] = field(default_factory=list)

    def add_model(self, name: str, dtype: torch.dtype) -> None:
        """Judge faults and ports of one model in one dtype."""
        model, args, kwargs = _model(name, dtype)
        tokens = tokens_of(kwargs)
        whole = Unit(model, lambda: copy.deepcopy((args, kwargs)), tokens)
        if self.only_backends:
            for backend in self.backends:
                self._backend(name, str(dtype).removeprefix("torch."), backend, whole)
            return
        recorder = _Recorder(model)
        whole.run(recorder)
        recorder.close()
        layers = {path: Unit(model.get_submodule(path), one.arguments, tokens) for path, one in recorder.layers.items()}
        label = str(dtype).removeprefix("torch.")
        for fault in FAULTS:
            for op in self._chosen(recorder.ops[fault.name]):
                self._plant(name, label, fault, op, layers[op.layer], whole)
        self._add_ports(name, label, whole, layers)

    def _chosen(self, ops: list[_Op]) -> list[_Op]:
        by_layer = {op.layer: op for op in reversed(ops)}
        some = [by_layer[layer] for layer in sorted(by_layer, key=lambda layer: by_layer[layer].number)]
        return some[:1] if self.layers == 1 else [some[0], *some[-1:]][: len(some)] if some else []

    def _plant(self, name: str, dtype: str, fault: Fault, op: _Op, layer: Unit, whole: Unit) -> None:
        alone = Unit(_OpModule(op), lambda: (copy.deepcopy((op.args, op.kwargs)), {}))
        units = {"op": (alone, 0), "module": (layer, op.number_in_layer), "model": (whole, op.number)}
        for level, (unit, number) in units.items():
            actual = unit.run(FaultMode(fault, number))
            said = verdicts(unit, actual)
            where = f"{short_name(op.func)} in {op.layer}"
            self.trials.append(Trial(name, dtype, fault.name, level, where, said, unit.is_above_noise(actual)))

    def _add_ports(self, name: str, dtype: str, whole: Unit, layers: Mapping[str, Unit]) -> None:
        for path, unit in {"": whole, **layers}.items():
            self._port(name, dtype, "reordered", unit, path, unit.run(ReorderedMode()))
        if dtype == "float32":
            for narrow in (torch.bfloat16, torch.float16):
                self._narrow_port(name, whole, narrow)
            self._block_floats(name, whole, layers)
        for backend in self.backends:
            self._backend(name, dtype, backend, whole)

    def _port(self, name: str, dtype: str, port: str, unit: Unit, path: str, actual: Mapping[str, Tensor]) -> None:
        level = "module" if path else "model"
        self.ports.append(Trial(name, dtype, port, level, path, verdicts(unit, actual)))

    def _narrow_port(self, name: str, whole: Unit, dtype: torch.dtype) -> None:
        model = copy.deepcopy(whole.module).to(dtype)

        def cast(value: Any) -> Any:
            return value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value

        args, kwargs = tree_map(cast, whole.arguments())
        label = str(dtype).removeprefix("torch.")
        with torch.no_grad():
            try:
                actual = dict(named_tensors(model(*args, **kwargs)))
            except RuntimeError as error:
                self.not_run.append(f"{name} as {label}: {str(error).splitlines()[0]}")
                return
        self._port(name, "float32", f"eager in {label}", whole, "", actual)

    def _block_floats(self, name: str, whole: Unit, layers: Mapping[str, Unit]) -> None:
        some = {"": whole, **dict(list(layers.items())[: self.layers])}
        for path, unit in some.items():
            judged = Unit(unit.module, unit.arguments, unit.tokens, "tt-bfloat8_b")
            for rounding in ROUNDINGS:
                device = BlockFloatMode(rounding, unit.module.parameters())
                actual = {key: _stored(value) for key, value in judged.run(device).items()}
                if rounding == "nearest":
                    correct = actual
                    self._port(name, "bfloat8_b", "bfloat16, weights in bfloat8_b", judged, path, actual)
                    continue
                level = "module" if path else "model"
                said, above = verdicts(judged, actual), _further(judged, correct, actual)
                self.trials.append(Trial(name, "bfloat8_b", rounding, level, path, said, above))

    def _backend(self, name: str, dtype: str, backend: str, whole: Unit) -> None:
        opened = open_backend(backend)
        try:
            args, kwargs = whole.arguments()
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                run = opened.compile(whole.module, args, kwargs)
                args, kwargs = whole.arguments()
                actual = dict(named_tensors(run(*args, **kwargs)))
        except (Unsupported, CompileFailed, RuntimeError) as error:
            self.not_run.append(f"{name} in {dtype} on {backend}: {str(error).strip().splitlines()[0][:90]}")
            return
        finally:
            opened.reset()
        self._port(name, dtype, backend, whole, "", actual)


def _stored(value: Tensor) -> Tensor:
    return value.bfloat16() if value.dtype == torch.float32 else value


def _further(unit: Unit, correct: Mapping[str, Tensor], actual: Mapping[str, Tensor]) -> bool:
    for path, value in correct.items():
        exact = unit.evidence.float64(path)
        if exact is not None and _rms(actual[path].double() - exact) > ABOVE_NOISE * _rms(value.double() - exact):
            return True
    return False


def _model(name: str, dtype: torch.dtype) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    torch.manual_seed(0)
    if name in OWN:
        model, args, kwargs = small_net(name)
    else:
        loaded = load(f"tiny:{name}", device="cpu")
        model, args, kwargs = loaded.model, loaded.inputs.args, dict(loaded.inputs.kwargs)
    for path, value in model.named_parameters():
        if value.dim() == 1 and path.endswith("bias"):
            nn.init.normal_(value, std=0.1)  # random weights have biases of 0: dropping them would be no fault

    def cast(value: Any) -> Any:
        return value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value

    args, kwargs = tree_map(cast, (args, kwargs))
    return model.to(dtype).eval(), args, kwargs


# --- The tables ---


def tables(found: Benchmark) -> str:
    """The results as Markdown."""
    return "\n\n".join((_detection(found), _false_alarms(found), _hidden(found), _missed(found)))


def _rate(trials: list[Trial], rule: str) -> str:
    return f"{sum(one.said[rule] == 'wrong' for one in trials)}" if trials else "-"


def _detection(found: Benchmark) -> str:
    lines = ["## Faults above the noise that are called wrong", ""]
    lines += [
        "| fault | level | above the noise | " + " | ".join(RULES) + " | suspicious by the judge |",
        "|---|---|---:|" + "---:|" * (len(RULES) + 1),
    ]
    for name in dict.fromkeys(one.what for one in found.trials):
        for level in LEVELS:
            some = [one for one in found.trials if (one.what, one.level) == (name, level)]
            above = [one for one in some if one.above_noise]
            if not some:
                continue
            doubtful = sum(one.said["judge"] == "suspicious" for one in above)
            cells = [
                name,
                level,
                f"{len(above)} of {len(some)}",
                *(_rate(above, rule) for rule in RULES),
                str(doubtful),
            ]
            lines.append("| " + " | ".join(cells) + " |")
    for level in LEVELS:
        above = [one for one in found.trials if one.above_noise and one.level == level]
        rates = [f"{sum(one.said[rule] == 'wrong' for one in above) / max(1, len(above)):.1%}" for rule in RULES]
        lines.append(f"| **all** | {level} | {len(above)} | " + " | ".join(rates) + " | |")
    return "\n".join(lines)


def _false_alarms(found: Benchmark) -> str:
    lines = ["## Correct ports that are called wrong", ""]
    lines += [
        "| port | dtype | results | " + " | ".join(RULES) + " | suspicious by the judge | largest multiple |",
        "|---|---|---:|" + "---:|" * (len(RULES) + 2),
    ]
    for port, dtype in dict.fromkeys((one.what, one.dtype) for one in found.ports):
        some = [one for one in found.ports if (one.what, one.dtype) == (port, dtype)]
        doubtful = sum(one.said["judge"] == "suspicious" for one in some)
        largest = max(one.said["multiple"] or 0.0 for one in some)
        cells = [port, dtype, str(len(some)), *(_rate(some, rule) for rule in RULES), str(doubtful), f"{largest:.2f}"]
        lines.append("| " + " | ".join(cells) + " |")
    lines.append(
        f"| **all** | | {len(found.ports)} | " + " | ".join(_rate(found.ports, rule) for rule in RULES) + " | | |"
    )
    if found.not_run:
        lines += ["", "Not run:", "", *(f"- {one}" for one in found.not_run)]
    return "\n".join(lines)


def _hidden(found: Benchmark) -> str:
    """Faults that nobody can see at the output of the model, since a correct port is as far off."""
    groups: dict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
    for one in found.trials:
        if not one.above_noise:
            groups[one.what, one.dtype, one.level][one.model] += 1
    lines = ["## Faults below the noise", "", "| fault | dtype | level | models |", "|---|---|---|---|"]
    for (what, dtype, level), models in groups.items():
        lines.append(f"| {what} | {dtype} | {level} | {', '.join(models)} |")
    return "\n".join(lines)


def _missed(found: Benchmark) -> str:
    """Every fault above the noise that the judge passed, and every correct port that it did not."""
    missed = [one for one in found.trials if one.above_noise and one.said["judge"] != "wrong"]
    alarms = [one for one in found.ports if one.said["judge"] != "passed"]
    lines = ["## Where the judge differs from what was planted", ""]
    for one in (*missed, *alarms):
        times = one.said["multiple"]
        shown = "no multiple" if times is None else f"{times:.2f} times the noise"
        detail = f"{one.model} {one.dtype}, {one.what} at the {one.level} ({one.where}): {one.said['judge']}, {shown}"
        lines.append(f"- {detail}; {one.said['reason']}")
    return "\n".join(lines if missed or alarms else [*lines, "Nowhere."])


def _read(path: Path, found: Benchmark) -> set[str]:
    """Take over what an earlier, interrupted run found; returns the models that it finished."""
    done = set()
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        part = json.loads(line)
        done.add(part["part"])
        found.trials += [Trial(**one) for one in part["trials"]]
        found.ports += [Trial(**one) for one in part["ports"]]
        found.not_run += part["not_run"]
    return done


def _run_part(found: Benchmark, name: str, dtype: torch.dtype, path: Path | None) -> None:
    begun_s = time.perf_counter()
    before = len(found.trials), len(found.ports), len(found.not_run)
    found.add_model(name, dtype)
    print(f"{name} {dtype}: {time.perf_counter() - begun_s:.0f} s", flush=True)
    if path is not None:
        part = {
            "part": f"{name} {dtype}",
            "trials": [asdict(one) for one in found.trials[before[0] :]],
            "ports": [asdict(one) for one in found.ports[before[1] :]],
            "not_run": found.not_run[before[2] :],
        }
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(part) + "\n")


def main() -> None:
    """Run all trials and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="six models, one layer, aot_eager alone")
    parser.add_argument("--only", default="", help="some models, a comma between their names")
    parser.add_argument("--backends", default="", help="a comma between names")
    parser.add_argument("--only-backends", action="store_true", help="no faults, and no ports but the backends")
    parser.add_argument("--trials", type=Path, help="keep results in this file, and continue from it")
    parser.add_argument("--write", type=Path, help="write the tables to this file")
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    torch.backends.mha.set_fastpath_enabled(False)  # one op for a whole layer: no fault can be planted inside
    named = tuple(filter(None, given.backends.split(",")))
    backends = named or (("aot_eager",) if given.quick else ("aot_eager", "inductor", "onnxruntime"))
    found = Benchmark(layers=1 if given.quick else 2, backends=backends, only_backends=given.only_backends)
    models = tuple(filter(None, given.only.split(","))) or (QUICK if given.quick else (*OWN, *TINY))
    done = _read(given.trials, found) if given.trials else set()
    for name in models:
        for dtype in (torch.float32, torch.bfloat16):
            if f"{name} {dtype}" not in done:
                _run_part(found, name, dtype, given.trials)
    count = len({one.model for one in found.trials})
    head = (
        f"torch {torch.__version__}, {count} models, {len(found.trials)} faults, {len(found.ports)} results of ports."
    )
    text = f"# Verdicts on planted faults and correct ports\n\n{head}\n\n{tables(found)}\n"
    print(text)
    if given.write:
        given.write.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
