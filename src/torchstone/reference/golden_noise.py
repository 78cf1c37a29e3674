"""The noise floor of golden data: measured when it is made, stored beside it, used wherever a port is compared.

`golden_noise.safetensors` holds for each golden tensor the difference between its float64 value and the stored one (in
bfloat16: 8 digits of a difference that is itself in the last digits), and for each number format what correct
implementations were off. So a comparison needs neither the model nor its packages.
"""

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log2
from pathlib import Path

import safetensors
import torch
from safetensors import SafetensorError
from safetensors.torch import save
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from torchstone.errors import ModelError, UnreadableFileError
from torchstone.foreign import foreign_code
from torchstone.models.inputs import Inputs
from torchstone.numerics.dtypes import dtype_named
from torchstone.numerics.expected import Draws
from torchstone.numerics.float64 import Float64Mode, kernels
from torchstone.numerics.noise import NoisyMode, rounded_buffers
from torchstone.numerics.noise_floor import Deviation, NoiseFloor, assumed_floor, deviation, floor_of
from torchstone.numerics.number_formats import float_format, half_range, spacing
from torchstone.numerics.padding import counted_positions, tokens_of
from torchstone.numerics.profiles import PROFILES, profile_for
from torchstone.numerics.selection import Selection
from torchstone.record import codec
from torchstone.record.reference import Role
from torchstone.reference.golden_files import INPUTS, Golden, why_not_saved
from torchstone.reference.run_model import observe

NOISE_FILE = "golden_noise.safetensors"
FORMATS = ("bfloat16",)  # beside the dtype of the model: what ports are made in
_SAMPLES = 3
_REFUTED = 30.0  # how much further from the golden value than a noisy run a float64 value may be
_MOST_COPIED = 8 << 30  # bytes of weights: a larger model is not copied to be cast
_MOST_SELECTED = 1 << 22  # values of a topk or argmax that are kept, so that ties are distinguished from errors
_ABOUT = "torchstone_noise"
_OLD = "the golden data has no noise floor; make the reference again"


@dataclass(frozen=True, slots=True)
class GoldenNoise:
    """Float64 values and noise floors of golden tensors: the evidence for the judge."""

    tensors: Mapping[str, Tensor]  # the golden ones
    residuals: Mapping[str, Tensor] = field(default_factory=dict)  # float64 value minus golden value
    floors: Mapping[str, Mapping[str, NoiseFloor]] = field(default_factory=dict)  # format -> name -> floor
    selections: Mapping[str, Selection] = field(default_factory=dict)
    tokens: Tensor | None = None
    profile: str = "default"

    def float64(self, path: str) -> Tensor | None:
        """The float64 values of a golden tensor."""
        if path not in self.residuals:
            return None
        wide = torch.complex128 if self.tensors[path].is_complex() else torch.float64
        return self.tensors[path].to(wide) + self.residuals[path].to(wide)

    def selection(self, path: str) -> Selection | None:
        """What an integer tensor selects from."""
        return self.selections.get(path)

    def integers(self, path: str, number_format: str) -> Sequence[Tensor]:  # noqa: ARG002 - part of the protocol
        """Integers of runs with noise are not stored."""
        return ()

    def drawn(self, path: str) -> Draws | None:  # noqa: ARG002 - part of the protocol
        """Golden data has one draw: its seed is part of it."""
        return None

    def counted(self, path: str, shape: Sequence[int]) -> Tensor | None:  # noqa: ARG002 - one batch, all tensors
        """The positions that are not padding."""
        return counted_positions(self.tokens, shape)

    def floor(self, path: str, number_format: str, values: Deviation) -> NoiseFloor:
        """The floor in a format; one that was not measured is scaled from the measured one with the nearest step."""
        profile = PROFILES[self.profile]
        wanted = profile.weights or profile.format or number_format
        measured = {name: floors[path] for name, floors in self.floors.items() if path in floors}
        if not measured:
            return assumed_floor(values, wanted, _OLD)
        nearest = min(measured, key=lambda name: abs(log2(spacing(name) / spacing(wanted))))
        factor = spacing(wanted) / spacing(nearest) * profile.roundings / PROFILES["default"].roundings
        return measured[nearest] if factor == 1 else measured[nearest].scaled(factor, wanted)


def measure_noise(golden: Golden, model: nn.Module, inputs: Inputs) -> GoldenNoise:
    """Run the model in float64 and with noise, on the inputs of the golden run."""
    asked = dict.fromkeys(one.module for one in golden.data.tensors if one.module is not None)
    run = _Runs(model, inputs, golden.data.seed, tuple(asked))
    tokens = tokens_of({one.name.removeprefix(f"{INPUTS}/"): golden.tensors[one.name] for one in golden.data.tensors
                        if one.role is Role.INPUT and one.name in golden.tensors})  # fmt: skip
    exact, selections = run.exact()
    exact = {name: value for name, value in exact.items() if _is_same(golden.tensors.get(name), value)}
    found = GoldenNoise(golden.tensors, tokens=tokens)
    formats = tuple(dict.fromkeys((*(float_format(golden.tensors[name].dtype) for name in exact), *FORMATS)))
    first = run.noisy(formats[0], 0)
    exact = {name: _trusted(found, name, value, first.get(name)) for name, value in exact.items()}
    residuals = {name: (value - golden.tensors[name].to(value.dtype)) for name, value in exact.items()}
    floors = {name: _floors(found, run, exact, name, first if name == formats[0] else None) for name in formats}
    return GoldenNoise(
        golden.tensors,
        residuals={name: _narrow(value) for name, value in residuals.items()},
        floors=floors,
        selections={name: one for name, one in selections.items() if one.values.numel() <= _MOST_SELECTED},
        tokens=tokens,
    )


def _trusted(found: GoldenNoise, name: str, exact: Tensor, noisy: Tensor | None) -> Tensor:
    """The float64 value, or the golden one where a run with noise, which knows nothing of float64, refutes it.

    A float64 run that computes something else would be far from every correct result: everything would be noise.
    """
    golden = found.tensors[name].to(exact.dtype)
    if noisy is None or noisy.shape != golden.shape:
        return exact
    off, usual = _distance(found, name, exact, golden), _distance(found, name, golden, noisy)
    rounding = spacing(float_format(found.tensors[name].dtype)) * usual.scale
    return exact if off.rms <= _REFUTED * max(usual.rms, rounding) else golden


def _floors(
    found: GoldenNoise,
    run: "_Runs",
    exact: Mapping[str, Tensor],
    number_format: str,
    first: Mapping[str, Tensor] | None,
) -> dict[str, NoiseFloor]:
    samples: dict[str, list[Deviation]] = {name: [] for name in exact}
    for name, value in exact.items():
        golden = found.tensors[name]
        if spacing(number_format) <= spacing(float_format(golden.dtype)):
            samples[name].append(_distance(found, name, value, golden))
    for seed in range(_SAMPLES):
        noisy = first if first is not None and seed == 0 else run.noisy(number_format, seed)
        for name, actual in noisy.items():
            if name in exact and actual.shape == exact[name].shape:
                samples[name].append(_distance(found, name, exact[name], actual))
    for name, actual in run.eager(number_format).items():
        if name in exact and actual.shape == exact[name].shape:
            samples[name].append(_distance(found, name, exact[name], actual))
    return {name: floor_of(some, number_format) for name, some in samples.items() if some}


def _distance(found: GoldenNoise, name: str, exact: Tensor, actual: Tensor) -> Deviation:
    return deviation(exact, actual, found.counted(name, actual.shape), limit=half_range(actual.dtype))


def _is_same(golden: Tensor | None, value: Tensor) -> bool:
    return golden is not None and not why_not_saved(golden) and golden.shape == value.shape


def _narrow(value: Tensor) -> Tensor:
    value = torch.where(value.isfinite(), value, 0)  # -inf minus -inf
    return value.to(torch.complex64) if value.is_complex() else value.to(torch.bfloat16)


@dataclass(frozen=True, slots=True)
class _Runs:
    """Runs of one model on one set of inputs."""

    model: nn.Module
    inputs: Inputs
    seed: int
    watched: tuple[str, ...]

    def exact(self, *, plain: bool = False) -> tuple[dict[str, Tensor], dict[str, Selection]]:
        mode = Float64Mode()
        try:
            with kernels(plain=plain), mode:
                seen = observe(self.model, self.inputs, seed=self.seed, watched=self.watched).seen
            if mode.needs_plain_kernels and not plain:
                return self.exact(plain=True)
        except ModelError:  # the model ran without the mode: what it cannot do here is not known in float64
            return {}, {}
        floats = {
            one.name: mode.twin(one.tensor) for one in seen if _is_float(one.tensor) and one.role is not Role.INPUT
        }
        chosen = {one.name: mode.selection(one.tensor) for one in seen if not _is_float(one.tensor)}
        return floats, {name: one for name, one in chosen.items() if one is not None}

    def noisy(self, number_format: str, seed: int) -> dict[str, Tensor]:
        profile = profile_for(PROFILES["default"], number_format)
        try:
            with rounded_buffers(self.model, number_format if seed % 2 else None), NoisyMode(profile, seed):
                seen = observe(self.model, self.inputs, seed=self.seed, watched=self.watched).seen
        except ModelError:
            return {}
        return {one.name: one.tensor for one in seen if _is_float(one.tensor)}

    def eager(self, number_format: str) -> dict[str, Tensor]:
        """The model in a narrower format as users cast it: with its buffers, such as the frequencies of rotary tables.

        Empty where the model has this format anyway, is too large for a copy, or cannot be copied or run so.
        """
        wide = [one for one in (*self.model.parameters(), *self.model.buffers()) if one.is_floating_point()]
        narrower = any(spacing(float_format(one.dtype)) < spacing(number_format) for one in wide)
        if not narrower or sum(one.nbytes for one in wide) > _MOST_COPIED:
            return {}
        dtype = dtype_named(number_format)

        def cast(value: object) -> object:
            return value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value

        with foreign_code() as ran:  # a model's own copying and casting may raise anything; other samples remain
            model = copy.deepcopy(self.model).to(dtype)
            given = replace(
                self.inputs, args=tree_map(cast, self.inputs.args), kwargs=tree_map(cast, self.inputs.kwargs)
            )
            seen = observe(model, given, seed=self.seed, watched=self.watched).seen
        if ran.error is not None:
            return {}
        return {one.name: one.tensor for one in seen if _is_float(one.tensor)}


def _is_float(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


# --- The file ---


def save_noise(folder: Path, noise: GoldenNoise) -> None:
    """Write the noise beside the golden data."""
    tensors = {f"residual/{name}": value.contiguous() for name, value in noise.residuals.items()}
    about: dict[str, object] = {"tokens": noise.tokens is not None, "floors": {}, "selections": {}}
    if noise.tokens is not None:
        tensors["tokens"] = noise.tokens.contiguous()
    floors: dict[str, dict[str, object]] = {}
    for number_format, named in noise.floors.items():
        for name, floor in named.items():
            floors.setdefault(number_format, {})[name] = {
                "samples": floor.samples, "rms": floor.rms, "largest": floor.largest, "gain": _finite(floor.gain),
                "offset": floor.offset, "spread": floor.spread, "basis": floor.basis,
                "typical": floor.typical,
            }  # fmt: skip
            for place, values in enumerate(floor.slices):
                tensors[f"floor/{number_format}/{name}/{place}"] = values.to(torch.float32).contiguous()
    chosen = {}
    for name, one in noise.selections.items():
        chosen[name] = {"dim": one.dim, "distinct": one.distinct, "step": one.step, "slack": one.slack}
        tensors[f"selected/{name}"] = one.values.contiguous()
    about |= {"floors": floors, "selections": chosen}
    packed = save(
        {name: value.clone() for name, value in sorted(tensors.items())}, metadata={_ABOUT: json.dumps(about)}
    )
    codec.write_atomically(folder / NOISE_FILE, packed)


def load_noise(folder: Path, tensors: Mapping[str, Tensor], profile: str = "default") -> GoldenNoise | None:
    """Read the noise of golden tensors; None where there is none, as in references of earlier versions."""
    path = folder / NOISE_FILE
    if not path.is_file():
        return None
    try:
        with safetensors.safe_open(path, framework="pt", device="cpu") as file:
            about = json.loads((file.metadata() or {})[_ABOUT])
            stored = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
        return GoldenNoise(
            tensors,
            residuals={
                name: stored[f"residual/{name}"]
                for name in tensors
                if f"residual/{name}" in stored and stored[f"residual/{name}"].shape == tensors[name].shape
            },
            floors={
                kind: {name: _floor(kind, name, one, stored) for name, one in named.items()}
                for kind, named in about["floors"].items()
            },
            selections={
                name: Selection(values=stored[f"selected/{name}"], **one) for name, one in about["selections"].items()
            },
            tokens=stored.get("tokens"),
            profile=profile,
        )
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError, SafetensorError) as error:
        msg = f"{path} cannot be read ({type(error).__name__}); make the reference again"
        raise UnreadableFileError(msg) from error


def _floor(kind: str, name: str, about: Mapping[str, object], stored: Mapping[str, Tensor]) -> NoiseFloor:
    spread = tuple(map(float, about["spread"]))  # type: ignore[call-overload]
    numbers = {key: float("inf") if about[key] is None else float(str(about[key])) for key in _NUMBERS}
    return NoiseFloor(
        format=kind,
        basis=str(about["basis"]),
        samples=int(str(about["samples"])),
        slices=tuple(stored[f"floor/{kind}/{name}/{place}"].double() for place in range(len(spread))),
        spread=spread,
        typical=tuple(map(float, about.get("typical", ()))),  # type: ignore[call-overload]  # not in older files
        **numbers,
    )


_NUMBERS = ("rms", "largest", "gain", "offset")


def _finite(value: float) -> float | None:
    return value if value != float("inf") else None
