"""torchstone db verify: whether everything in the database holds."""

from collections import Counter

import click

from torchstone.cli.db_options import db_option, open_store
from torchstone.cli.options import Session, common_options, json_option
from torchstone.cli.progress import step
from torchstone.errors import EXIT_FINDINGS, EXIT_FINE

SCHEMA = "torchstone/db-verify/1"
_MOST_SHOWN = 20


@click.command(short_help="Check keys, columns, references and foreign hashes.")
@db_option
@json_option
@common_options
@click.pass_obj
def command(session: Session, /, *, database: str | None, as_json: bool) -> int:
    """Make every key, column and foreign hash again and compare; nothing is changed.

    The exit code is 1 when something does not hold.
    """
    import msgspec

    from torchstone.configs.verifying import check_hashes

    with open_store(database) as store, step(f"verifying {store.name}", session):
        faults = store.faults()
        checks = list(check_hashes(store.configurations())) if not faults else []
        total = store.info().configurations
    unknown = [check for check in checks if not check.rule]
    rules = Counter(check.rule for check in checks if check.rule)
    if as_json:
        document = {
            "schema": SCHEMA,
            "configurations": total,
            "faults": faults,
            "hashes": {"given": len(checks), "verified": len(checks) - len(unknown), "rules": rules},
            "unverified": unknown,
        }
        click.echo(msgspec.json.format(msgspec.json.encode(document), indent=1))
    else:
        found = [f"{fault.where}: {fault.reason}" for fault in faults]
        found += [f"{check.key}: no known rule makes the hash {check.hash}" for check in unknown]
        click.echo(f"{total} configurations, {len(found)} faults")
        click.echo(f"{len(checks) - len(unknown)} of {len(checks)} foreign hashes verified")
        for line in found[:_MOST_SHOWN]:
            click.echo(f"  {line}")
        if len(found) > _MOST_SHOWN:
            click.echo(f"  and {len(found) - _MOST_SHOWN} more; --json lists all")
    return EXIT_FINDINGS if faults or unknown else EXIT_FINE
