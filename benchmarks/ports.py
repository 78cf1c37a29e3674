"""Ports of many models, correct ones and ones with a planted fault: what `reference compare` says about them.

    python -m benchmarks.ports [--models tiny:bert mixer] [--seeds 2] [--json results.json]

Each port has its own names and its own layout, in float32 (with another order of additions) or bfloat16. The truth does
not come from torchstone: the same port is run with and without the fault, so the first tensor that differs is known,
and the fault is above the noise where it changes a tensor by more than four times the error of the correct port.

- false alarm: a correct port that does not pass, or has a wrong tensor
- found: a port with a fault above the noise that does not pass
- first: the first wrong module is the one where the fault begins
- matched: tensors of correct ports that were recognised as the right golden tensor
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from benchmarks.port_faults import FAULTS, MODELS, as_bfloat16, build, other_kernels, planted
from torchstone.errors import TorchstoneError
from torchstone.models.inputs import Inputs
from torchstone.record.reference import WRONG, Comparison, Role
from torchstone.reference import compare, load_golden
from torchstone.reference.golden_files import Golden
from torchstone.reference.run_model import observe
from torchstone.workflows.reference import make_reference

Tensors = dict[str, Tensor]
ABOVE_NOISE = 4.0

# --- Encodings: names and layouts of a port ---


def tiled(tensor: Tensor, _: Random) -> Tensor:
    """[1, 1, rows, columns], rows and columns padded to 32."""
    rows = tensor.reshape(1, 1, -1, tensor.shape[-1]) if tensor.dim() else tensor.reshape(1, 1, 1, 1)
    return torch.nn.functional.pad(rows, (0, -rows.shape[-1] % 32, 0, -rows.shape[-2] % 32))


def channels_last(tensor: Tensor, random: Random) -> Tensor:
    """NHWC, or [1, 1, N*H*W, C] padded to tiles, for images."""
    if tensor.dim() != 4:
        return tensor
    moved = tensor.permute(0, 2, 3, 1)
    return moved if random.random() < 0.5 else tiled(moved, random)


def split_heads(tensor: Tensor, _: Random) -> Tensor:
    """[..., tokens, heads * width] as [..., heads, tokens, width]."""
    if tensor.dim() < 2 or tensor.shape[-1] % 2:
        return tensor
    return tensor.unflatten(-1, (2, -1)).transpose(-2, -3)


def mixed(tensor: Tensor, random: Random) -> Tensor:
    """One of many layouts for each tensor."""
    choices: list[Callable[[Tensor, Random], Tensor]] = [
        lambda one, _: one,
        tiled,
        channels_last,
        lambda one, _: one[None, None],
        lambda one, _: one.flatten(),
        lambda one, _: one.transpose(-1, -2) if one.dim() > 1 else one,
        lambda one, rest: tiled(one.transpose(0, 1), rest) if one.dim() > 2 else one,
        lambda one, _: (
            one.unflatten(-1, (2, -1)).transpose(-2, -3) if one.dim() > 1 and one.shape[-1] % 2 == 0 else one
        ),
        lambda one, _: one.squeeze(),
    ]
    arranged = random.choice(choices)(tensor, random).contiguous()
    large = [[size for size in one.shape if size > 1] for one in (tensor, arranged)]
    # One tensor alone in another order of equal sizes is a fault, not a layout.
    return tensor if large[0] == large[1] and not torch.equal(tensor.reshape(-1), arranged.reshape(-1)) else arranged


LAYOUTS: dict[str, Callable[[Tensor, Random], Tensor]] = {
    "same": lambda tensor, _: tensor,
    "tiles": tiled,
    "channels last": channels_last,
    "mixed": mixed,
}
NAMES: dict[str, Callable[[str, int, Random], str]] = {
    "golden": lambda name, _place, _random: name,
    "short": lambda name, _place, _random: name.removeprefix("modules/").removesuffix("/outputs"),
    "numbered": lambda _name, place, _random: f"tt_{place:04d}",
    "random": lambda _name, _place, random: f"t{random.randrange(10**9):09d}",
}
SUFFIXES = (".safetensors", ".npz", ".pt", "folder")


@dataclass(frozen=True, slots=True)
class Encoding:
    """How a port names, lays out and stores its tensors."""

    names: str
    layout: str
    fused: bool
    file: str

    def __str__(self) -> str:
        return f"{self.names} names, {self.layout} layout{', fused' if self.fused else ''}, {self.file}"

    def encode(self, tensors: Tensors, seed: int) -> tuple[Tensors, dict[str, str]]:
        """The tensors of the port, and the golden name of each that has one of its own."""
        random = Random(seed)  # noqa: S311 - not for secrets
        tensors, fused = _fuse(tensors) if self.fused else (tensors, {})
        named: Tensors = {}
        truth: dict[str, str] = {}
        for place, (name, tensor) in enumerate(tensors.items()):
            own = name if name in fused else NAMES[self.names](name, place, random)
            named[own] = LAYOUTS[self.layout](tensor, random).contiguous()
            if name not in fused:
                truth[own] = name
        return named, truth

    def save(self, tensors: Tensors, folder: Path) -> Path:
        """A file or a folder."""
        path = folder / f"port{self.file}" if self.file != "folder" else folder / "port"
        match self.file:
            case ".safetensors":
                save_file({name: one.clone() for name, one in tensors.items()}, path)
            case ".npz":
                arrays: dict[str, Any] = {name.replace("/", "|"): _array(one) for name, one in tensors.items()}
                np.savez(path, **arrays)
            case ".pt":
                torch.save(tensors, path)
            case _:
                for name, one in tensors.items():
                    (path / name).parent.mkdir(parents=True, exist_ok=True)
                    np.save(path / f"{name}.npy", _array(one))
        return path


def _array(tensor: Tensor) -> Any:
    return tensor.view(torch.uint16).numpy().view("V2") if tensor.dtype is torch.bfloat16 else tensor.numpy()


_PARTS = (("query", "key", "value"), ("q_proj", "k_proj", "v_proj"), ("q_lin", "k_lin", "v_lin"))


def _fuse(tensors: Tensors) -> tuple[Tensors, dict[str, tuple[str, ...]]]:
    """Query, key and value as one tensor where their shapes agree but for the last size."""
    left, fused = dict(tensors), dict[str, tuple[str, ...]]()
    for parts in _PARTS:
        for name in [one for one in tensors if one.endswith(f".{parts[0]}/outputs")]:
            names = tuple(name.replace(f".{parts[0]}/", f".{part}/") for part in parts)
            shapes = {left[one].shape[:-1] for one in names if one in left}
            if all(one in left for one in names) and len(shapes) == 1:
                whole = name.removeprefix("modules/").replace(f".{parts[0]}/outputs", ".qkv")
                left[whole] = torch.cat([left.pop(one) for one in names], dim=-1)
                fused[whole] = names
    return left, fused


# --- One port ---


@dataclass(slots=True)
class Case:
    """One comparison and whether it was right."""

    model: str
    dtype: str
    fault: str
    encoding: str
    where: str = ""
    above_noise: bool = False
    passed: bool = False
    first_wrong: str | None = None
    first_expected: tuple[str, ...] = ()
    matched: int = 0
    mismatched: list[str] = field(default_factory=list)
    tensors: int = 0
    wrong: list[str] = field(default_factory=list)
    suspicious: int = 0
    seconds: float = 0.0
    error: str = ""

    @property
    def bad(self) -> str:
        """What torchstone got wrong; "" where it is right."""
        if self.error:
            return f"error: {self.error}"
        if self.mismatched and not self.fault:
            return f"mismatched: {self.mismatched[:3]}"
        if not self.fault:
            return "" if self.passed and not self.wrong else f"false alarm: {self.wrong[:3]}"
        if not self.above_noise:
            return ""
        if self.passed:
            return f"missed: {self.fault} in {self.where}"
        if self.first_wrong not in self.first_expected:
            return f"first wrong is {self.first_wrong!r}, not {self.first_expected} ({self.wrong[:2]})"
        return ""


def results_of(model: nn.Module, inputs: Inputs, watched: tuple[str, ...]) -> Tensors:
    """Outputs of the model and of its modules, by golden name."""
    seen = observe(model, inputs, seed=0, watched=watched).seen
    return {one.name: one.tensor for one in seen if one.role in (Role.OUTPUT, Role.MODULE_OUTPUT)}


def distance(left: Tensor, right: Tensor) -> float:
    """Relative L2 distance."""
    left, right = left.double(), right.double()
    finite = left.isfinite() & right.isfinite()
    length = float(left[finite].norm())
    apart = float((left - right)[finite].norm())
    return apart / length if length else float(apart > 0)


@dataclass(frozen=True, slots=True)
class Subject:
    """A reference with the model that it is of."""

    name: str
    model: nn.Module
    inputs: Inputs
    golden: Golden

    @property
    def watched(self) -> tuple[str, ...]:
        """The modules whose outputs are golden."""
        return tuple(dict.fromkeys(one.module for one in self.golden.data.tensors if one.module))

    def run(self, model: nn.Module, inputs: Inputs, dtype: str) -> Tensors:
        """What a port of a model gives."""
        if dtype == "bfloat16":
            import copy

            model, inputs = as_bfloat16(copy.deepcopy(model), inputs)
            return results_of(model, inputs, self.watched)
        with other_kernels():
            return results_of(model, inputs, self.watched)


def expected_first(subject: Subject, right: Tensors, faulty: Tensors) -> tuple[bool, tuple[str, ...]]:
    """Whether a fault is above the noise, and the modules that may be called the first wrong one.

    From the first tensor that differs up to the first that differs by more than the noise.
    """
    accepted: list[str] = []
    for one in subject.golden.data.tensors:
        if one.name not in faulty or one.name not in right:
            continue
        apart = distance(right[one.name], faulty[one.name])
        if apart == 0 and not accepted:
            continue
        accepted.append(one.module or "")
        if apart > ABOVE_NOISE * max(distance(subject.golden.tensors[one.name], right[one.name]), 1e-7):
            return True, tuple(dict.fromkeys(accepted))
    return False, tuple(dict.fromkeys(accepted))


def judged(subject: Subject, given: Tensors, case: Case, encoding: Encoding, seed: int) -> Case:
    """Encode, save, compare."""
    port, truth = encoding.encode(given, seed)
    with TemporaryDirectory() as folder:
        path = encoding.save(port, Path(folder))
        begun = time.process_time()
        try:
            found = compare(subject.golden, path)
        except TorchstoneError as error:
            case.error = str(error)
            return case
        case.seconds = time.process_time() - begun
    _fill(case, found, truth, given)
    return case


def _fill(case: Case, found: Comparison, truth: Mapping[str, str], given: Tensors) -> None:
    case.passed = found.passed
    case.first_wrong = found.first_wrong_module
    case.wrong = [f"{one.name}: {one.status.value}; {one.detail}" for one in found.verdicts if one.status in WRONG]
    case.suspicious = len(found.suspicious)
    by_golden = {one.name: one for one in found.verdicts if one.matched_by is not None}
    case.tensors = len(given)
    case.matched = sum(name in by_golden for name in given)
    for one in by_golden.values():
        port = one.port_name.replace("|", "/")
        meant = truth.get(port)
        if meant is not None and meant != one.name and not torch.equal(given[meant], given[one.name]):
            case.mismatched.append(f"{meant} as {one.name} by {one.matched_by}")


# --- All ports ---

CORRECT = tuple(
    Encoding(names, layout, fused, file)
    for names, layout, fused, file in (
        ("golden", "same", False, ".safetensors"),
        ("short", "tiles", True, ".pt"),
        ("numbered", "same", False, ".npz"),
        ("numbered", "tiles", True, ".safetensors"),
        ("numbered", "mixed", False, "folder"),
        ("random", "channels last", False, ".npz"),
        ("golden", "mixed", True, ".safetensors"),
    )
)


def cases_of(subject: Subject, faults: Sequence[str], seeds: int) -> list[Case]:
    """Correct ports in every encoding, and each fault in two of them, in both number formats."""
    done = []
    for dtype in ("float32", "bfloat16"):
        right = subject.run(subject.model, subject.inputs, dtype)
        for place, encoding in enumerate(CORRECT):
            done.append(judged(subject, right, Case(subject.name, dtype, "", str(encoding)), encoding, place))
            show(done[-1])
        for number, fault in enumerate(faults):
            for seed in range(seeds):
                port = planted(fault, subject.model, subject.inputs, seed)
                if port is None:
                    continue
                faulty = subject.run(port.model, port.inputs, dtype)
                above, expected = expected_first(subject, right, faulty)
                encoding = CORRECT[(number + seed * 2) % len(CORRECT)]
                case = Case(subject.name, dtype, fault, str(encoding), port.where, above, first_expected=expected)
                done.append(judged(subject, faulty, case, encoding, number))
                show(done[-1])
    return done


def show(case: Case) -> None:
    """One line for what is not right."""
    if case.bad:
        print(f"{case.model} {case.dtype} [{case.fault or 'correct'}] {case.encoding}: {case.bad}", flush=True)


def table(cases: Sequence[Case]) -> str:
    """Rates by fault and number format."""
    lines = [f"{'port':<20}{'dtype':<10}{'ports':>6}{'found':>8}{'first':>8}{'below noise':>13}{'matched':>10}"]
    keys = dict.fromkeys((case.fault, case.dtype) for case in cases)
    for fault, dtype in keys:
        some = [case for case in cases if (case.fault, case.dtype) == (fault, dtype)]
        above = [case for case in some if case.above_noise]
        matched = sum(case.matched for case in some) / max(1, sum(case.tensors for case in some))
        found = sum(not case.passed for case in above)
        first = sum(case.first_wrong in case.first_expected for case in above)
        if fault:
            rates = f"{found:>5}/{len(above):<2}{first:>5}/{len(above):<2}{len(some) - len(above):>13}"
        else:
            alarms = sum(not case.passed or bool(case.wrong) for case in some)
            rates = f"{f'{alarms} false alarms':>29}"
        lines.append(f"{fault or 'correct':<20}{dtype:<10}{len(some):>6}{rates}{matched:>10.1%}")
    slowest = max(cases, key=lambda case: case.seconds)
    lines.append(f"slowest comparison: {slowest.seconds:.1f} s of CPU ({slowest.model}, {slowest.encoding})")
    return "\n".join(lines)


def main() -> None:
    """Make the references, the ports, and the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--faults", nargs="*", default=list(FAULTS))
    parser.add_argument("--seeds", type=int, default=2, help="places for each fault")
    parser.add_argument("--references", type=Path, help="keep the references here, and use those that are there")
    parser.add_argument("--json", type=Path, help="write every case here")
    given = parser.parse_args()
    cases: list[Case] = []
    with TemporaryDirectory() as scratch:
        for name in given.models:
            folder = (given.references or Path(scratch)) / name.replace(":", "_")
            model, inputs = build(name)
            if not (folder / "golden_noise.safetensors").is_file():
                made = make_reference(model, inputs, folder, intermediates="all")
                if not made.complete:
                    print(f"{name}: the reference is not complete", flush=True)
            subject = Subject(name, model, inputs, load_golden(folder))
            cases += cases_of(subject, given.faults, given.seeds)
            print(f"{name}: {sum(case.model == name for case in cases)} ports", flush=True)
    print(table(cases))
    print(dict(Counter(case.bad.split(":")[0] for case in cases if case.bad)))
    if given.json:
        given.json.write_text(json.dumps([asdict(case) | {"bad": case.bad} for case in cases], indent=1))
    sys.exit(any(case.bad for case in cases))


if __name__ == "__main__":
    main()
