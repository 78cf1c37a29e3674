"""torchstone formula validate [NAME]: formulas against fresh captures."""

from typing import TYPE_CHECKING

import click

from torchstone.cli.formula_options import load
from torchstone.cli.options import Session, common_options, json_option
from torchstone.cli.progress import step
from torchstone.errors import EXIT_FINDINGS, EXIT_FINE, InputError

if TYPE_CHECKING:
    from torchstone.formula.database import Formulas
    from torchstone.formula.validate import Difference, Validated
    from torchstone.formula.validate_library import Source

SCHEMA = "torchstone/formula_validation/1"


@click.command(short_help="Compare formulas with fresh captures.")
@click.argument("name", required=False)
@click.option(
    "--points", type=click.IntRange(min=1), default=4, show_default=True, help="Random settings of each model."
)
@click.option("--quick", is_flag=True, help="The usual code paths only, two settings of each model.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the random settings.")
@json_option
@common_options
@click.pass_obj
def command(session: Session, /, name: str | None, points: int, *, quick: bool, seed: int, as_json: bool) -> int:
    """Recompute NAME, or every formula at hand, against fresh captures at random settings.

    FLOPs, bytes read and bytes written must be equal, not close. Exit code 1 when one differs; the term that differs is
    named. Entries that nothing can build, such as those of your own classes, are listed as not compared.
    """
    from random import Random

    from torchstone.cli.formula_bench import make_bench

    formulas = load(session)
    bench = make_bench("validating formulas")
    from torchstone.formula.validate_library import validate_sources

    sources, passed_over = _sources(formulas, name, usual_only=quick)
    if name is not None and not sources:
        msg = f"nothing builds {name}, so it cannot be measured; compare it with `torchstone formula agent --recipe`"
        raise InputError(msg)
    found: list[Validated] = []
    with step("capturing and comparing", session):
        found.extend(
            validate_sources(formulas, sources, bench, Random(seed), 2 if quick else points, lambda _: None)  # noqa: S311 - not for secrets
        )
    wanted = None if name is None else formulas.find(name).module_path
    differences = _root_causes([one for each in found for one in each.differences])
    checked = _checked(found, wanted)
    click.echo(
        _document(checked, differences, passed_over, found)
        if as_json
        else _text(checked, differences, passed_over, found)
    )
    return EXIT_FINDINGS if differences else EXIT_FINE


def _sources(formulas: "Formulas", name: str | None, *, usual_only: bool) -> "tuple[list[Source], list[str]]":
    from torchstone.formula.derive.built_models import model_types
    from torchstone.formula.names import with_variant
    from torchstone.formula.validate_library import source_of

    entries = [formulas.find(name)] if name is not None else list(formulas.entries.values())
    sources: dict[Source, None] = {}
    passed_over = []
    for entry in entries:
        source = source_of(entry, model_types())
        if source is None:
            passed_over.append(with_variant(entry.module_path, entry.variant))
        elif not (usual_only and entry.variant):
            sources[source] = None
    return list(sources), passed_over


def _checked(found: "list[Validated]", wanted: str | None) -> dict[str, int]:
    checked: dict[str, int] = {}
    for each in found:
        for entry, calls in each.checked.items():
            if wanted is None or entry.partition("[")[0] == wanted:
                checked[entry] = checked.get(entry, 0) + calls
    return dict(sorted(checked.items()))


def _root_causes(differences: "list[Difference]") -> "list[Difference]":
    """Of each entry the first difference; those with a term of their own first, since others follow from them."""
    first: dict[tuple[str, str], Difference] = {}
    for one in differences:
        first.setdefault((one.module_path, one.variant), one)
    return sorted(first.values(), key=lambda one: (not one.term, one.module_path))


def _text(
    checked: dict[str, int], differences: "list[Difference]", passed_over: list[str], found: "list[Validated]"
) -> str:
    from torchstone.report.text import aligned

    parts = [
        aligned([("class", "calls that agree"), *((name, f"{calls:,}") for name, calls in checked.items())], right=(1,))
    ]
    for one in differences:
        where = ", ".join(f"{name}={value}" for name, value in one.parameters.items())
        parts.append(
            f"differs: {one.module_path} at {where}: "
            f"{one.computed:,} {one.quantity} by formula, {one.measured:,} measured"
            + (f"\n  {one.term}" if one.term else "")
        )
    outside = {name: why for each in found for name, why in each.outside.items() if name not in checked}
    parts += [f"not compared: {why}" for why in outside.values()]
    if passed_over:
        parts.append(f"not compared, since nothing builds them: {', '.join(passed_over)}")
    parts.append(f"{sum(checked.values()):,} calls of {len(checked)} entries agree, {len(differences)} entries differ.")
    return "\n\n".join(parts)


def _document(
    checked: dict[str, int], differences: "list[Difference]", passed_over: list[str], found: "list[Validated]"
) -> bytes:
    import msgspec

    rows = [
        {
            "module_path": one.module_path, "variant": one.variant, "quantity": one.quantity,
            "parameters": dict(one.parameters), "computed": str(one.computed), "measured": one.measured,
            "term": one.term,
        }
        for one in differences
    ]  # fmt: skip
    outside = {name: why for each in found for name, why in each.outside.items() if name not in checked}
    return msgspec.json.encode(
        {
            "schema": SCHEMA,
            "agree": checked,
            "differ": rows,
            "not_compared": {**outside, **dict.fromkeys(passed_over, "")},
        }
    )
