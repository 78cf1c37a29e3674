"""A module that a function of sizes builds: which sizes it takes, and where it is measured.

Three things are found by trying: which sizes must be multiples of others (a hidden size of its heads), where the code
path changes (`boundaries`), and at which points every code path is seen often enough to fit its formula.
"""

import ast
import inspect
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from math import prod
from random import Random
from time import process_time

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from torchstone.errors import ModelError
from torchstone.foreign import foreign_code
from torchstone.formula.algebra.polynomial import Polynomial
from torchstone.formula.derive.boundaries import Boundaries, find_boundaries
from torchstone.formula.derive.coordinates import Coordinates
from torchstone.formula.derive.database_entries import unequal_text
from torchstone.formula.derive.observe import Sample
from torchstone.formula.derive.op_forms import RefusedError
from torchstone.formula.derive.parameter_binding import BATCH, LENGTH
from torchstone.formula.derive.samples import Bench, Make
from torchstone.formula.derive.sampling_plans import nth_prime, scattered

_GENERIC, _PER_PATH = 10, 7  # points of the first code path, and of each other one
_OF_ONE = 4  # points with a batch of 1: all but the last are fitted
_MOST_EQUAL = 2  # points of one code path with the same value of a size that is compared
_TRIES = 1500  # points that are drawn to reach every code path
_PRIME_LEVELS = 8
_SMALLEST = 11
_SYMBOLIC_POINTS = 4
_LARGEST_FITTED = 96
_NEAR_SHARE = 0.45  # of the drawn sizes that are compared with a constant: near it, or a multiple of it
_ORDINARY = (
    1, 2, 3, 4, 6, 8, 12, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 96, 100, 127, 128, 129, 192, 255, 256, 257, 384, 512,
    1000, 1024,
)  # fmt: skip
_LONG = (2048, 4096)
_LARGEST_CONSTANT = 8192
_HIDDEN_S = 8.0  # processor time for the hidden points of one module; at least _FEWEST_HIDDEN are measured
_FEWEST_HIDDEN = 32
_MOST_HIDDEN = 120
_RANDOM_HIDDEN = 24
_COUNTED = ("layer", "depth", "block", "stage", "repeat", "expert", "num_steps")
_FEW = (2, 3, 5, 4, 7, 6)
_FEW_HIDDEN = (1, 2, 3, 4, 6, 8, 12)
_MOST_BYTES = 2 << 30  # of weights and inputs: they are allocated, although nothing is computed
_SURELY_SMALL = 1 << 24  # the product of all sizes, up to which nobody asks
_FILLING = frozenset({"uniform_", "normal_", "trunc_normal_", "kaiming_uniform_", "xavier_uniform_", "erfinv_"})
_MULTIPLES = (2, 4, 8, 16, 32, 64, 128)

Sizes = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Multiple:
    """A size that must be a multiple of a number, and of another size where one is named."""

    size: str
    of: str = ""
    number: int = 1

    @property
    def part(self) -> str:
        """The coordinate behind the size."""
        return f"{self.size}_part"

    def value(self, values: Sizes) -> int:
        """The size where its coordinate has the value that is drawn for it."""
        return values[self.size] * self.number * (values[self.of] if self.of else 1)

    @property
    def form(self) -> Polynomial:
        """The coordinate in sizes."""
        powers = {self.size: 1, self.of: -1} if self.of else {self.size: 1}
        return Polynomial.product(1, powers) * Polynomial.constant(self.number) ** -1


@dataclass(slots=True, kw_only=True)
class Subject:
    """A recipe with its sizes, and what is known about them."""

    make: Make
    sizes: tuple[str, ...]
    bench: Bench
    multiples: tuple[Multiple, ...] = ()
    boundaries: Boundaries = field(default_factory=Boundaries)
    tested: dict[str, tuple[int, int]] = field(default_factory=dict)  # size -> smallest and largest that was measured
    problem: str = ""  # of the last point that could not be measured
    error: ModelError | None = None  # of the recipe itself, at the last point

    @property
    def coordinates(self) -> Coordinates:
        """The coordinates in which formulas are fitted."""
        parts = {one.part: one.form for one in self.multiples}
        return Coordinates(
            extra={**parts, **self.boundaries.coordinates},
            bound=frozenset(one.size for one in self.multiples),
            excluded={unequal_text(edge): edge for edge in self.boundaries.edges},
        )

    def placed(self, values: Sizes) -> dict[str, int]:
        """Sizes that keep to the multiples, from freely drawn ones."""
        placed = dict(values)
        for one in self.multiples:
            placed[one.size] = one.value({**values, **({one.of: placed[one.of]} if one.of else {})})
        return placed

    def nearest(self, values: Sizes) -> dict[str, int]:
        """The sizes themselves, raised to the next multiple where they have to be one."""
        placed = dict(values)
        for one in self.multiples:
            step = one.number * (placed[one.of] if one.of else 1)
            placed[one.size] = -(-placed[one.size] // step) * step
        return placed

    def measure(self, sizes: Sizes, *, held_out: bool, guard: str = "") -> Sample | None:
        """One capture; None where the module cannot be built or run at these sizes, with the problem kept."""
        needed = self._bytes_at(sizes)
        if needed > _MOST_BYTES:
            self.error, self.problem = None, f"its weights and inputs need {needed >> 30} GiB at {dict(sizes)}"
            return None
        try:
            with warnings.catch_warnings(), _WithoutInitialization():
                warnings.simplefilter("ignore")  # about sizes that are chosen here, not by the user
                module, inputs = self.make(dict(sizes))
            trace, table = self.bench.measure(module.eval(), inputs)
        except ModelError as error:
            self.error, self.problem = error, str(error)
            return None
        self.error = None
        if trace.failure is not None:
            where = trace.failure.module or "the root"
            self.problem = f"{trace.provenance.model} cannot be run: {trace.failure.error} (in {where})"
            return None
        for name, size in sizes.items():
            low, high = self.tested.get(name, (size, size))
            self.tested[name] = (min(low, size), max(high, size))
        known = {name: size for name, size in sizes.items() if name not in (BATCH, LENGTH)}
        return Sample(
            trace=trace,
            table=table,
            lifetimes=self.bench.lifetimes(trace),
            known=known,
            root=dict(sizes),
            held_out=held_out,
            guard=guard,
        )

    def _bytes_at(self, sizes: Sizes) -> int:
        """What weights and inputs take at these sizes, from a build without memory; 0 where there is no such build."""
        if prod(sizes.values()) < _SURELY_SMALL:
            return 0
        without_memory = FakeTensorMode(allow_non_fake_inputs=True)
        # the user's code raises anything; the build that counts will say it
        with foreign_code() as ran, warnings.catch_warnings(), without_memory, _WithoutInitialization():
            warnings.simplefilter("ignore")
            module, inputs = self.make(dict(sizes))
        if ran.error is not None:
            return 0
        held = [*module.parameters(), *module.buffers(), *tree_leaves(inputs)]
        return sum(one.numel() * one.element_size() for one in held if isinstance(one, torch.Tensor))


class _WithoutInitialization(TorchFunctionMode):
    """Leaves weights as they are allocated: the cost of a module does not depend on their values."""

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Skip the functions that fill a tensor with random numbers."""
        del types
        if getattr(func, "__name__", "") in _FILLING and args:
            return args[0]
        return func(*args, **(kwargs or {}))


def prepare(make: Make, sizes: Sequence[str], bench: Bench) -> Subject:
    """Find the multiples and boundaries of a recipe; raises RefusedError where nothing builds it."""
    subject = Subject(make=make, sizes=tuple(sizes), bench=bench)
    _find_multiples(subject)
    points = [subject.placed(_primes(subject, number)) for number in range(_SYMBOLIC_POINTS)]
    distinct = [point for point in points if len(set(point.values())) == len(point)]
    if distinct:
        subject.boundaries = find_boundaries(subject.make, distinct, subject.placed)
    return subject


def _primes(subject: Subject, number: int) -> dict[str, int]:
    """Different primes for different sizes, so that a size is recognized by its value; few layers.

    The smallest are for sizes that are multiplied: 149 heads of 79 would need gigabytes of weights.
    """
    multiplied = {name: None for one in subject.multiples if one.of for name in (one.of, one.size)}
    values = dict.fromkeys(subject.sizes, 0)
    for place, name in enumerate(dict.fromkeys((*multiplied, *subject.sizes))):
        level = scattered(place, number, _PRIME_LEVELS)
        few = _FEW[level % len(_FEW)]
        values[name] = few if _is_count(name) else nth_prime(place * _PRIME_LEVELS + level, smallest=_SMALLEST)
    return values


def _even_and_odd(subject: Subject, number: int) -> dict[str, int]:
    """Primes, half of them raised by 1: at odd sizes alone, a rounded half is the same as a fraction."""
    values = _primes(subject, number)
    return {
        name: value + (0 if _is_count(name) else scattered(place + len(values), number, 2))
        for place, (name, value) in enumerate(values.items())
    }


def _is_count(name: str) -> bool:
    """Whether a size counts modules, by its name: each one takes time to build."""
    return any(word in name.lower() for word in _COUNTED)


def _find_multiples(subject: Subject) -> None:
    """The fewest multiples with which the module can be built and run at generic sizes."""
    problem = ""
    first: ModelError | None = None
    for multiples in _candidates(subject.sizes):
        subject.multiples = multiples
        points = (subject.placed(_primes(subject, number)) for number in (0, 3))
        if all(subject.measure(point, held_out=False) is not None for point in points):
            return
        problem, first = problem or subject.problem, first or subject.error
    if first is not None:
        raise first
    raise RefusedError(problem)


def _candidates(names: Sequence[str]) -> Iterator[tuple[Multiple, ...]]:
    yield ()
    others = [name for name in names if name not in (BATCH, LENGTH)]
    single = [Multiple(name, "", number) for number in _MULTIPLES for name in (*others, LENGTH) if name in names]
    pairs = [Multiple(size, of, number) for number in (1, 2, 4, 8) for size, of in permutations(others, 2)]
    ordered = sorted((*pairs, *single), key=lambda one: (one.number, not one.of))
    yield from ((one,) for one in ordered)
    for first in pairs:
        for second in ordered:
            if first.size not in (second.size, second.of) and second.number <= _MULTIPLES[0]:
                yield (second, first) if first.of == second.size else (first, second)


# --- Points to fit, on every code path ---


def training_points(subject: Subject, constants: Iterable[int], seed: int) -> list[tuple[dict[str, int], bool, str]]:
    """Sizes with whether they are held out and the condition they probe: generic ones, and each code path often enough.

    A code path is a combination of the boundaries' conditions; it is reached by drawing points near the constants.
    """
    random = Random(seed)  # noqa: S311 - not for secrets
    near = sorted({value for one in constants for value in (one - 1, one, one + 1, 2 * one) if 1 < value <= _LONG[0]})
    compared = {name for form in subject.boundaries.conditions for name in form.unknowns}
    kept: dict[tuple[int, ...], list[dict[str, int]]] = {}
    for number in range(_GENERIC):
        _keep(subject, kept, subject.placed(_even_and_odd(subject, number)))
    for number in range(_TRIES if subject.boundaries.conditions else 0):
        values = {name: _drawn(random, name, near if name in compared else ()) for name in subject.sizes}
        _keep(subject, kept, subject.placed(values), compared if number < _TRIES // 2 else ())
    points = []
    for cell in kept.values():
        for number, sizes in enumerate(cell):
            points.append((sizes, number % 3 == 2, ""))  # noqa: PLR2004 - every third point checks the fit
        if len(kept) > 1 and BATCH in subject.sizes:  # a batch of 1 on every code path
            of_one = enumerate(cell[::2][:_OF_ONE])
            points.extend(({**sizes, BATCH: 1}, number == _OF_ONE - 1, "") for number, sizes in of_one)
    return [*points, *_edges(subject)]


def _drawn(random: Random, name: str, near: Sequence[int]) -> int:
    kind = random.random()
    if _is_count(name):
        return random.choice(_FEW)
    if near and kind < _NEAR_SHARE:
        return random.choice(near) * (random.randint(1, 5) if kind < _NEAR_SHARE / 3 else 1)
    return random.randint(2, _LARGEST_FITTED)


def _keep(
    subject: Subject,
    kept: dict[tuple[int, ...], list[dict[str, int]]],
    sizes: dict[str, int],
    varied: Collection[str] = (),
) -> None:
    """Add a point to those of its code path, unless `varied` sizes would have one value too often to be fitted."""
    cell = tuple(int(form.value(sizes)) for form in subject.boundaries.conditions)
    points = kept.setdefault(cell, [])
    if any(sum(one[name] == sizes[name] for one in points) >= _MOST_EQUAL for name in varied):
        return
    if len(points) < (_PER_PATH if len(kept) > 1 else _GENERIC) and sizes not in points and min(sizes.values()) > 1:
        points.append(sizes)


def _edges(subject: Subject) -> Iterator[tuple[dict[str, int], bool, str]]:
    """A batch of 1 is a code path of its own; for other sizes, 1 may be outside the domain."""
    for number in range(_OF_ONE):
        base = _primes(subject, number + 11)
        if BATCH in subject.sizes:
            yield subject.placed({**base, BATCH: 1}), number == _OF_ONE - 1, ""
        if number == 0:
            for name in subject.sizes:
                if name != BATCH and not any(one.size == name for one in subject.multiples):
                    yield subject.placed({**base, name: 1}), True, f"{name} > 1"


# --- Hidden points: drawn after the formula is fixed ---


def hidden_points(subject: Subject, constants: Iterable[int], random: Random) -> Iterator[dict[str, int]]:
    """Ordinary sizes that no fit has seen: even, odd, powers of two, 1, and both sides of every constant.

    One size at a time first, the others ordinary; then all at random. The caller stops when its time is over.
    """
    near = {value for one in constants for value in (one - 1, one, one + 1) if 0 < value <= _LARGEST_CONSTANT}
    listed: list[tuple[str, int]] = []
    for name in subject.sizes:
        values = _FEW_HIDDEN if _is_count(name) else {*near, *_ORDINARY, *(_LONG if name == LENGTH else ())}
        listed.extend((name, value) for value in values)
    random.shuffle(listed)
    listed.sort(key=lambda pair: pair[1] not in near)  # stable: the constants first, each group in random order
    singles = [{**_ordinary(subject, random), name: value} for name, value in listed]
    together = [
        {name: random.choice(_FEW_HIDDEN) if _is_count(name) else random.randint(1, 200) for name in subject.sizes}
        for _ in range(_RANDOM_HIDDEN)
    ]
    for first, second in zip(singles, [*together, *([None] * len(singles))], strict=False):
        yield subject.nearest(first)
        if second is not None:
            yield subject.nearest(second)


def _ordinary(subject: Subject, random: Random) -> dict[str, int]:
    drawn = {name: random.choice((2, 3, 4, 5, 8, 9, 16, 24, 40, 48)) for name in subject.sizes}
    return {name: random.choice(_FEW[:3]) if _is_count(name) else value for name, value in drawn.items()}


def measured_hidden(subject: Subject, constants: Iterable[int], seed: int) -> Iterator[Sample]:
    """Captures at hidden points, until the time for them is over."""
    random = Random(seed)  # noqa: S311 - not for secrets
    start = process_time()  # a busy machine must not lower the number of points
    for number, sizes in enumerate(hidden_points(subject, constants, random)):
        if number >= _MOST_HIDDEN or (number >= _FEWEST_HIDDEN and process_time() - start > _HIDDEN_S):
            return
        sample = subject.measure(sizes, held_out=True)
        if sample is not None:
            yield sample


def constants_of(module: nn.Module) -> frozenset[int]:
    """The whole numbers in the source of a module's classes and in their attributes: code may branch around each."""
    found: set[int] = set()
    for kind in {type(one) for one in module.modules()}:
        if not kind.__module__.startswith("torch.nn."):
            found.update(_literals(kind))
    for one in module.modules():
        if not type(one).__module__.startswith("torch.nn."):
            found.update(
                value for value in vars(one).values() if isinstance(value, int) and not isinstance(value, bool)
            )
    return frozenset(value for value in found if 1 < value <= _LARGEST_CONSTANT)


def _literals(kind: type) -> Iterator[int]:
    try:
        tree = ast.parse(inspect.cleandoc("\n" + inspect.getsource(kind)))
    except (OSError, TypeError, SyntaxError, IndentationError):  # made in a shell, or nested in a function
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and type(node.value) is int:
            yield abs(node.value)
