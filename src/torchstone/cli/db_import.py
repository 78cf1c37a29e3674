"""torchstone db import FILE...: traces and master files of other tools into the database."""

from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchstone.cli.db_options import db_option, open_store, with_database
from torchstone.cli.options import Session, common_options, json_option
from torchstone.cli.progress import step
from torchstone.errors import EXIT_FINDINGS, EXIT_FINE

if TYPE_CHECKING:
    from torchstone.configs.exchange import Imported
    from torchstone.store.adding import Added

SCHEMA = "torchstone/db-import/1"
_MOST_UNREAD = 10


@click.command(short_help="Traces and master files of other tools, into the database.")
@click.argument("paths", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--model", default="", metavar="NAME", help="The model of a text trace, which does not name it.")
@click.option("--keep-failing", is_flag=True, help="Take calls of tests that did not pass, too.")
@db_option
@json_option
@common_options
@click.pass_obj
def command(session: Session, /, paths: tuple[Path, ...], *, database: str | None, as_json: bool, **how: Any) -> int:
    """Add the configurations of each FILE to the database; the format is found out by looking.

    Known formats: ttnn master JSON (all layouts), ttnn graph captures and graph reports, folders of ttnn's
    per-operation traces, text traces of aten ops, and what `torchstone db export` and `torchstone trace --store` write.
    What cannot be read is kept as it stands and listed; the exit code is 1 when a part of a file gave no configuration.
    """
    import msgspec

    from torchstone.configs.importing import import_path

    documents = []
    with ExitStack() as opened:
        store = None
        for path in paths:
            with step(f"importing {path}", session):
                imported = import_path(path, **how)
                store = store or opened.enter_context(open_store(database, create=True))  # for a file that was read
                added = store.add(imported.seen, runs=imported.runs)
            document = _document(path, imported, added)
            documents.append(document)
            if not as_json:
                click.echo(_text(document))
            _warn(session, path, imported)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode({"schema": SCHEMA, "files": documents}), indent=1))
    elif not session.quiet:
        click.echo(f"next: {with_database('torchstone ops', database)}", err=True)
    return EXIT_FINDINGS if any(document["unread"] for document in documents) else EXIT_FINE


def _document(path: Path, imported: "Imported", added: "Added") -> dict[str, Any]:
    from torchstone.configs.ttnn_repair import NOT_RECORDED

    everything = [broken for one in imported.seen for broken in one.damage]
    damage = [broken for broken in everything if broken.kind not in NOT_RECORDED]
    absent = Counter(broken.kind for broken in everything if broken.kind in NOT_RECORDED)
    names = [name for one in imported.seen for name in one.foreign if name.hash]
    return {
        "path": str(path),
        "format": ", ".join(sorted({run.format.value for run in imported.runs})),
        "configurations": len(imported.seen),
        "operations": len({one.configuration.op for one in imported.seen}),
        "calls": sum(one.calls for one in imported.seen),
        "new": added.new,
        "known": added.known,
        "damaged": {
            "arguments": len(damage),
            "repaired": sum(broken.repaired for broken in damage),
            "kinds": [
                {"kind": kind, "repaired": repaired, "arguments": count}
                for (kind, repaired), count in Counter((one.kind, one.repaired) for one in damage).most_common()
            ],
        },
        "not_recorded": [{"kind": kind, "arguments": count} for kind, count in absent.most_common()],
        "hashes": {
            "given": len(names),
            "verified": sum(bool(name.rule) for name in names),
            "rules": dict(Counter(name.rule for name in names if name.rule).most_common()),
        },
        "unread": [{"where": part.where, "reason": part.reason} for part in imported.unread],
    }


def _text(document: dict[str, Any]) -> str:
    lines = [
        f"{document['path']} ({document['format']}): {document['configurations']} configurations of "
        f"{document['operations']} ops, {document['new']} new"
    ]
    damaged = document["damaged"]
    if damaged["arguments"]:
        lines.append(f"  {damaged['arguments']} damaged arguments, {damaged['repaired']} repaired:")
        for kind in damaged["kinds"]:
            outcome = "repaired" if kind["repaired"] else "kept as text"
            lines.append(f"  {kind['arguments']:>6}  {kind['kind']}: {outcome}")
    if document["not_recorded"]:
        lines.append(f"  {sum(kind['arguments'] for kind in document['not_recorded'])} arguments not recorded:")
        lines += [f"  {kind['arguments']:>6}  {kind['kind']}: kept as text" for kind in document["not_recorded"]]
    hashes = document["hashes"]
    if hashes["given"]:
        rules = ", ".join(f"{count} by the rule '{rule}'" for rule, count in hashes["rules"].items())
        lines.append(f"  {hashes['verified']} of {hashes['given']} hashes verified" + (f": {rules}" if rules else ""))
    return "\n".join(lines)


def _warn(session: Session, path: Path, imported: "Imported") -> None:
    if session.quiet or not imported.unread:
        return
    click.echo(f"{path}: {len(imported.unread)} parts could not be read:", err=True)
    for part in imported.unread[:_MOST_UNREAD]:
        click.echo(f"  {part.where}: {part.reason}", err=True)
    if len(imported.unread) > _MOST_UNREAD:
        click.echo(f"  and {len(imported.unread) - _MOST_UNREAD} more; --json lists all", err=True)
