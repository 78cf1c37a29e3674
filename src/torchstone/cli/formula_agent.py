"""torchstone formula agent CLASS: let an agent write what cannot be derived."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from torchstone.cli.formula_options import load, read_values
from torchstone.cli.formula_provider import chosen_provider, provider_options
from torchstone.cli.options import Session, common_options, json_option
from torchstone.cli.progress import step
from torchstone.errors import EXIT_FINDINGS, EXIT_FINE, FormulaError

if TYPE_CHECKING:
    from torchstone.formula.agent.asking import Outcome, Subject

SCHEMA = "torchstone/formula_agent/1"


@click.command(short_help="Let an agent write what cannot be derived.")
@click.argument("class_path", metavar="CLASS")
@click.option(
    "--recipe",
    required=True,
    metavar="FILE.py::FUNCTION",
    help="A function from parameters to the module and its inputs.",
)
@click.option(
    "--at",
    "settings",
    multiple=True,
    required=True,
    metavar="'B=2 S=16 ...'",
    help="A setting of the parameters to measure at; give several, with different sizes.",
)
@provider_options
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1, 20), help="Ask so many times at most.")
@click.option(
    "--because",
    default="",
    metavar="TEXT",
    help="Do not try to derive the formula: tell the agent this reason instead.",
)
@json_option
@common_options
@click.pass_obj
def command(session: Session, /, *, class_path: str, settings: tuple[str, ...], as_json: bool, **how: Any) -> int:
    """Let an agent write the formulas of CLASS, and keep them if they are right at every measured point.

    The answer is data in the language of formulas, never code. What is wrong with it goes back to the agent; after the
    last round nothing is kept. An accepted entry stays pending until you run `torchstone formula approve CLASS`.
    """
    from torchstone.formula.agent.asking import ask_for_entry
    from torchstone.formula.agent.class_source import source_of_class
    from torchstone.formula.database import save_entry

    source = source_of_class(class_path)
    provider = chosen_provider(how["provider"], how["answers"], source.file.parent)
    formulas = load(session)
    subject = _subject(class_path, settings, session, source=source, how=how)

    def told(number: int, problem: str) -> None:
        if not session.quiet:
            click.echo(f"round {number}: {problem or 'right at every measured point'}", err=True)

    outcome = ask_for_entry(subject, provider, formulas, rounds=how["rounds"], told=told)
    if outcome.entry is not None:
        path, aside = save_entry(outcome.entry)
        if aside is not None:
            click.echo(f"torchstone: warning: {path} was damaged; it is kept as {aside}", err=True)
    click.echo(_document(class_path, outcome) if as_json else _text(class_path, outcome))
    return EXIT_FINDINGS if outcome.entry is None else EXIT_FINE


def _subject(
    class_path: str, settings: tuple[str, ...], session: Session, *, source: Any, how: Mapping[str, Any]
) -> "Subject":
    from torchstone.cli.formula_measuring import measure_all
    from torchstone.formula.agent.asking import Subject

    chosen = [_setting(one) for one in settings]
    failure = how["because"] or _why_not_derived(class_path, how["recipe"], list(chosen[0]), session)
    points, versions = measure_all(how["recipe"], class_path, chosen, session)
    return Subject(class_path=class_path, source=source, points=points, versions=versions, failure=failure)


def _why_not_derived(class_path: str, recipe: str, sizes: list[str], session: Session) -> str:
    """The reason why derivation refuses the class; one that can be derived needs no agent."""
    from torchstone.cli.formula_deriving import derive_recipe

    with step(f"trying to derive {class_path}", session):
        from torchstone.formula.derive.op_forms import RefusedError

        try:
            library, _ = derive_recipe(class_path, recipe, sizes)
        except RefusedError as reason:
            return str(reason)
    if class_path in library.entries:
        msg = (
            f"{class_path} needs no agent, it can be derived: "
            f"torchstone formula derive {class_path} --recipe {recipe} --sizes {','.join(sizes)}"
        )
        raise FormulaError(msg)
    refused = library.refused.get(class_path)
    return "" if refused is None else refused.reason


def _setting(text: str) -> dict[str, int]:
    values = read_values(text.replace(",", " ").split())
    broken = [name for name, value in values.items() if not isinstance(value, int)]
    if broken or not values:
        msg = f"--at {text!r} is no setting of whole numbers, such as 'B=2 S=16'"
        raise click.UsageError(msg)
    return {name: int(value) for name, value in values.items()}


def _text(class_path: str, outcome: "Outcome") -> str:
    if outcome.entry is None:
        return f"nothing was kept for {class_path}: {outcome.attempts[-1].problem}"
    return f"kept {class_path} as pending; look at it with `torchstone formula show {class_path}`"


def _document(class_path: str, outcome: "Outcome") -> str:
    import json

    import msgspec

    return json.dumps(
        {
            "schema": SCHEMA,
            "module_path": class_path,
            "accepted": outcome.entry is not None,
            "problems": [attempt.problem for attempt in outcome.attempts],
            "entry": msgspec.to_builtins(outcome.entry),
        },
        indent=1,
    )
