"""A model configuration -> which of its sizes are varied, under which names, and at which values.

Fitting is only exact if the samples determine the formula. Three rules make sure of that:
- All sizes of a point are different primes, so a measured 1258 = 2 * 17 * 37 is a product of sizes in one way only.
- Sizes that depend on each other (the hidden size is heads times head width) are replaced by free coordinates behind
  them, since a prime hidden size could not be divided into heads.
- Values at which code usually branches (a batch of 1, one query head per key head) are edges. They get points of their
  own, so that the branch is seen and not fitted together with the other path.
Some points are held out of every fit, and only check it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count, product
from random import Random

from torchstone.formula.algebra.polynomial import CHOOSE, ONE, ZERO, Applied, Polynomial
from torchstone.formula.derive.coordinates import Coordinates, part_of, share_of
from torchstone.formula.derive.parameter_binding import BATCH, CACHE_LENGTH, DECODER_LENGTH, ENCODER_LENGTH, LENGTH

WINDOW = "sliding_window"
TIED = "tie_word_embeddings"  # the output layer has the weights of the embedding
NO_WINDOW = 2**31  # stands for a window that is not there: it is never full

_WIDTHS = ("hidden_size", "d_model", "n_embd")
_HEADS = ("num_attention_heads", "num_heads", "n_head")
_GROUPED_HEADS = "num_key_value_heads"
_HEAD_WIDTHS = ("head_dim", "d_kv")
_LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "num_decoder_layers")
_PLAIN = (
    "intermediate_size", "moe_intermediate_size", "d_ff", "vocab_size", "max_position_embeddings", "n_positions",
    "type_vocab_size", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "v_head_dim", "n_shared_experts",
    "relative_attention_num_buckets", "num_labels",
)  # fmt: skip
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
_CHOSEN = "num_experts_per_tok"
_ROTARY_PART = "qk_rope_head_dim"
_BEFORE = "window_before"  # tokens that one token sees before itself
_DENSE = "first_k_dense_replace"
_NEW_NAMES = {"num_attention_heads": "num_heads", _GROUPED_HEADS: "num_kv_heads"}
_ALIGNED = 8  # grouped matrix products take rows whose number of elements is a multiple of this
_LARGE = {"vocab_size": 1000, "max_position_embeddings": 600, "n_positions": 600}
_COUNTED = frozenset(
    {*_LAYERS, _CHOSEN, "first_k_dense_replace", "sparse_layers", "topk_group", "patches_per_side", "num_channels"}
)
_PROBED = frozenset({*_LAYERS, _CHOSEN})
_COUNTS = (2, 3, 5, 7)  # values of what must stay few
_LEVELS, _SMALLEST = 5, 11  # different values of a size, and where they begin
_RANDOM_RANGES = {
    **dict.fromkeys(_LAYERS, (1, 4)), **dict.fromkeys(_EXPERTS, (8, 40)), _CHOSEN: (2, 6), BATCH: (1, 6),
    _DENSE: (1, 3), "sparse_layers": (1, 3), "n_group": (4, 8), "topk_group": (2, 4), "experts_per_group": (4, 9),
    "vocab_size": (1000, 2000), "max_position_embeddings": (600, 700), "n_positions": (600, 700),
    "num_channels": (2, 4), "patches_per_side": (2, 6), "heads_per_kv_head": (1, 6), "patch_size": (3, 17),
    "relative_attention_num_buckets": (4, 40),  # T5 divides by a quarter of them
}  # fmt: skip
_HEAD_WIDTH_LIMIT = (128, 131)  # half of the widest head that attention kernels take with shared keys, and beyond
_WIDE_WINDOW = 997  # wider than any length at which formulas are fitted
_FITTED, _HELD_OUT = 5, 2
_EDGE_FITTED, _EDGE_HELD_OUT = 3, 1


@dataclass(frozen=True, slots=True)
class Point:
    """Values of all coordinates."""

    values: Mapping[str, int]
    held_out: bool
    guard: str = ""  # the condition that is added to the domain of a formula that is wrong at this point


@dataclass(slots=True)
class Plan:
    """How a configuration is set at chosen coordinates, and how its parameters are called."""

    attributes: dict[str, Polynomial] = field(default_factory=dict)  # of the configuration, in coordinates
    names: dict[str, str] = field(default_factory=dict)  # attribute -> parameter
    extra: dict[str, Polynomial] = field(default_factory=dict)  # coordinate -> its value in parameters
    bound: set[str] = field(default_factory=set)  # parameters that follow from coordinates
    edges: dict[str, tuple[int | str, ...]] = field(default_factory=lambda: {BATCH: (1,)})  # coordinate -> values that
    # are cases of their own; a name stands for the value of another coordinate
    free: list[str] = field(default_factory=list)
    two_lengths: bool = False  # encoder and decoder read sequences of their own
    decode: bool = False  # one new token, and a cache of those before it
    defaults: dict[str, int] = field(default_factory=dict)  # parameter -> its default value
    limits: dict[str, tuple[str, int, int]] = field(default_factory=dict)  # attribute -> coordinate, last, beyond

    @property
    def coordinates(self) -> Coordinates:
        """How the coordinates follow from the parameters."""
        return Coordinates(extra=self.extra, bound=frozenset(self.bound))

    def add(self, attribute: str, form: Polynomial | None = None) -> None:
        """Vary an attribute: by itself, or as a product of coordinates."""
        name = _NEW_NAMES.get(attribute, attribute)
        self.names[attribute] = name
        if form is None:
            self.free.append(name)
            form = Polynomial.unknown(name)
        else:
            self.bound.add(name)
            self.free.extend(one for one in sorted(form.unknowns) if one not in self.free)
        self.attributes[attribute] = form

    def settings(self, values: Mapping[str, int]) -> dict[str, int]:
        """The attributes of the configuration at a point."""
        return {name: int(form.value(values)) for name, form in self.attributes.items()}

    def parameters(self, values: Mapping[str, int]) -> dict[str, int]:
        """The same under the names of parameters."""
        named = {self.names[name]: size for name, size in self.settings(values).items() if name in self.names}
        lengths = {ENCODER_LENGTH: values[LENGTH]} if self.two_lengths else {}
        others = (DECODER_LENGTH, CACHE_LENGTH)
        return {**named, **lengths, **{name: values[name] for name in others if name in self._sequences}}

    @property
    def _sequences(self) -> tuple[str, ...]:
        """Batch and lengths."""
        if self.decode:
            return (BATCH, LENGTH, CACHE_LENGTH) if self.two_lengths else (BATCH, CACHE_LENGTH)
        return (BATCH, LENGTH, DECODER_LENGTH) if self.two_lengths else (BATCH, LENGTH)

    @property
    def length(self) -> str:
        """The length that attention grows with."""
        return CACHE_LENGTH if self.decode else LENGTH

    def points(self, first: int = 0) -> list[Point]:
        """Points for fitting and checking: all coordinates coprime, then each combination of edges.

        `first` is the number of the first point: other numbers give other values.
        """
        values = _Values([*self._sequences, *self.free])
        start = count(first)
        listed = [Point(values.at(next(start)), number >= _FITTED) for number in range(_FITTED + _HELD_OUT)]
        for case in _combinations(self.edges):
            for number in range(_EDGE_FITTED + _EDGE_HELD_OUT):
                listed.append(Point(_with_case(values.at(next(start)), case), number >= _EDGE_FITTED))
        return [*listed, *self._probes(values, next(start))]

    def random_points(self, numbers: Random, count: int) -> list[Point]:
        """Points anywhere in the range, for a check that no fit has seen."""
        free = [*self._sequences, *self.free]
        return [Point({name: _random_value(name, numbers) for name in free}, held_out=True) for _ in range(count)]

    def _probes(self, values: "_Values", number: int) -> list[Point]:
        """Points at which a formula may be wrong: the ends of the range of some coordinates.

        A wrong one does not refuse the formula but adds the guard of the point to its domain.
        """
        base = values.at(number)
        if _BEFORE not in self.free:
            return self._probes_at(base)
        around = (base[self.length] - 2, base[self.length] - 1, base[self.length], base[self.length] + 1, NO_WINDOW - 1)
        return [
            *(Point({**base, _BEFORE: before}, held_out=True) for before in around),
            *self._probes_at({**base, _BEFORE: _WIDE_WINDOW}),
            *self._probes_at(base),
        ]

    def _probes_at(self, base: Mapping[str, int]) -> list[Point]:
        probes = [
            Point({**base, name: 1}, held_out=True, guard=f"{name} > 1")
            for name in (self.length, *(name for name in self.free if name in _PROBED))
        ]
        for name, (coordinate, at_limit, beyond) in self.limits.items():
            inside = Point({**base, coordinate: at_limit}, held_out=True)
            outside = {**base, coordinate: beyond}
            limit = int(self.attributes[name].value(inside.values))
            probes += [inside, Point(outside, held_out=True, guard=f"{name} <= {limit}")]
        return probes


def _combinations(edges: Mapping[str, tuple[int | str, ...]]) -> list[dict[str, int | str]]:
    """Every choice of cases for some of the coordinates."""
    chosen = product(*((None, *cases) for cases in edges.values()))
    cases = [{name: case for name, case in zip(edges, ones, strict=True) if case is not None} for ones in chosen]
    return [case for case in cases if case]


def _with_case(values: Mapping[str, int], case: Mapping[str, int | str]) -> dict[str, int]:
    chosen = {name: values[value] if isinstance(value, str) else value for name, value in case.items()}
    if chosen.get(_BEFORE) == _WIDE_WINDOW:  # a different one at each point: a constant would be fitted as a number
        chosen[_BEFORE] = nth_prime(sum(values.values()) % 11, smallest=_WIDE_WINDOW)
    return {**values, **chosen}


def _random_value(name: str, numbers: Random) -> int:
    smallest, largest = _RANDOM_RANGES.get(name, (2, 40))
    return numbers.randint(smallest, largest)


class _Values:
    """Values of coordinates: different primes for different coordinates, so that no two share a factor."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = list(names)
        self._counts = [name for name in self._names if name in _COUNTED]
        sizes = [name for name in self._names if name not in _COUNTED]
        self._sizes = sorted(
            sizes, key=lambda name: "head" not in name and name not in ("patch_size", _BEFORE)
        )  # these must stay small

    def at(self, number: int) -> dict[str, int]:
        """The coordinates of one point."""
        values = {}
        for place, name in enumerate(self._sizes):
            # Each coordinate has its own _LEVELS primes. From one round of levels to the next they shift by different
            # steps, so that no two coordinates rise and fall together: these could not be separated by a fit.
            level = (number + number // _LEVELS * (place + 1)) % _LEVELS
            values[name] = nth_prime(place * _LEVELS + level, smallest=_LARGE.get(name, _SMALLEST))
        for place, name in enumerate(self._counts):
            values[name] = _COUNTS[(number + place) % len(_COUNTS)]
        return {name: values[name] for name in self._names}


def scattered(place: int, number: int, levels: int) -> int:
    """The level of one size at one point: each size takes all levels in an order of its own.

    Two sizes that rose together could not be separated by a fit.
    """
    order = list(range(levels))
    Random(1 + place * 1000 + number // levels).shuffle(order)  # noqa: S311 - not for secrets
    return order[number % levels]


def nth_prime(number: int, *, smallest: int) -> int:
    """The primes from a number on, counted from 0."""
    for candidate in count(smallest):
        if all(candidate % divisor for divisor in range(2, int(candidate**0.5) + 1)):
            if number == 0:
                return candidate
            number -= 1
    raise AssertionError


def parameters_of(config: object) -> dict[str, int]:
    """The parameters of a configuration as it is."""
    plan = plan_for(config)
    found = {name: getattr(config, attribute, None) for attribute, name in plan.names.items()}
    if isinstance(found.get("num_heads"), int) and found.get("head_dim", 1) is None:
        found["head_dim"] = getattr(config, "hidden_size", 0) // int(found["num_heads"] or 1)
    if getattr(config, WINDOW, 0) is None:
        found[WINDOW] = NO_WINDOW
    found[TIED] = getattr(config, TIED, None)
    return {name: int(value) for name, value in found.items() if isinstance(value, int)}


def plan_for(config: object, *, decode: bool = False) -> Plan:
    """Plan the sizes of a configuration that are known by name, and how they depend on each other."""
    plan = Plan(two_lengths=bool(getattr(config, "is_encoder_decoder", False)), decode=decode)
    aligned = next((name for name in _EXPERTS if _has(config, name)), None) is not None
    width = next((name for name in _WIDTHS if _has(config, name)), None)
    _add_heads(plan, config, width, aligned=aligned)
    for name in _PLAIN:
        if _has(config, name):
            _add_size(plan, name, by=_ALIGNED if aligned and "intermediate" in name else 1)
    if _has(config, _ROTARY_PART) and "qk_nope_head_dim" in plan.attributes:
        _add_size(plan, _ROTARY_PART, by=2)
        rotary = plan.attributes[_ROTARY_PART]
        plan.attributes["head_dim"] = rotary
        plan.attributes["qk_head_dim"] = rotary + plan.attributes["qk_nope_head_dim"]
    _add_layers(plan, config)
    if aligned:
        _add_experts(plan, config)
    if _has(config, "image_size") and _has(config, "patch_size"):
        _add_picture(plan)
    if _has(config, WINDOW):
        _add_window(plan, getattr(config, WINDOW))
    return plan


def _has(config: object, name: str) -> bool:
    return isinstance(getattr(config, name, None), int)


def _add_size(plan: Plan, name: str, *, by: int) -> None:
    """A size that must be a multiple of a number."""
    if by == 1:
        plan.add(name)
        return
    part = f"{name}_part"
    plan.add(name, Polynomial.product(by, {part: 1}))
    plan.extra[part] = share_of(name, by)


def _add_heads(plan: Plan, config: object, width: str | None, *, aligned: bool) -> None:
    heads = next((name for name in _HEADS if _has(config, name)), None)
    if width is None or heads is None:
        return
    latent = _has(config, "kv_lora_rank")
    grouped = _has(config, _GROUPED_HEADS) and not latent
    head = None if latent else "head_dim" if grouped else next((one for one in _HEAD_WIDTHS if _has(config, one)), None)
    name = _NEW_NAMES.get(heads, heads)
    if head is None and not latent:
        plan.add(heads)
        plan.add(width, Polynomial.product(1, {name: 1, "head_width": 1}))
        plan.extra["head_width"] = part_of(width, name)
        return
    _add_size(plan, width, by=_ALIGNED if aligned else 1)
    if grouped:
        plan.add(heads, Polynomial.product(1, {"num_kv_heads": 1, "heads_per_kv_head": 1}))
        plan.add(_GROUPED_HEADS)
        plan.extra["heads_per_kv_head"] = part_of(name, "num_kv_heads")
        plan.edges["heads_per_kv_head"] = (1,)
    else:
        plan.add(heads)
        if latent:
            plan.attributes[_GROUPED_HEADS] = plan.attributes[heads]
    if head is not None:
        _add_size(plan, head, by=2 if head == "head_dim" else 1)
    if head == "head_dim":
        plan.limits[head] = (f"{head}_part", *_HEAD_WIDTH_LIMIT)


def _add_experts(plan: Plan, config: object) -> None:
    experts = next((name for name in _EXPERTS if name in vars(config)), None) or next(
        name for name in _EXPERTS if _has(config, name)
    )
    plan.add(_CHOSEN)
    if _has(config, "n_group"):
        plan.add("n_group")
        plan.add("topk_group")
        plan.add(experts, Polynomial.product(1, {"n_group": 1, "experts_per_group": 1}))
        plan.extra["experts_per_group"] = part_of(experts, "n_group")
    else:
        plan.add(experts)


def _add_layers(plan: Plan, config: object) -> None:
    for name in _LAYERS:
        if not _has(config, name):
            continue
        if _has(config, _DENSE):
            plan.add(_DENSE)
            plan.add(name, Polynomial.unknown(_DENSE) + Polynomial.unknown("sparse_layers"))
            plan.extra["sparse_layers"] = Polynomial.unknown(name) - Polynomial.unknown(_DENSE)
        else:
            plan.add(name)


def _add_picture(plan: Plan) -> None:
    plan.add("num_channels")
    plan.add("patch_size")
    plan.add("image_size", Polynomial.product(1, {"patch_size": 1, "patches_per_side": 1}))
    plan.extra["patches_per_side"] = part_of("image_size", "patch_size")


def _add_window(plan: Plan, default: int) -> None:
    """A window over the last tokens: attention branches once it is full, and once a token has left it."""
    plan.add(WINDOW, Polynomial.unknown(_BEFORE) + ONE)
    plan.extra[_BEFORE] = Polynomial.unknown(WINDOW) - ONE
    plan.defaults[WINDOW] = default
    seen = Polynomial.unknown(plan.length) + (ONE if plan.decode else ZERO)
    plan.extra["window_is_full"] = _reaches(seen, Polynomial.unknown(WINDOW))
    plan.edges[_BEFORE] = (_WIDE_WINDOW,)
    if plan.decode:
        plan.extra["window_was_full"] = _reaches(Polynomial.unknown(plan.length), Polynomial.unknown(WINDOW))
        plan.edges[_BEFORE] = (_WIDE_WINDOW, plan.length)


def _reaches(left: Polynomial, right: Polynomial) -> Polynomial:
    """1 where left is at least right, else 0."""
    return Polynomial.unknown(Applied(CHOOSE, (left, right, ZERO, ONE)))
