"""Free coordinates behind the parameters of a class: heads of one width are free, heads and their sum are not."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from torchstone.formula.algebra.polynomial import FLOOR_DIVIDE, MODULO, ONE, Applied, Polynomial
from torchstone.formula.derive.parameter_binding import CONFIGURED

CONDITION = "condition_"  # begins the names of coordinates that are 1 where a comparison of the code holds, else 0


@dataclass(frozen=True, slots=True)
class Coordinates:
    """How coordinates follow from parameters; a parameter that is not named here is a coordinate itself."""

    extra: Mapping[str, Polynomial] = field(default_factory=dict)  # coordinate -> its value in parameters
    bound: frozenset[str] = frozenset()  # parameters that follow from the coordinates
    excluded: Mapping[str, Polynomial] = field(default_factory=dict)  # condition of the domain -> it is 1 where broken

    def point(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """The coordinates of a call with these parameters; one that is not whole there is left out."""
        point = {name: size for name, size in sizes.items() if name not in self.bound}
        for name, form in self.extra.items():
            if form.unknowns <= sizes.keys():
                value = form.value(sizes)
                if value.denominator == 1:
                    point[name] = int(value)
        return point

    def includes(self, sizes: Mapping[str, int]) -> bool:
        """Whether a call with these parameters keeps all conditions of the domain that name parameters of it."""
        known = (form for form in self.excluded.values() if form.unknowns <= sizes.keys())
        return all(form.value(sizes) == 0 for form in known)

    def exclusions(self, names: Collection[str]) -> tuple[str, ...]:
        """The conditions of the domain for a class with these parameters."""
        return tuple(condition for condition, form in self.excluded.items() if form.unknowns <= set(names))

    def in_parameters(self, form: Polynomial) -> Polynomial:
        """A polynomial in coordinates, written in parameters."""
        return form.replaced(self.extra)

    def guards(self, names: frozenset[str]) -> tuple[str, ...]:
        """The conditions under which the coordinates of these parameters are whole."""
        conditions = []
        for form in self.extra.values():
            ((powers, coefficient),) = form.ordered[:1]
            if (
                len(form.terms) > 1
                or not form.unknowns <= names
                or any(not isinstance(unknown, str) for unknown, _ in powers)
            ):
                continue
            over = [str(unknown) for unknown, power in powers if power > 0]
            under = [str(unknown) for unknown, power in powers if power < 0]
            if coefficient.denominator != 1:
                under.append(str(coefficient.denominator))
            if len(over) == 1 and under:
                divisor = under[0] if len(under) == 1 else f"({' * '.join(under)})"
                conditions.append(f"{over[0]} % {divisor} == 0")
        return tuple(conditions)


def part_of(whole: str, by: str) -> Polynomial:
    """One parameter divided by another, exactly."""
    return Polynomial.product(1, {whole: 1, by: -1})


def share_of(whole: str, by: int) -> Polynomial:
    """A parameter divided by a number, exactly."""
    return Polynomial.constant(1) * Polynomial.unknown(whole) * Polynomial.constant(by) ** -1


def _convolved(side: str, suffix: str) -> Polynomial:
    """Positions along one side: (side + 2*padding - dilation*(kernel - 1) - 1) // stride + 1, with the 1 inside."""
    kernel, stride, padding, dilation = (
        Polynomial.unknown(f"{name}{suffix}") for name in ("kernel_size", "stride", "padding", "dilation")
    )
    reach = Polynomial.unknown(side) + Polynomial.constant(2) * padding - dilation * (kernel - ONE) - ONE
    return Polynomial.unknown(Applied(FLOOR_DIVIDE, (reach + stride, stride)))


def _odd(name: str) -> Polynomial:
    """1 for an odd number, 0 for an even one: torch has a fast path for even numbers of heads."""
    return Polynomial.unknown(Applied(MODULO, (Polynomial.unknown(name), Polynomial.constant(2))))


_CHANNELS = {
    "in_channels_per_group": part_of("in_channels", "groups"),
    "out_channels_per_group": part_of("out_channels", "groups"),
}
_PLAIN = Coordinates()
OF_RULE: Mapping[str, Coordinates] = {
    "Conv1d": Coordinates(
        extra={**_CHANNELS, "out_length": _convolved("length", "")},
        bound=frozenset({"in_channels", "out_channels", "stride", "padding", "dilation"}),
    ),
    "Conv2d": Coordinates(
        extra={**_CHANNELS, "out_height": _convolved("height", "_height"), "out_width": _convolved("width", "_width")},
        bound=frozenset(
            {"in_channels", "out_channels"}
            | {f"{name}_{side}" for name in ("stride", "padding", "dilation") for side in ("height", "width")}
        ),
    ),
    "Embedding": Coordinates(extra={"repeats": part_of("tokens", "distinct_tokens")}, bound=frozenset({"tokens"})),
    "MultiheadAttention": Coordinates(
        extra={"head_dim": part_of("embed_dim", "num_heads"), "odd_heads": _odd("num_heads")},
        bound=frozenset({"embed_dim"}),
    ),
    "TransformerEncoderLayer": Coordinates(
        extra={"head_dim": part_of("d_model", "nhead"), "odd_heads": _odd("nhead")}, bound=frozenset({"d_model"})
    ),
}


def coordinates_of(rule: str, configured: Coordinates) -> Coordinates:
    """The coordinates of classes that are read by a rule; those of configured classes come with the model."""
    return configured if rule == CONFIGURED else OF_RULE.get(rule, _PLAIN)
