"""Derivation: observations of one class -> a formula equal to every measured number, or a refusal with its reason.

The steps of one class: split its calls by code path; on each path, line the calls up op by op and fit every tensor size
as an exact polynomial; run the price of the op on these polynomials; turn calls of inner classes into references with
bound parameters; evaluate the result at every point, those held out included. One wrong number refuses the formula.
"""

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from torchstone.formula.algebra.polynomial import ZERO, Polynomial
from torchstone.formula.derive.code_paths import (
    Body,
    Branch,
    Condition,
    Derived,
    Fork,
    InnerCall,
    Leaf,
    Part,
    Refused,
    evaluate,
    peak_activation_of,
    split_by_path,
    unknowns_of,
    weights_of,
    without_peak,
    without_weights,
)
from torchstone.formula.derive.coordinates import CONDITION, Coordinates, coordinates_of
from torchstone.formula.derive.fit import Forms, merge_dtypes
from torchstone.formula.derive.observe import (
    Child,
    Observation,
    by_class,
    children_first,
    inlined,
    merged,
)
from torchstone.formula.derive.op_forms import Fitter, Price, RefusedError, op_forms
from torchstone.formula.derive.parameter_binding import CONFIGURED, DTYPE_BYTES
from torchstone.formula.derive.peak_activation import MemorySample, peak_sums
from torchstone.formula.language.evaluate import evaluate as evaluate_expression
from torchstone.formula.language.expression import free_parameters
from torchstone.formula.language.parse import parse
from torchstone.record.op import OpSignature

_QUANTITIES = ("flops", "reads", "writes")
_FEWEST_FITTED = 3
_MOST_DIVISIONS = 24  # leaves without a formula that are split
_MOST_FORKS = 2  # nested splits of one code path to find formulas for its peak memory
_SINGLE = 4  # bytes of an element of float32
_LAYER_NUMBER = re.compile(r"\b\d+\b")


def derive(
    observations: Sequence[Observation],
    price: Price,
    configured: Coordinates,
    known: Mapping[str, Derived],
    never: Mapping[str, str] | None = None,
    *,
    flat: bool = False,
) -> tuple[dict[str, Derived], dict[str, Refused]]:
    """Derive the formula of every observed class that is not known yet, inner classes first.

    The order matters: an outer class refers to the formulas of its inner ones. The ops of an inner class that is
    refused count as those of the outer one. `never` are classes that get no formula, with the reason.
    """
    never = never or {}
    grouped = by_class(observations)
    found: dict[str, Derived] = {}
    refused: dict[str, Refused] = {}
    for name in children_first(grouped):
        if name in known:
            continue
        if name in never:
            refused[name] = Refused(class_name=name, reason=never[name])
            continue
        try:
            inner = {} if flat else {**known, **found}
            found[name] = _derive_one(name, _contiguous(grouped[name]), inner, configured, price)
        except RefusedError as reason:
            refused[name] = Refused(class_name=name, reason=str(reason))
    return found, refused


def _contiguous(calls: Sequence[Observation]) -> Sequence[Observation]:
    """The calls with contiguous inputs, of a class whose sizes are those of its input; all where there are none.

    A strided input may cost a copy; its strides are no parameters.
    """
    plain = [seen for seen in calls if not seen.reordered and seen.parameters.rule != CONFIGURED]
    return plain or calls


def reproduces(derived: Derived, seen: Observation, known: Mapping[str, Derived]) -> bool:
    """Whether a formula gives the measured cost of a call; a probe may also be outside its domain."""
    values = _values(derived, seen)
    if any(evaluate_expression(parse(condition), values) == 0 for condition in derived.domain):
        return bool(seen.guard)
    try:
        return evaluate(derived, values, known) == seen.whole and not seen.unpriced
    except RefusedError:
        return False


def _derive_one(
    name: str,
    observations: Sequence[Observation],
    known: Mapping[str, Derived],
    configured: Coordinates,
    price: Price,
) -> Derived:
    """Line calls up op by op; else by distinct ops, for a loop over a size; else with all ops of the inner classes.

    The last is right where the formula of an inner class does not hold for the tensors it gets here, as strided ones.
    """
    first: RefusedError | None = None
    for inner in (known, {}) if known else ({},):
        whole = [inlined(seen, inner) for seen in observations]
        for merge in (False, True) if known else (True,):
            lined_up = [merged(seen) for seen in whole] if merge else whole
            try:
                return _Derivation(name, lined_up, inner, configured, merge=merge).run(price)
            except RefusedError as reason:
                first = first or reason
    assert first is not None  # noqa: S101 - raised at least once
    raise first


class _Derivation:
    """The derivation of one class."""

    def __init__(
        self,
        name: str,
        observations: Sequence[Observation],
        known: Mapping[str, Derived],
        configured: Coordinates,
        *,
        merge: bool = False,
    ) -> None:
        self._merge = merge
        self._divisions = 0
        self._splits_by_memory = True
        self._memory_forks = 0
        self._name = name
        self._known = known
        self._coordinates = coordinates_of(observations[0].parameters.rule, configured)
        distinct = [seen for seen in _distinct(observations) if self._coordinates.includes(seen.parameters.sizes)]
        self._observations = [seen for seen in distinct if not seen.guard]
        self._probes = [seen for seen in distinct if seen.guard]
        for seen in distinct:
            seen.point = self._coordinates.point(seen.parameters.sizes)
        if not self._observations:
            msg = "it was called at sizes outside the domain only"
            raise RefusedError(msg)

    def run(self, price: Price) -> Derived:
        """The formula; without one for the peak memory where only that makes the calls too few to fit the rest."""
        try:
            return self._run(price)
        except RefusedError:
            if not self._memory_forks:
                raise
            self._splits_by_memory = False
            return self._run(price)

    def _run(self, price: Price) -> Derived:
        self._refuse_unpriced()
        tree = self._split()
        body = self._body(tree, price)
        used = unknowns_of(body)
        switches = tuple(sorted(used & {name for seen in self._observations for name in seen.parameters.facts}))
        domain = self._domain(used)
        derived = Derived(
            class_name=self._name,
            body=body,
            parameters=_ordered(used | _named_in(domain), self._observations),
            switches=switches,
            domain=domain,
            points=len(self._observations),
            held_out=sum(seen.held_out for seen in self._observations),
        )
        self._check(derived)
        derived = self._probed(derived)
        # Weights and peak memory are extras: where they are wrong, the formula loses them but keeps its costs.
        if not self._weights_are_right(derived):
            derived = replace(derived, body=without_weights(derived.body))
        return derived if self._peak_is_right(derived) else replace(derived, body=without_peak(derived.body))

    def _weights_are_right(self, derived: Derived) -> bool:
        return all(
            weights_of(derived, _values(derived, seen), self._known) == seen.weight_bytes for seen in self._observations
        )

    def _peak_is_right(self, derived: Derived) -> bool:
        """Checked at the ends of ranges, too, unless the domain excludes them."""
        inside = [seen for seen in self._probes if seen.guard not in derived.domain]
        return all(
            peak_activation_of(derived, _values(derived, seen)) == seen.peak_bytes
            for seen in (*self._observations, *inside)
        )

    def _refuse_unpriced(self) -> None:
        unpriced = sorted({op for seen in self._observations for op in seen.unpriced})
        if unpriced:
            msg = f"{', '.join(unpriced)} has no price"
            raise RefusedError(msg)

    # --- code paths ---

    def _split(self) -> Leaf | Fork:
        """The calls by code path; where equal ops are merged, without calls whose sizes are equal by chance.

        Two ops with different sizes are one at a length that is also the number of heads. Such a call is not fitted,
        but checked like any other.
        """
        try:
            return split_by_path(self._observations, self._path_key)
        except RefusedError:
            if not self._merge:
                raise
            return split_by_path(self._usual_calls(), self._path_key)

    def _usual_calls(self) -> list[Observation]:
        """The calls with the most frequent ops among those that have the same sizes of 1."""
        cases: dict[Hashable, dict[Hashable, list[Observation]]] = {}
        for seen in self._observations:
            ones = tuple(name for name, size in seen.point.items() if size == 1)
            cases.setdefault(ones, {}).setdefault(self._path_key(seen), []).append(seen)
        return [seen for paths in cases.values() for seen in max(paths.values(), key=len)]

    def _path_key(self, seen: Observation) -> Hashable:
        """Equal for calls that line up: the same ops with as many numbers and equal words, inner calls, coordinates."""
        ops = tuple((op.signature.op, len(op.numbers), *_words(op.signature)) for op in seen.ops)
        return ops, tuple(run.key for run in self._runs(seen)), tuple(seen.point)

    def _runs(self, seen: Observation) -> list["_Run"]:
        """Inner calls in order; equal neighbours of a stack are one run, so that the number of layers can be fitted."""
        runs: list[_Run] = []
        for child in seen.children:
            inner = self._known[child.class_name]
            values = {name: child.parameters.value(name) for name in inner.parameters}
            earlier = self._earlier(runs, child, values)
            if earlier is not None:
                earlier.count += 1
            else:
                switches = tuple(values[name] for name in inner.switches)
                runs.append(_Run(child=child, values=values, count=1, key=(child.class_name, switches)))
        return runs

    def _earlier(self, runs: "Sequence[_Run]", child: Child, values: Mapping[str, int]) -> "_Run | None":
        """The run that a call continues: any equal one where equal ops are merged, else the last of the same stack."""
        if self._merge:
            return next(
                (one for one in runs if one.child.class_name == child.class_name and one.values == values), None
            )
        return runs[-1] if runs and runs[-1].values == values and _same_stack(runs[-1].child, child) else None

    def _body(self, tree: Leaf | Fork, price: Price) -> Body | Branch:
        if isinstance(tree, Fork):
            return Branch(
                subject=self._subject(tree.condition),
                equals=tree.condition.equals,
                yes=self._body(tree.yes, price),
                no=self._body(tree.no, price),
            )
        try:
            body = self._leaf(tree, price)
        except RefusedError:
            return self._divided(tree, price)
        if body.activations is not None or not self._splits_by_memory:
            return body
        split = self._split_by_memory(tree, price, _MOST_FORKS)
        self._memory_forks += split is not None
        return split or body

    def _divided(self, leaf: Leaf, price: Price) -> Body | Branch:
        """A leaf that has no formula as a whole, split at the first condition whose sides have one each."""
        first: RefusedError | None = None
        for fork in self._edges(leaf):
            self._divisions += 1
            if self._divisions > _MOST_DIVISIONS:
                break
            try:
                return self._body(fork, price)
            except RefusedError as reason:
                first = first or reason
        if first is not None:
            raise first
        self._leaf(leaf, price)  # raises the reason of the leaf itself
        msg = "it has more code paths than can be tried"
        raise RefusedError(msg)

    def _split_by_memory(self, leaf: Leaf, price: Price, forks: int) -> Body | Branch | None:
        """The body of a leaf, split until each part has a formula for its peak memory; None where no split helps."""
        if self._activations(_fitted(leaf)) is not None:
            try:
                return self._leaf(leaf, price)
            except RefusedError:
                return None
        for fork in reversed(list(self._edges(leaf))) if forks else ():
            sides = [side for side in (fork.yes, fork.no) if isinstance(side, Leaf)]
            yes = self._split_by_memory(sides[0], price, forks - 1)
            no = None if yes is None else self._split_by_memory(sides[1], price, forks - 1)
            if yes is not None and no is not None:
                return Branch(subject=self._subject(fork.condition), equals=fork.condition.equals, yes=yes, no=no)
        return None

    def _edges(self, leaf: Leaf) -> Iterator[Fork]:
        """A leaf split where a coordinate is 1, or by element type: the same ops may move other bytes there."""
        names = sorted(leaf.observations[0].point, key=lambda name: not name.startswith(CONDITION))
        edges = [Condition(name, 1) for name in names]  # comparisons of the code first: they have enough points
        for condition in (*edges, Condition(DTYPE_BYTES, _SINGLE)):
            yes = tuple(seen for seen in leaf.observations if condition.holds(seen))
            no = tuple(seen for seen in leaf.observations if not condition.holds(seen))
            if yes and no:
                yield Fork(condition, Leaf(yes), Leaf(no))

    def _subject(self, condition: Condition) -> Polynomial:
        return self._coordinates.in_parameters(Polynomial.unknown(condition.name))

    # --- one code path ---

    def _leaf(self, leaf: Leaf, price: Price) -> Body:
        fitted = _fitted(leaf)
        by_bytes: dict[int, list[Observation]] = {}
        for seen in fitted:
            by_bytes.setdefault(seen.parameters.dtype_bytes, []).append(seen)
        self._refuse_few(leaf, by_bytes)
        parts: dict[str, Forms] = {}
        for op, forms in self._own_parts(fitted, price):
            before = parts.get(op, (ZERO, ZERO, ZERO))
            parts[op] = (before[0] + forms[0], before[1] + forms[1], before[2] + forms[2])
        return Body(
            parts=tuple(Part(op=op, forms=self._named(forms)) for op, forms in parts.items()),
            inner=tuple(self._inner(fitted)),
            weights=self._weights(by_bytes),
            activations=self._activations(fitted),
        )

    def _activations(self, seens: Sequence[Observation]) -> tuple[Polynomial, ...] | None:
        """The sums of which the largest is the peak; None where there are none."""
        if not seens:
            return None
        samples = [
            MemorySample(point=point, dtype_bytes=seen.parameters.dtype_bytes, moments=seen.moments)
            for seen, point in zip(seens, _plain_points(seens), strict=True)
        ]
        sums = peak_sums(samples)
        return None if sums is None else tuple(self._coordinates.in_parameters(one) for one in sums)

    def _refuse_few(self, leaf: Leaf, by_bytes: Mapping[int, Sequence[Observation]]) -> None:
        """Refuse a path with too few points to fit, or none to check at: anything fits through few points.

        One point is enough where its condition leaves nothing to vary: a batch of 1 of a model that has no other size.
        """
        varied = {name for name, sizes in self._values_of_sizes().items() if len(sizes) > 1}
        if (
            by_bytes
            and len(varied) == 1
            and all(seen.point.get(name) == 1 for seen in leaf.observations for name in varied)
        ):
            return
        few = not by_bytes or min(len(seens) for seens in by_bytes.values()) < _FEWEST_FITTED
        if few or not any(seen.held_out for seen in leaf.observations):
            seen = leaf.observations[0]
            sizes = {name: value for name, value in seen.point.items() if value == 1}
            such = f"{len(leaf.observations)}, such as {_shown(sizes or seen.point)}"
            msg = f"too few settings take this code path ({such})"
            raise RefusedError(msg)

    def _values_of_sizes(self) -> dict[str, set[int]]:
        values: dict[str, set[int]] = {}
        for seen in self._observations:
            for name, size in seen.parameters.sizes.items():
                values.setdefault(name, set()).add(size)
        return values

    def _weights(self, by_bytes: Mapping[int, Sequence[Observation]]) -> Polynomial | None:
        """The bytes of its own tensors, less those that inner calls share; None where they are not a polynomial."""
        if len({len(seen.own_tensors) for seens in by_bytes.values() for seen in seens}) > 1:
            return None
        own, more, less = (dict.fromkeys(by_bytes, ZERO) for _ in range(3))
        for size, seens in by_bytes.items():
            points = _plain_points(seens)
            fitter = Fitter(points)
            for column in zip(*(seen.own_tensors for seen in seens), strict=True):
                form = fitter.fit([spec.size_bytes or 0 for spec in column])
                if form is None:
                    return None
                own[size] += form
            inner = [self._inner_weights(seen) for seen in seens]
            if None in inner:
                return None
            # Below 0 where inner calls share tensors: tied weights, or one module called twice. Above 0 where there are
            # tensors inside that no inner call counts.
            rest = [
                seen.weight_bytes - (bytes_inside or 0) - int(own[size].value(point))
                for seen, bytes_inside, point in zip(seens, inner, points, strict=True)
            ]
            missing = fitter.fit([abs(one) for one in rest])
            if missing is None:
                return None
            (less if min(rest) < 0 else more)[size] = missing
        summed = [
            merge_dtypes({size: (form, form, form) for size, form in forms.items()})[0] for forms in (own, more, less)
        ]
        return self._coordinates.in_parameters(summed[0] + summed[1] - summed[2])

    def _inner_weights(self, seen: Observation) -> int | None:
        """The weights of the inner calls by their formulas, counted separately."""
        total = 0
        for run in self._runs(seen):
            inside = weights_of(self._known[run.child.class_name], run.values, self._known)
            if inside is None:
                return None
            total += run.count * inside
        return total

    def _own_parts(self, seens: Sequence[Observation], price: Price) -> list[tuple[str, Forms]]:
        fitter = Fitter(_plain_points(seens))
        types = [seen.parameters.dtype_bytes for seen in seens]
        parts = []
        for number, column in enumerate(zip(*(seen.ops for seen in seens), strict=True)):
            op = column[0].signature.op
            counts = [seen.op_counts[number] if seen.op_counts else 1 for seen in seens]
            times = fitter.fit(counts)
            if times is None:
                times_seen = ", ".join(map(str, counts[:4]))
                msg = f"how often {op} runs ({times_seen}, ...) is not a polynomial of the parameters"
                raise RefusedError(msg)
            flops, reads, writes = op_forms(column, types, fitter, price)
            parts.append((op, (times * flops, times * reads, times * writes)))
        return parts

    def _inner(self, seens: Sequence[Observation]) -> Iterator[InnerCall]:
        fitter = Fitter(_plain_points(seens))
        for column in zip(*(self._runs(seen) for seen in seens), strict=True):
            child = column[0].child.class_name
            count = self._fitted(fitter, [run.count for run in column], f"the number of calls of {child}")
            bindings = {
                name: self._bound(name, [run.values[name] for run in column], seens, fitter)
                for name in self._known[child].parameters
            }
            name = attribute_name(seens[0].path, column[0].child.path)
            yield InnerCall(class_name=child, count=count, name=name, bindings=bindings)

    def _bound(self, name: str, values: Sequence[int], seens: Sequence[Observation], fitter: Fitter) -> Polynomial:
        if name == DTYPE_BYTES and all(
            value == seen.parameters.dtype_bytes for value, seen in zip(values, seens, strict=True)
        ):
            return Polynomial.unknown(DTYPE_BYTES)
        return self._fitted(fitter, values, f"the parameter {name}")

    def _fitted(self, fitter: Fitter, values: Sequence[int], what: str) -> Polynomial:
        form = fitter.fit(values)
        if form is None:
            msg = f"{what} ({', '.join(map(str, values[:4]))}, ...) is not a polynomial of the parameters"
            raise RefusedError(msg)
        return self._coordinates.in_parameters(form)

    def _named(self, forms: Forms) -> Forms:
        flops, reads, writes = (self._coordinates.in_parameters(form) for form in forms)
        return flops, reads, writes

    # --- checks ---

    def _domain(self, used: frozenset[str]) -> tuple[str, ...]:
        sizes = {seen.parameters.dtype_bytes for seen in self._observations}
        types = (f"{DTYPE_BYTES} == {next(iter(sizes))}",) if len(sizes) == 1 and sizes != {0} else ()
        sizes_of_all = self._observations[0].parameters.sizes.keys()
        return (*self._coordinates.guards(used), *self._coordinates.exclusions(sizes_of_all), *types)

    def _probed(self, derived: Derived) -> Derived:
        """The formula with a condition in its domain for each probed end of a range where it is wrong."""
        wrong = [seen for seen in self._probes if not self._holds_at(derived, seen)]
        for seen in wrong:
            if seen.guard.split()[0] not in seen.parameters.sizes:
                msg = f"its cost differs where {seen.guard} does not hold, but it is not called with that size"
                raise RefusedError(msg)
        domain = (*derived.domain, *dict.fromkeys(seen.guard for seen in wrong))
        right = len(self._probes) - len(wrong)
        return replace(
            derived,
            domain=domain,
            parameters=_ordered(frozenset(derived.parameters) | _named_in(domain), self._observations),
            points=derived.points + right,
            held_out=derived.held_out + right,
        )

    def _holds_at(self, derived: Derived, seen: Observation) -> bool:
        values = _values(derived, seen)
        try:
            return evaluate(derived, values, self._known) == seen.whole
        except RefusedError:
            return False

    def _check(self, derived: Derived) -> None:
        for seen in self._observations:
            values = _values(derived, seen)
            given = evaluate(derived, values, self._known)
            if given != seen.whole:
                wrong = [one for one in _QUANTITIES if getattr(given, one) != getattr(seen.whole, one)]
                msg = (
                    f"at {_shown(values)} the formula gives {getattr(given, wrong[0]):,} {wrong[0]}, "
                    f"but {getattr(seen.whole, wrong[0]):,} were measured"
                )
                raise RefusedError(msg)


@dataclass(slots=True, kw_only=True)
class _Run:
    child: Child
    values: dict[str, int]
    count: int
    key: Hashable


def _values(derived: Derived, seen: Observation) -> dict[str, int]:
    """The parameters of a formula as a call has them."""
    return {name: seen.parameters.value(name) for name in derived.parameters}


def _named_in(domain: Sequence[str]) -> frozenset[str]:
    return frozenset(name for condition in domain for name in free_parameters(parse(condition)))


def _fitted(leaf: Leaf) -> list[Observation]:
    return [seen for seen in leaf.observations if not seen.held_out]


def attribute_name(outer: str, inner: str) -> str:
    """How a module calls one inside it: q_proj, layers, encoder.layers."""
    inside = inner.removeprefix(f"{outer}.") if outer else inner
    return ".".join(part for part in inside.split(".") if not part.isdigit())


def _words(signature: OpSignature) -> Iterator[str]:
    """The arguments that are text, which a price may read: the kind of a gelu."""
    return (one.value for one in signature.arguments if isinstance(one.value, str))


def _same_stack(one: Child, other: Child) -> bool:
    """Whether two modules are members of the same list, such as layers.0 and layers.1."""
    return one.class_name == other.class_name and _LAYER_NUMBER.sub("#", one.path) == _LAYER_NUMBER.sub("#", other.path)


def _distinct(observations: Sequence[Observation]) -> list[Observation]:
    """One of all calls with equal parameters, ops and costs; fitted points go before held-out ones."""
    kept: dict[Hashable, Observation] = {}
    for seen in sorted(observations, key=lambda seen: seen.held_out):
        given = seen.parameters
        key = (
            tuple(sorted(given.sizes.items())),
            tuple(sorted(given.facts.items())),
            given.dtype_bytes,
            (seen.whole.flops, seen.whole.reads, seen.whole.writes),
            tuple(op.signature.op for op in seen.ops),
        )
        kept.setdefault(key, seen)
    return list(kept.values())


def _plain_points(seens: Sequence[Observation]) -> list[dict[str, int]]:
    """The points without coordinates that are constant or always equal to an earlier one: they make a fit ambiguous."""
    columns: dict[tuple[int, ...], str] = {}
    for name in seens[0].point:
        column = tuple(seen.point[name] for seen in seens)
        if len(set(column)) > 1 or len(seens) == 1:
            columns.setdefault(column, name)
    return [{name: seen.point[name] for name in columns.values()} for seen in seens]


def _ordered(used: frozenset[str], observations: Sequence[Observation]) -> tuple[str, ...]:
    """In the order in which a call names them, the bytes of an element last."""
    order = dict.fromkeys(
        name for seen in observations for names in (seen.parameters.sizes, seen.parameters.facts) for name in names
    )
    return (*(name for name in order if name in used), *((DTYPE_BYTES,) if DTYPE_BYTES in used else ()))


def _shown(values: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())
