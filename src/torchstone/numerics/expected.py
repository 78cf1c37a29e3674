"""What a module should return: its outputs, their float64 values and their noise floor, each worked out when asked.

Most comparisons end at equal bits or at a small error, so nothing is run before it is needed: the float64 run when the
bits differ, the noisy runs when the error is larger than what eager itself has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from time import monotonic
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from torchstone.numerics.float64 import Float64Mode, kernels
from torchstone.numerics.noise import NoisyMode, rounded_buffers
from torchstone.numerics.noise_floor import Deviation, NoiseFloor, assumed_floor, deviation, floor_of
from torchstone.numerics.number_formats import float_format, half_range, spacing
from torchstone.numerics.padding import counted_positions
from torchstone.numerics.profiles import PROFILES, Profile, profile_for
from torchstone.numerics.pytree import named_tensors
from torchstone.numerics.selection import Selection

Arguments = tuple[tuple[object, ...], Mapping[str, Any]]

_SAMPLES = 3
_SMALL, _SAMPLES_OF_SMALL = 64, 8  # few elements tell little about the noise: run more often
_SEED = 0
_SLOW_S = 15.0  # a run in float64 that takes longer: one run with noise must do
_RUN_FAILURES = (
    RuntimeError,
    ValueError,
    TypeError,
    NotImplementedError,
    AttributeError,
    IndexError,
    KeyError,
    MemoryError,
)


@dataclass(frozen=True)
class Draws:
    """One output of code that draws random numbers, from runs with other seeds."""

    ops: tuple[str, ...]  # that draw
    outputs: tuple[Tensor, ...]


class Evidence(Protocol):
    """What the judge asks about an output before it decides."""

    def float64(self, path: str) -> Tensor | None:
        """The float64 values of an output; None where there are none."""
        ...

    def floor(self, path: str, number_format: str, values: Deviation) -> NoiseFloor:
        """The noise floor of an output for a candidate in a number format."""
        ...

    def selection(self, path: str) -> Selection | None:
        """What an integer output selects from."""
        ...

    def integers(self, path: str, number_format: str) -> Sequence[Tensor]:
        """An integer or boolean output as correct implementations in a number format gave it; none where unknown."""
        ...

    def counted(self, path: str, shape: Sequence[int]) -> Tensor | None:
        """The leading positions of an output that decide; None: all of them."""
        ...

    def drawn(self, path: str) -> Draws | None:
        """An output that depends on random numbers, with other ones; None where it does not."""
        ...


class ExpectedOutputs:
    """The outputs of a module for some arguments, as evidence for the judge."""

    def __init__(
        self,
        module: nn.Module,
        arguments: Callable[[], Arguments],
        profile: str = "default",
        random_state: Tensor | None = None,
        tokens: Tensor | None = None,
    ) -> None:
        self._module = module
        self._arguments = arguments
        self._profile = PROFILES[profile]
        self._random_state = random_state
        self._tokens = tokens
        self._floors: dict[str, dict[str, NoiseFloor]] = {}
        self._integers: dict[str, dict[str, list[Tensor]]] = {}  # number format -> path -> one for each noisy run
        self._why_assumed = ""
        self._plain = False  # without oneDNN
        self._random_ops: tuple[str, ...] = ()  # known after the float64 run
        self._elapsed_s = 0.0  # of the run in float64

    def float64(self, path: str) -> Tensor | None:
        """The float64 values of an output, from the same arguments."""
        return self._exact[0].get(path)

    def selection(self, path: str) -> Selection | None:
        """What an integer output selects from, where an op such as topk gave it."""
        found = self._exact[1].get(path)
        return found.in_steps(spacing(self._profile.format)) if found and self._profile.format else found

    def counted(self, path: str, shape: Sequence[int]) -> Tensor | None:  # noqa: ARG002 - one batch, all outputs
        """The positions that are not padding, where the shape of the output shows them."""
        return counted_positions(self._tokens, shape)

    @property
    def notes(self) -> tuple[str, ...]:
        """Ops whose float64 value is the rounded one, since they have no float64 kernel."""
        return self._exact[3]

    def floor(self, path: str, number_format: str, values: Deviation) -> NoiseFloor:
        """The floor measured in runs of this module, or assumed from the format where they fail."""
        if number_format not in self._floors:
            self._floors[number_format] = self._measure(number_format)
        found = self._floors[number_format].get(path)
        return found or assumed_floor(values, number_format, self._why_assumed or "the module cannot be run again")

    def integers(self, path: str, number_format: str) -> Sequence[Tensor]:
        """The output in runs with noise: thresholds and roundings to integers differ between them."""
        if number_format not in self._integers:
            self._integers[number_format] = self._integer_runs(profile_for(self._profile, number_format))
        return self._integers[number_format].get(path, ())

    def drawn(self, path: str) -> Draws | None:
        """The output in runs with other seeds, where these change it."""
        outputs = tuple(run[path] for run in self._other_draws if path in run)
        differ = any(one.shape != outputs[0].shape or not torch.equal(one, outputs[0]) for one in outputs)
        return Draws(self._random_ops, outputs) if differ else None

    @cached_property
    def _other_draws(self) -> list[dict[str, Tensor]]:
        _ = self._exact  # the run that finds the ops that draw
        return [self._run(None, seed) for seed in range(1, 1 + _SAMPLES_OF_SMALL)] if self._random_ops else []

    @cached_property
    def _exact(self) -> tuple[dict[str, Tensor], dict[str, Selection], dict[str, Tensor], tuple[str, ...]]:
        mode = Float64Mode()
        started_s = monotonic()
        try:
            outputs = self._run(mode)
            self._elapsed_s = monotonic() - started_s
            if mode.needs_plain_kernels:
                self._plain, mode = True, Float64Mode()
                outputs = self._run(mode)
        except _RUN_FAILURES as error:
            self._why_assumed = f"the float64 run failed ({type(error).__name__})"
            return {}, {}, {}, (self._why_assumed,)
        self._random_ops = tuple(sorted(mode.random_ops))
        floats = {path: one for path, one in outputs.items() if one.is_floating_point() or one.is_complex()}
        wide = {path: mode.twin(one) for path, one in floats.items()}
        chosen = {path: mode.selection(one) for path, one in outputs.items() if path not in floats}
        notes = tuple(f"{op} has no float64 kernel: its result counts as exact" for op in sorted(mode.without_kernel))
        return wide, {path: one for path, one in chosen.items() if one is not None}, floats, notes

    def _measure(self, number_format: str) -> dict[str, NoiseFloor]:
        exact, _, native, _ = self._exact
        profile = profile_for(self._profile, number_format)
        own = {
            path: [self._deviation(exact[path], one, path, number_format)]
            for path, one in native.items()
            if not _is_narrower(profile, one)
        }
        found: dict[str, list[Deviation]] = {path: own.get(path, []) for path in native}
        for seed in range(self._samples(native.values())):
            try:
                outputs = self._run(profile, seed)
            except _RUN_FAILURES as error:
                self._why_assumed = f"a run with noise failed ({type(error).__name__})"
                continue
            for path, one in outputs.items():
                if path in exact and one.shape == exact[path].shape:
                    found[path].append(self._deviation(exact[path], one, path, number_format))
        return {path: floor_of(samples, number_format) for path, samples in found.items() if samples}

    def _integer_runs(self, profile: Profile) -> dict[str, list[Tensor]]:
        found: dict[str, list[Tensor]] = {}
        for seed in range(1 if self._elapsed_s > _SLOW_S else _SAMPLES_OF_SMALL):
            try:
                outputs = self._run(profile, seed)
            except _RUN_FAILURES:
                continue
            for path, one in outputs.items():
                if not (one.is_floating_point() or one.is_complex()):
                    found.setdefault(path, []).append(one)
        return found

    def _samples(self, outputs: Iterable[Tensor]) -> int:
        """How often to run with noise: more often for few elements, less often where a run takes long."""
        if self._elapsed_s > _SLOW_S:
            return 1
        return _SAMPLES_OF_SMALL if any(one.numel() <= _SMALL for one in outputs) else _SAMPLES

    def _deviation(self, exact: Tensor, actual: Tensor, path: str, number_format: str) -> Deviation:
        counted, limit = self.counted(path, actual.shape), half_range(actual.dtype)
        return deviation(exact, actual, counted, limit=limit, number_format=number_format)

    def _run(self, how: Float64Mode | Profile | None, seed: int = _SEED) -> dict[str, Tensor]:
        """Run in float64, with the noise of a profile, or as it is (None) with numbers drawn from another seed."""
        args, kwargs = self._arguments()
        if isinstance(how, Profile):
            varying = [one for _, one in named_tensors((args, dict(kwargs))) if one.is_floating_point()]
            mode: AbstractContextManager[object] = NoisyMode(how, seed, varying)
        else:
            mode = how or nullcontext()
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(_SEED if how else seed)
            if how and self._random_state is not None:
                torch.set_rng_state(self._random_state)
            narrow = how.format if isinstance(how, Profile) and seed % 2 else None  # a port may do either
            with (
                _unchanged_buffers(self._module),
                rounded_buffers(self._module, narrow),
                kernels(plain=self._plain),
                mode,
            ):
                return dict(named_tensors(self._module(*args, **kwargs)))


@contextmanager
def _unchanged_buffers(module: nn.Module) -> Iterator[None]:
    """Restore buffers that a run writes to, such as statistics: every run starts from the same state."""
    before = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in before:
                buffer.copy_(value)


def _is_narrower(profile: Profile, tensor: Tensor) -> bool:
    """Whether the profile computes in a coarser format than the tensor has: then eager's own error says nothing."""
    return profile.format is not None and spacing(profile.format) > spacing(float_format(tensor.dtype))
