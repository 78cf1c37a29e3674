"""torchstone ops coverage MODEL: how much of a model is covered by tests that pass."""

import click

from torchstone.cli.db_options import db_option, open_store, query_of
from torchstone.cli.options import Session, common_options, json_option
from torchstone.errors import EXIT_FINDINGS, EXIT_FINE

SCHEMA = "torchstone/op-coverage/1"


@click.command(short_help="How much of a model is covered by tests that pass.")
@click.argument("model")
@click.option("--backend", required=True, metavar="NAME", help="The backend that `torchstone sweep run` ran on.")
@click.option("--top", default=20, show_default=True, type=click.IntRange(min=1), help="Show so many ops.")
@db_option
@json_option
@common_options
@click.pass_obj
def command(session: Session, /, model: str, *, backend: str, top: int, database: str | None, as_json: bool) -> int:
    """Show which share of the calls of MODEL is covered by vectors that pass on a backend.

    MODEL is a model of the database, or a part of its name. A call counts as covered when the newest result of its
    configuration on the backend passed. The exit code is 1 when something fails or was not tested.
    """
    import msgspec

    from torchstone.configs.coverage import coverage_of
    from torchstone.report.coverage_text import coverage_text
    from torchstone.report.text import coloured, plain
    from torchstone.store.sweeps import newest_statuses

    with open_store(database) as store:
        query = query_of(store, model=model, source=None, dtype=None, rank=None)
        statuses = newest_statuses(store, backend)
        coverage = coverage_of(store.configurations(query), statuses, models=query.models or (), backend=backend)
    if as_json:
        totals = {name: getattr(coverage, name) for name in ("calls", "passed_calls", "failed_calls", "share")}
        document = {"schema": SCHEMA, **totals, **msgspec.to_builtins(coverage)}
        click.echo(msgspec.json.format(msgspec.json.encode(document), indent=1))
    else:
        click.echo(coverage_text(coverage, top=top, paint=coloured if session.uses_color else plain))
        if not statuses and not session.quiet:
            click.echo(f"nothing was run on {backend} yet: torchstone sweep run --backend {backend}", err=True)
    return EXIT_FINE if coverage.passed == coverage.configurations else EXIT_FINDINGS
