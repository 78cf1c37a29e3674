"""Chains: several op calls that feed each other, as one configuration; a single call is a chain of one step."""

from collections.abc import Sequence
from itertools import count

from msgspec.structs import replace

from torchstone.record.base import Record
from torchstone.record.config import Configuration, TensorFacts
from torchstone.record.tensor import TensorSpec
from torchstone.record.value import Argument, Atom, Fields, Value, map_values, tensors_in

# The op of a chain is the names of its ops in order, and each argument is one step: `Fields` named after the op. A
# tensor that an earlier step gives is the name of that result; all others are inputs, numbered over the whole chain.
# So a chain has a key, facts, aliases and occurrences like every configuration.

ARROW = " > "
_RESULT = "result"  # the kind of atom that names what an earlier step gave
MOST_STEPS = 5


class Step(Record, frozen=True, kw_only=True):
    """One op call of a chain."""

    op: str
    arguments: tuple[Argument, ...]


def is_chain(op: str) -> bool:
    """Whether the op of a configuration is the name of a chain."""
    return ARROW in op


def result_name(step: int, position: int, part: int | None = None) -> str:
    """The name of what a step returns at a position; `part`: the place in a list of tensors there."""
    return f"s{step}_{position}" if part is None else f"s{step}_{position}_{part}"


def result_of_step(step: int, rest: str) -> Atom:
    """What an earlier step gave, as an argument; `rest` is the position, or position_part."""
    return Atom(kind=_RESULT, text=f"s{step}_{rest}")


def read_result(value: Value) -> tuple[int, str] | None:
    """Number of the step and the rest of the name, where a value is the result of a step."""
    if not isinstance(value, Atom) or value.kind != _RESULT:
        return None
    step, _, rest = value.text.removeprefix("s").partition("_")
    return int(step), rest


def steps_of(configuration: Configuration) -> tuple[Step, ...]:
    """The op calls of a configuration: one, or those of a chain."""
    if not is_chain(configuration.op):
        return (Step(op=configuration.op, arguments=configuration.arguments),)
    return tuple(_read_step(one.value) for one in configuration.arguments)


def _read_step(value: Value) -> Step:
    if not isinstance(value, Fields):
        msg = f"a step of a chain is not a call: {value!r}"
        raise TypeError(msg)
    return Step(op=value.class_name, arguments=tuple(Argument(name=name, value=given) for name, given in value.fields))


def configuration_of(steps: Sequence[Step], aliases: tuple[tuple[int, ...], ...] = ()) -> Configuration:
    """The configuration of steps; that of one step is an ordinary call."""
    if len(steps) == 1:
        return Configuration(op=steps[0].op, arguments=steps[0].arguments, aliases=aliases)
    return Configuration(
        op=ARROW.join(step.op for step in steps),
        arguments=tuple(
            Argument(
                name=str(number),
                value=Fields(class_name=step.op, fields=tuple((one.name, one.value) for one in step.arguments)),
            )
            for number, step in enumerate(steps)
        ),
        aliases=aliases,
    )


class StepResult(Record, frozen=True, kw_only=True):
    """A tensor that a step gave when the chain was run."""

    step: int
    rest: str  # position, or position_part
    spec: TensorSpec
    facts: TensorFacts


def cut(
    configuration: Configuration, facts: Sequence[TensorFacts], window: range, results: Sequence[StepResult]
) -> tuple[Configuration, tuple[TensorFacts, ...]]:
    """The steps of a window alone; what earlier steps gave becomes an input with the facts of that result.

    Raises LookupError where a result is not among those that are known.
    """
    steps = steps_of(configuration)
    given = {(one.step, one.rest): one for one in results}
    numbers = count()  # of inputs in the whole chain
    known = {fact.tensor: fact for fact in facts}
    kept: list[int | None] = []  # for each input of the window its number in the whole chain
    new_facts: list[TensorFacts] = []

    def new_value(value: Value) -> Value:
        if isinstance(value, TensorSpec):
            old = next(numbers)
            if old in known:
                new_facts.append(replace(known[old], tensor=len(kept)))
            kept.append(old)
            return value
        source = read_result(value)
        if source is None:
            return value
        if source[0] in window:
            return result_of_step(source[0] - window.start, source[1])
        result = given[source]
        new_facts.append(replace(result.facts, tensor=len(kept)))
        kept.append(None)
        return result.spec

    for step in steps[: window.start]:
        for one in step.arguments:
            for _ in tensors_in(one.value):
                next(numbers)
    chosen = [
        Step(
            op=step.op, arguments=tuple(replace(one, value=map_values(one.value, new_value)) for one in step.arguments)
        )
        for step in steps[window.start : window.stop]
    ]
    places = {old: new for new, old in enumerate(kept) if old is not None}
    groups = (tuple(places[one] for one in group if one in places) for group in configuration.aliases)
    return configuration_of(chosen, tuple(group for group in groups if len(group) > 1)), tuple(new_facts)
