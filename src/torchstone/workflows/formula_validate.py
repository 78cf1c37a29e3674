"""Formulas -> fresh captures of their classes at random settings, and the differences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from torchstone.errors import InputError
from torchstone.formula.database.compute import available_formulas
from torchstone.formula.database.files import Formulas, with_variant
from torchstone.formula.database.templates import name_of
from torchstone.record.formula import FormulaEntry
from torchstone.workflows.formula_derive import make_bench, refute
from torchstone.workflows.progress import SILENT, Progress

if TYPE_CHECKING:
    from torchstone.formula.derive.validate import Difference, Validated
    from torchstone.formula.derive.validate_library import Source

_QUICK_POINTS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidateRequest:
    """Which formulas to compare, and at how many settings."""

    name: str = ""  # empty: every formula
    points: int = 4  # random settings of each model
    quick: bool = False  # default code paths only, two settings of each model
    seed: int = 0  # of the random settings


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidateResult:
    """The entries that agree, that differ, and that could not be compared."""

    agree: Mapping[str, int]  # entry -> calls with equal costs
    differences: "Sequence[Difference]"
    refuted: Mapping[str, str]  # entry of a recipe -> what a capture says against it
    outside: Mapping[str, str]  # entry -> why no call of it could be compared
    not_built: Sequence[str]  # entries that nothing builds


def validate_formulas(
    request: ValidateRequest, formulas: Formulas | None = None, progress: Progress = SILENT
) -> ValidateResult:
    """Compare the FLOPs, bytes and weights of formulas with fresh captures; they must be equal.

    Differences are in the result. Raises InputError for an entry that cannot be built, UnknownFormulaError for an
    unknown one, MissingExtraError without torch or transformers.
    """
    known = formulas or available_formulas()
    bench = make_bench("validating formulas")
    from torchstone.formula.derive.validate_library import validate_sources

    sources, not_built = _sources(known, request)
    if request.name and not sources and not _with_recipes(known, request):
        msg = (
            f"nothing builds {request.name}, so it cannot be measured; "
            "compare it with `torchstone formula agent --recipe`"
        )
        raise InputError(msg)
    random = Random(request.seed)  # noqa: S311 - not for secrets
    points = _QUICK_POINTS if request.quick else request.points
    with progress.step("capturing and comparing"):
        found = list(validate_sources(known, sources, bench, random, points, lambda _: None))
        again = {} if request.quick else {name_of(one): refute(one, known) for one in _with_recipes(known, request)}
    agree = _agreeing(found, known.find(request.name).module_path if request.name else None)
    agree.update({name: 1 for name, problem in again.items() if problem == ""})
    return ValidateResult(
        agree=agree,
        differences=_root_causes([one for each in found for one in each.differences]),
        refuted={name: problem for name, problem in again.items() if problem},
        outside={name: why for each in found for name, why in each.outside.items() if name not in agree},
        not_built=[entry for entry in not_built if entry not in agree],  # some are seen inside others
    )


def _with_recipes(formulas: Formulas, request: ValidateRequest) -> list[FormulaEntry]:
    """The entries whose recipe is stored with them."""
    entries = [formulas.find(request.name)] if request.name else list(formulas.entries.values())
    return [entry for entry in entries if entry.built_by is not None]


def _sources(formulas: Formulas, request: ValidateRequest) -> "tuple[list[Source], list[str]]":
    from torchstone.formula.derive.samples import model_types
    from torchstone.formula.derive.validate_library import source_of

    entries = [formulas.find(request.name)] if request.name else list(formulas.entries.values())
    sources: dict[Source, None] = {}
    not_built = []
    for entry in entries:
        source = source_of(entry, model_types())
        if entry.built_by is not None:
            continue  # measured by what is stored with it
        if source is None:
            not_built.append(with_variant(entry.module_path, entry.variant))
        elif not (request.quick and entry.variant):
            sources[source] = None
    return list(sources), not_built


def _agreeing(found: "Sequence[Validated]", class_path: str | None) -> dict[str, int]:
    agree: dict[str, int] = {}
    for each in found:
        for entry, calls in each.checked.items():
            if class_path is None or entry.partition("[")[0] == class_path:
                agree[entry] = agree.get(entry, 0) + calls
    return dict(sorted(agree.items()))


def _root_causes(differences: "Sequence[Difference]") -> "list[Difference]":
    """Of each entry the first difference; those with a term of their own first, since others follow from them."""
    first: dict[tuple[str, str], Difference] = {}
    for one in differences:
        first.setdefault((one.module_path, one.variant), one)
    return sorted(first.values(), key=lambda one: (not one.term, one.module_path))
