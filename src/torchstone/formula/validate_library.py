"""Entries -> fresh captures of their classes at random points, and what the comparison found."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from random import Random

from torchstone.errors import InputError
from torchstone.formula.database import Formulas
from torchstone.formula.derive.built_models import Options, plan_of
from torchstone.formula.derive.built_modules import RECIPES
from torchstone.formula.derive.library import model_type_of
from torchstone.formula.derive.observation import Observation, observe
from torchstone.formula.derive.op_forms import RefusedError
from torchstone.formula.derive.sampling import Bench, sample_model_randomly, sample_module
from torchstone.formula.names import short_name
from torchstone.formula.validate import Validated, validate
from torchstone.record.formula import FormulaEntry

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Source:
    """Where captures of a class come from: it is built alone, or its model type is."""

    name: str
    variant: str
    alone: bool


def source_of(entry: FormulaEntry, model_types: Iterable[str]) -> Source | None:
    """How an entry can be measured; None where nothing builds its class."""
    if entry.module_path.startswith("torch.nn."):
        name = short_name(entry.module_path)
        return Source(name, "", alone=True) if name in RECIPES else None
    try:
        model_type = model_type_of(entry.module_path, dict.fromkeys(model_types))
    except InputError:
        return None
    return Source(model_type, entry.variant, alone=False)


def validate_sources(
    formulas: Formulas, sources: Iterable[Source], bench: Bench, random: Random, points: int, tell: Tell
) -> Iterator[Validated]:
    """Measure each source at random points and compare every call with its formula."""
    for source in sources:
        tell(f"torch.nn.{source.name}" if source.alone else f"{source.name} {source.variant}".strip())
        try:
            seen = list(_observed(source, bench, random, points))
        except RefusedError as reason:
            msg = f"{reason}; the sizes were drawn at random: take others with --seed"
            raise InputError(msg) from reason
        yield validate(formulas, seen, source.variant)


def _observed(source: Source, bench: Bench, random: Random, points: int) -> Iterator[Observation]:
    if source.alone:
        samples = sample_module(source.name, bench, random=random, count=points)
    else:
        options = options_of(source.variant)
        plan = plan_of(source.name, decode=options.decode)
        chosen = plan.random_points(random, points)
        samples = sample_model_randomly(source.name, plan, bench, options, chosen)
    for sample in samples:
        yield from observe(sample)


def options_of(variant: str) -> Options:
    """The code path of a variant."""
    parts = variant.split("+") if variant else []
    attention = next((part for part in parts if part == "eager"), "")
    return Options(attention=attention, use_cache="no_cache" not in parts, decode="decode" in parts)
