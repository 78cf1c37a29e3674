"""Which golden tensor a tensor with another name is: by its values, by the pattern of names, by its order.

A tensor with the right values is recognised by them. A wrong one is not, or not for certain, yet it is the one that
matters: the tensors that were recognised show its place, by the pattern of their names first, then by their order.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from torchstone.record.reference import GoldenTensor, MatchedBy, Role
from torchstone.reference.fused import Refit
from torchstone.reference.golden_files import Golden
from torchstone.reference.layouts import (
    LARGEST,
    Numbers,
    Sample,
    closest_layout,
    largest_values,
    possible_layouts,
    sample_of,
)
from torchstone.units import many

_RESULTS = (Role.OUTPUT, Role.MODULE_OUTPUT)
FITS = 0.3  # the largest distance at which values say which tensor it is
_ALONE = 3.0  # how much further away any other golden tensor must be
_SAME = 1e-6  # distances that differ by less are equal
_SHOWN = 3
_SEARCHED = 6  # golden tensors whose layouts are searched for one tensor, at least
_MAX_PAIRS = 4_000_000  # beyond that, values are not compared to find names
_MAX_PLACED = 4_000  # pairs whose distance is computed to place wrong tensors by order
_FEWEST_WORDS = 2  # of a name, that must be the same at its end
_IN_ORDER = 0.8  # the share of recognised tensors that must be in golden order before the order says anything
_FEWEST_ANCHORS = 3  # fewer do not show an order


# --- What is matched so far ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A tensor of a port that stands for a golden one."""

    port: str  # the name, or the names of parts that were merged
    by: MatchedBy
    tensor: Tensor
    words: tuple[str, ...] = ()  # how it was split or merged


@dataclass(slots=True)
class Matching:
    """The result: golden name -> match, and the reason for each tensor that stands for none."""

    golden: Golden
    port: Mapping[str, Tensor]
    found: dict[str, Match] = field(default_factory=dict)
    unmatched: dict[str, str] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    def add(self, golden: str, port: str, by: MatchedBy) -> None:
        """One tensor of the port for one golden tensor."""
        self.found[golden] = Match(port=port, by=by, tensor=self.port[port])
        self.used.add(port)

    def add_refit(self, names: Sequence[str], refit: Refit, by: MatchedBy) -> None:
        """Tensors that were split or merged."""
        for golden, tensor in refit.tensors.items():
            self.found[golden] = Match(port=", ".join(names), by=by, tensor=tensor, words=refit.words)
        self.used.update(names)

    def remove(self, golden: str) -> None:
        """Take back a match of one tensor."""
        self.used.discard(self.found.pop(golden).port)

    def left(self) -> list[str]:
        """Tensors of the port that stand for nothing yet, in order."""
        return [name for name in self.port if name not in self.used]

    def wanted(self, roles: Iterable[Role] = _RESULTS) -> list[GoldenTensor]:
        """Golden tensors with values that nothing stands for yet, in order of execution."""
        return [
            one
            for one in self.golden.data.tensors
            if one.role in roles and one.name not in self.found and one.name in self.golden.tensors
        ]


def match_unnamed(matching: Matching) -> None:
    """Match the tensors that no name matched."""
    scores = _Scores(matching)
    _by_value(matching, scores)
    _by_pattern(matching)
    _by_ending(matching)
    _equal_values(matching, scores)
    _by_order(matching, scores)
    _explain_rest(matching, scores)


# --- Distances ---


@dataclass(frozen=True, slots=True)
class _Known:
    """A golden tensor with what recognises its values."""

    about: GoldenTensor
    tensor: Tensor
    sample: Sample
    largest: Numbers


class _Scores:
    """Distances between tensors of the port and golden ones: those that may be small, and others when asked for."""

    def __init__(self, matching: Matching) -> None:
        self._known = {
            one.name: _Known(one, tensor, sample_of(tensor), largest_values(tensor))
            for one in matching.wanted()
            if (tensor := matching.golden.tensors[one.name]).numel()
        }
        self._port = matching.port
        self._found: dict[tuple[str, str], float] = {}
        ports = matching.left()
        self.too_many = len(ports) if len(ports) * len(self._known) > _MAX_PAIRS else 0
        largest = _rows([one.largest for one in self._known.values()])
        for port in () if self.too_many else ports:
            for name in self._nearest(self._port[port], largest):
                self.between(port, name)

    def _nearest(self, tensor: Tensor, largest: Numbers) -> list[str]:
        """Golden tensors that may fit and whose largest values are nearest, with all that are as near.

        So most pairs are ruled out without a search for layouts.
        """
        fit = np.array([may_fit(one.about, tensor) for one in self._known.values()], dtype=bool)
        names = [name for name, may in zip(self._known, fit, strict=True) if may]
        if len(names) <= _SEARCHED:
            return names
        own = _rows([largest_values(tensor)])
        length = np.linalg.norm(largest[fit], axis=1)
        apart = np.linalg.norm(largest[fit] - own, axis=1) / np.where(length > 0, length, 1.0)
        limit = max(float(np.sort(apart)[_SEARCHED - 1]), _ALONE * float(apart.min()))
        return [name for name, value in zip(names, apart, strict=True) if value <= limit]

    def between(self, port: str, golden: str) -> float:
        """The distance of a pair: infinite where no layout gives the golden shape."""
        if (port, golden) not in self._found:
            one = self._known.get(golden)
            found = None if one is None else closest_layout(one.tensor, self._port[port], one.sample)
            self._found[port, golden] = float("inf") if found is None else found.score
        return self._found[port, golden]

    def fitting(self, ports: Iterable[str], golden: Iterable[str]) -> dict[str, dict[str, float]]:
        """Port -> golden name -> distance, for pairs whose values belong together."""
        wanted = set(golden)
        fits: dict[str, dict[str, float]] = {port: {} for port in ports}
        for (port, name), score in self._found.items():
            if port in fits and name in wanted and score <= FITS:
                fits[port][name] = score
        return fits


def _rows(values: Sequence[Numbers]) -> Numbers:
    """One row for each, filled with zeros: a smaller tensor has fewer values."""
    rows = np.zeros((len(values), LARGEST))
    for row, one in zip(rows, values, strict=True):
        row[: len(one)] = one
    return rows


def may_fit(one: GoldenTensor, tensor: Tensor) -> bool:
    """Whether some layout gives the golden shape."""
    shape = tuple(tensor.shape)
    return bool(tensor.numel()) and (one.shape == shape or bool(possible_layouts(one.shape, shape)))


# --- Values ---


def _by_value(matching: Matching, scores: _Scores) -> None:
    """Pairs that fit each other far better than anything else does; each pair that is found may decide others."""
    while True:
        fits = scores.fitting(matching.left(), (one.name for one in matching.wanted()))
        back: dict[str, dict[str, float]] = {}
        for port, some in fits.items():
            for name, score in some.items():
                back.setdefault(name, {})[port] = score
        clear = {port: _clear(some) for port, some in fits.items()}
        pairs = [(port, one) for port, one in clear.items() if one is not None and _clear(back[one]) == port]
        if not pairs:
            return
        for port, chosen in pairs:
            matching.add(chosen, port, MatchedBy.VALUE)


def _clear(scores: Mapping[str, float]) -> str | None:
    """The name with a far smaller distance than all others; None where there is none."""
    ranked = sorted(scores, key=scores.__getitem__)
    if not ranked or (len(ranked) > 1 and scores[ranked[1]] <= _ALONE * scores[ranked[0]] + _SAME):
        return None
    return ranked[0]


def _equal_values(matching: Matching, scores: _Scores) -> None:
    """Golden tensors with the same bits: whichever a tensor stands for, the verdict is the same.

    Outputs of the model come first, because they are required; the rest in order.
    """
    fits = scores.fitting(matching.left(), (one.name for one in matching.wanted()))
    for port, some in fits.items():
        near = [name for name, score in some.items() if score <= _ALONE * min(some.values()) + _SAME]
        free = [one for one in matching.wanted() if one.name in near]
        if not free or not all(_same_bits(matching.golden, free[0].name, one) for one in near):
            continue
        rivals = [other for other in fits if other != port and set(fits[other]) & set(near)]
        if any(not torch.equal(matching.port[port], matching.port[other]) for other in rivals):
            continue
        waiting = 1 + sum(other not in matching.used for other in rivals)
        outputs = [one for one in free if one.role is Role.OUTPUT]
        chosen = outputs[0] if outputs and waiting <= len(outputs) else free[0]
        matching.add(chosen.name, port, MatchedBy.VALUE if len(near) == 1 else MatchedBy.ORDER)


def _same_bits(golden: Golden, left: str, right: str) -> bool:
    one, other = golden.tensors[left], golden.tensors[right]
    return one.numel() == other.numel() and torch.equal(one.reshape(-1), other.reshape(-1))


# --- Patterns of names: tt_layer_0 is encoder.layer.0, tt_layer_1 is encoder.layer.1, ... ---


_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class _Rule:
    """How names of the port become golden names: text with gaps, each filled by a number of the port's name."""

    golden: str
    gaps: tuple[tuple[int | None, int], ...]  # the place of a number in the port's name (None: none), and the offset

    def name_of(self, numbers: Sequence[int]) -> str:
        values = iter(offset + (0 if place is None else numbers[place]) for place, offset in self.gaps)
        return re.sub("#", lambda _: str(next(values)), self.golden)


def _by_pattern(matching: Matching) -> None:
    """Tensors whose names follow the pattern of at least two that were recognised by their values.

    The pattern has priority over values that contradict it: without its residual a block returns what the last module
    in it returns, and would be taken for that one.
    """
    examples: dict[str, list[tuple[str, str]]] = {}
    for golden, match in matching.found.items():
        if match.by is MatchedBy.VALUE and match.port in matching.port:
            examples.setdefault(_NUMBER.sub("#", match.port), []).append((match.port, golden))
    about = {one.name: one for one in matching.golden.data.tensors}
    for text, pairs in examples.items():
        rule, own = _rule(pairs), dict(pairs)
        if rule is None:
            continue
        for port in [name for name in matching.port if _NUMBER.sub("#", name) == text]:
            meant = about.get(rule.name_of(_numbers(port)))
            if meant is None or meant.name in matching.found or not may_fit(meant, matching.port[port]):
                continue
            if port in own:
                matching.remove(own[port])
            elif port in matching.used:
                continue
            matching.add(meant.name, port, MatchedBy.PATTERN)


def _by_ending(matching: Matching) -> None:
    """Tensors whose names and golden ones end alike: `layer.0.attention` for `bert.encoder.layer.0.attention`.

    After values: it only places what they do not, and one word is not enough.
    """
    golden = {one.name: _words(one.name) for one in matching.wanted()}
    about = {one.name: one for one in matching.wanted()}
    claims: dict[str, list[str]] = {}
    for port in matching.left():
        own = _words(port)
        common = {name: _equal_ending_words(own, words) for name, words in golden.items()}
        longest = max(common.values(), default=0)
        ending = [name for name, count in common.items() if count == longest]
        if longest >= _FEWEST_WORDS and len(ending) == 1 and may_fit(about[ending[0]], matching.port[port]):
            claims.setdefault(ending[0], []).append(port)
    for name, ports in claims.items():
        if len(ports) == 1:
            matching.add(name, ports[0], MatchedBy.NAME)


def _equal_ending_words(left: Sequence[str], right: Sequence[str]) -> int:
    pairs = zip(reversed(left), reversed(right), strict=False)
    return next((count for count, (one, other) in enumerate(pairs) if one != other), min(len(left), len(right)))


def _words(name: str) -> list[str]:
    """The parts of a name, without those that only say that it is an output."""
    words = [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word]
    inner = words[1:] if words and words[0] in ("modules", "outputs") else words
    return inner[:-1] if inner and inner[-1] in ("outputs", "output", "out") else inner


def _numbers(name: str) -> list[int]:
    return [int(one) for one in _NUMBER.findall(name)]


def _rule(pairs: Sequence[tuple[str, str]]) -> _Rule | None:
    """The rule that most pairs follow; None where there is no such rule, or too few pairs show it."""
    texts = Counter(_NUMBER.sub("#", golden) for _, golden in pairs)
    text, count = texts.most_common(1)[0]
    if count < 2 or count < _IN_ORDER * len(pairs) or "#" not in text:  # noqa: PLR2004 - one pair shows no pattern
        return None
    rows = [(_numbers(port), _numbers(golden)) for port, golden in pairs if _NUMBER.sub("#", golden) == text]
    gaps = []
    for gap in range(text.count("#")):
        wanted = [golden[gap] for _, golden in rows]
        sources: list[tuple[int | None, list[int]]] = [(None, [0] * len(rows))]
        sources += [(place, [port[place] for port, _ in rows]) for place in range(len(rows[0][0]))]
        offsets = [
            (place, Counter(one - value for one, value in zip(wanted, values, strict=True)).most_common(1)[0])
            for place, values in sources
        ]
        agreeing = [(place, offset) for place, (offset, often) in offsets if often >= _IN_ORDER * len(rows)]
        if not agreeing:
            return None
        gaps.append(agreeing[0])
    return _Rule(text, tuple(gaps)) if any(place is not None for place, _ in gaps) else None


# --- Order ---


def _by_order(matching: Matching, scores: _Scores) -> None:
    """What is left, between tensors that were recognised: golden tensors of fitting shapes, in the same order.

    So a wrong tensor of a port with its own names is compared with its counterpart. A port that uses golden names for
    most of its tensors names its intermediates, too: there only outputs are matched by order, as they are required.
    """
    named = sum(match.by is MatchedBy.NAME for match in matching.found.values())
    roles = _RESULTS if 2 * named <= len(matching.port) else (Role.OUTPUT,)
    places = {one.name: place for place, one in enumerate(matching.golden.data.tensors)}
    for run, first, end in _runs(matching, places):
        between = [one for one in matching.wanted(roles) if first < places[one.name] < end]
        for port, one in _placed(run, between, matching, scores):
            matching.add(one.name, port, MatchedBy.ORDER)


def _runs(matching: Matching, places: Mapping[str, int]) -> Iterator[tuple[list[str], int, int]]:
    """Consecutive unmatched tensors, and the golden places between which they belong; none where there is no order."""
    by_name = [name for name, match in matching.found.items() if match.by in (MatchedBy.NAME, MatchedBy.MAP)]
    # Names of two kinds say nothing about each other's order where the file sorts them.
    ignored = set(by_name) if 2 * len(by_name) <= len(matching.port) else set()
    golden_of: dict[str, int] = {}
    for name, match in matching.found.items():
        if name not in ignored:
            golden_of.setdefault(match.port, places[name])
    anchors = [(port, golden_of[port]) for port in matching.port if port in golden_of]
    kept = _increasing([place for _, place in anchors])
    if len(anchors) >= _FEWEST_ANCHORS and len(kept) < _IN_ORDER * len(anchors):
        return
    fixed = {anchors[place][0]: anchors[place][1] for place in kept}
    before, run = -1, list[str]()
    for port in (*matching.port, None):
        place = len(places) if port is None else fixed.get(port)
        if place is None:
            if port not in matching.used:
                run.append(str(port))
            continue
        if run:
            yield run, before, place
        before, run = place, []


def _increasing(numbers: Sequence[int]) -> list[int]:
    """The places of a longest increasing part: a few tensors out of order, such as fused ones, do not hide it."""
    best: list[tuple[int, int]] = []  # length, previous place
    for place, number in enumerate(numbers):
        before = [(best[other][0], other) for other in range(place) if numbers[other] <= number]
        length, previous = max(before, default=(0, -1))
        best.append((length + 1, previous))
    chosen: list[int] = []
    place = max(range(len(best)), key=lambda one: best[one][0], default=-1)
    while place >= 0:
        chosen.append(place)
        place = best[place][1]
    return chosen[::-1]


def _placed(
    run: Sequence[str], between: Sequence[GoldenTensor], matching: Matching, scores: _Scores
) -> list[tuple[str, GoldenTensor]]:
    """One to one where the shapes allow only that; otherwise the pairs that values support."""
    for fits in (_same_shape, may_fit):
        pairs = _one_to_one(run, between, matching.port, fits)
        if pairs:
            return pairs
    if not run or len(run) * len(between) > _MAX_PLACED:
        return []
    pairs = _aligned(run, between, matching.port, scores)
    ports, names = {port for port, _ in pairs}, {one.name for _, one in pairs}
    spare_ports = [port for port in run if port not in ports]
    spare_names = [one.name for one in between if one.name not in names]

    def is_certain(port: str, name: str) -> bool:
        """Whether what the alignment leaves over on either side would not do as well."""
        others = [scores.between(port, other) for other in spare_names]
        others += [scores.between(other, name) for other in spare_ports]
        return min(others, default=float("inf")) > _ALONE * scores.between(port, name) + _SAME

    return [(port, one) for port, one in pairs if is_certain(port, one.name)]


def _one_to_one(
    run: Sequence[str],
    between: Sequence[GoldenTensor],
    port: Mapping[str, Tensor],
    fits: Callable[[GoldenTensor, Tensor], bool],
) -> list[tuple[str, GoldenTensor]]:
    """Tensors and golden ones in order; none where their number or their shapes differ."""
    given = [name for name in run if any(fits(one, port[name]) for one in between)]
    fitting = [one for one in between if any(fits(one, port[name]) for name in given)]
    if len(given) != len(fitting):
        return []
    pairs = list(zip(given, fitting, strict=True))
    return pairs if all(fits(one, port[name]) for name, one in pairs) else []


def _same_shape(one: GoldenTensor, tensor: Tensor) -> bool:
    return one.shape == tuple(tensor.shape)


def _aligned(
    run: Sequence[str], between: Sequence[GoldenTensor], port: Mapping[str, Tensor], scores: _Scores
) -> list[tuple[str, GoldenTensor]]:
    """The pairs, in order on both sides, whose values are closest in sum: an alignment of two sequences."""
    gain = np.zeros((len(run), len(between)))
    for row, name in enumerate(run):
        for column, one in enumerate(between):
            if may_fit(one, port[name]):
                gain[row, column] = max(0.0, 1 - scores.between(name, one.name)) + 1e-3
    total = np.zeros((len(run) + 1, len(between) + 1))
    for row in range(len(run) - 1, -1, -1):
        for column in range(len(between) - 1, -1, -1):
            paired = gain[row, column] + total[row + 1, column + 1] if gain[row, column] else 0.0
            total[row, column] = max(total[row + 1, column], total[row, column + 1], paired)
    pairs, row, column = [], 0, 0
    while row < len(run) and column < len(between):
        if gain[row, column] and total[row, column] == gain[row, column] + total[row + 1, column + 1]:
            pairs.append((run[row], between[column]))
            row, column = row + 1, column + 1
        elif total[row, column] == total[row + 1, column]:
            row += 1
        else:
            column += 1
    return pairs


# --- Why a tensor stands for nothing ---


def _explain_rest(matching: Matching, scores: _Scores) -> None:
    wanted = matching.wanted()
    fits = scores.fitting(matching.left(), (one.name for one in wanted))
    for port, some in fits.items():
        matching.unmatched[port] = _reason(matching, port, some, wanted, scores)


def _reason(
    matching: Matching, port: str, fits: Mapping[str, float], wanted: Sequence[GoldenTensor], scores: _Scores
) -> str:
    if scores.too_many:
        return (
            f"{many(scores.too_many, 'tensor is', 'tensors are')} too many to be matched by value; "
            f"name them, or give a --map"
        )
    tensor = matching.port[port]
    if len(fits) > 1:
        return f"its values fit {' and '.join(list(fits)[:_SHOWN])} equally well; name it, or give a --map"
    if fits:
        return f"{next(iter(fits))} fits another tensor as well; name it, or give a --map"
    twin = next((own for own, one in matching.port.items() if own in matching.used and _equal(one, tensor)), None)
    if twin is not None:
        return f"the values of {twin}"
    alike = sum(may_fit(one, tensor) for one in wanted)
    return f"{many(alike, 'golden tensor')} that fit its shape are left; name it, or give a --map" if alike > 1 else ""


def _equal(left: Tensor, right: Tensor) -> bool:
    return left.shape == right.shape and left.dtype == right.dtype and torch.equal(left, right)
