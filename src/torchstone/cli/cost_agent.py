"""torchstone cost MODEL --by formula --agent: what cannot be derived is asked for, measured and judged."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from torchstone.cli.options import Session
from torchstone.cli.progress import step
from torchstone.errors import FormulaError

if TYPE_CHECKING:
    from torchstone.cli.cost import CostOptions
    from torchstone.formula.agent.class_source import ClassSource
    from torchstone.formula.agent.providers import Provider
    from torchstone.formula.database import Formulas
    from torchstone.formula.derive.observation import Sample
    from torchstone.record.formula import FormulaEntry, MeasuredCost
    from torchstone.record.trace import Trace

_ROUNDS = 3
_POINTS = 3  # settings of a transformers model beside the one that was asked about


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """Classes without a formula, each with the reason why it could not be derived, inner ones first."""

    reasons: Mapping[str, str]
    variant: str
    model_type: str | None  # None for a model that transformers does not build


def with_answers(
    formulas: "Formulas", unknown: Unknown, sample: "Sample", options: "CostOptions", session: Session
) -> "tuple[Formulas, dict[str, str]]":
    """The formulas with the answers that are right, kept as pending; and why the other classes have none."""
    from torchstone.cli.formula_provider import chosen_provider
    from torchstone.formula.agent.providers import ProviderError
    from torchstone.formula.database import Formulas, save_entry
    from torchstone.formula.names import key_of

    refused: dict[str, str] = {}
    if not unknown.reasons:
        return formulas, refused
    provider = chosen_provider(options.provider, options.answers, None)
    with step("measuring classes without a formula", session):
        measured = _measured(unknown, sample)
    for name in unknown.reasons:
        try:
            entry, problem = _asked(name, unknown, measured.get(name, []), formulas, provider, sample.trace)
        except ProviderError as error:
            click.echo(f"torchstone: {error} (classes without a formula stay traced only)", err=True)
            return formulas, refused
        except FormulaError as error:
            refused[name] = str(error)
            continue
        if entry is None:
            refused[name] = f"no answer of {provider.name} was right: {problem}"
            continue
        save_entry(entry)
        key = key_of(entry.module_path, entry.variant)
        formulas = Formulas(entries={**formulas.entries, key: entry}, own=formulas.own | {key})
    return formulas, refused


def _asked(
    name: str,
    unknown: Unknown,
    points: "list[MeasuredCost]",
    formulas: "Formulas",
    provider: "Provider",
    trace: "Trace",
) -> "tuple[FormulaEntry | None, str]":
    """The entry that was accepted, or None and what was wrong with the last answer."""
    from torchstone.formula.agent.asking import Subject, ask_for_entry

    subject = Subject(
        class_path=name,
        source=_source(name, trace),
        points=points,
        versions=dict(trace.provenance.versions),
        failure=unknown.reasons[name],
        variant=unknown.variant,
    )
    outcome = ask_for_entry(subject, provider, formulas, rounds=_ROUNDS, told=lambda _number, _problem: None)
    return outcome.entry, outcome.attempts[-1].problem if outcome.attempts else ""


def _measured(unknown: Unknown, sample: "Sample") -> "dict[str, list[MeasuredCost]]":
    """What every call of the classes cost: in this run, and at other sizes where the model can be built at them."""
    from torchstone.formula.derive.observation import observe
    from torchstone.formula.derive.reading import DTYPE_BYTES
    from torchstone.record.formula import MeasuredCost

    measured: dict[str, dict[tuple[tuple[str, int], ...], MeasuredCost]] = {}
    for one in (sample, *_other_samples(unknown)):
        for seen in observe(one):
            if seen.class_name in unknown.reasons and not seen.unpriced:
                sizes = {**seen.reading.sizes, DTYPE_BYTES: seen.reading.dtype_bytes}
                cost = MeasuredCost(
                    parameters=sizes,
                    flops=seen.whole.flops,
                    reads_bytes=seen.whole.reads,
                    writes_bytes=seen.whole.writes,
                )
                measured.setdefault(seen.class_name, {}).setdefault(tuple(sizes.items()), cost)
    return {name: list(found.values()) for name, found in measured.items()}


def _other_samples(unknown: Unknown) -> "Iterator[Sample]":
    from random import Random

    if unknown.model_type is None:
        return
    from torchstone.formula.derive.built_models import plan_of
    from torchstone.formula.derive.sampling import sample_model_randomly
    from torchstone.formula.validate_library import options_of
    from torchstone.workflows.formula_derive import make_bench

    options = options_of(unknown.variant)
    plan = plan_of(unknown.model_type, decode=options.decode)
    points = plan.random_points(Random(0), _POINTS)  # noqa: S311 - not for secrets
    yield from sample_model_randomly(unknown.model_type, plan, make_bench("asking for formulas"), options, points)


def _source(name: str, trace: "Trace") -> "ClassSource":
    """The text of a class: of an installed library, or of the file that the trace names."""
    from pathlib import Path

    from torchstone.formula.agent.class_source import ClassSource, source_of_class
    from torchstone.record.formula import CodeLocation

    try:
        return source_of_class(name)
    except FormulaError:
        where = trace.sources.get(name)
        if where is None or not Path(where.file).is_file():
            raise
    lines = Path(where.file).read_text(encoding="utf-8").splitlines()
    return ClassSource(
        file=Path(where.file),
        location=CodeLocation(file=Path(where.file).name, line_start=where.first_line, line_end=where.last_line),
        text="\n".join(lines[where.first_line - 1 : where.last_line]),
    )
