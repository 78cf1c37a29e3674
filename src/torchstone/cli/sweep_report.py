"""torchstone sweep report: the results of a sweep, on the terminal, as JSON or as a page."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchstone.cli.db_options import db_option, open_store
from torchstone.cli.options import Session, common_options, json_option
from torchstone.cli.sweep_options import folder_option, hint
from torchstone.errors import InputError, UnreadableFileError

if TYPE_CHECKING:
    from torchstone.record.vector import SweepHistory


@click.command(short_help="Results and their history.")
@click.argument("run", required=False, default="last", metavar="[RUN]")
@click.option("--vector-id", default="", metavar="ID", help="The history of one vector.")
@click.option("--html", is_flag=True, help="Write report.html to the folder: history, causes, backends side by side.")
@click.option("--limit", type=click.IntRange(min=1), default=10, show_default=True, help="Show so many causes.")
@folder_option
@db_option
@json_option
@common_options
@click.pass_obj
def command(session: Session, /, run: str, folder: Path, **given: Any) -> None:
    """Show RUN (the beginning of its name is enough; without it the newest), and how backends compare.

    With --db the runs are read from a database, else from the folder.
    """
    history = _history(folder, given["database"])
    if given["html"]:
        _write_page(folder, history, session)
    if given["vector_id"]:
        click.echo(_vector(history, given["vector_id"], as_json=given["as_json"]))
    elif given["as_json"]:
        from torchstone.record.codec import encode

        click.echo(encode(history))
    else:
        click.echo(_text(history, run, folder, given["limit"], session))


def _history(folder: Path, database: str | None) -> "SweepHistory":
    from torchstone.record.vector import SweepHistory

    if database is not None:
        from torchstone.store.sweeps import read_sweep, sweep_runs

        with open_store(database) as store:
            heads = sweep_runs(store)
            runs = tuple(run for head in heads if (run := read_sweep(store, head.run)) is not None)
        found = SweepHistory(runs=runs)
    else:
        from torchstone.sweep.run_folder import runs_in
        from torchstone.sweep.wording import call_text

        folders = runs_in(folder)
        texts = {vector.id: call_text(vector) for one in folders for vector in one.plan().vectors}
        found = SweepHistory(runs=tuple(one.run() for one in folders), texts=texts)
    if not found.runs:
        where = folder if database is None else database
        msg = f"{where} holds no run; make one with `torchstone sweep run`"
        raise UnreadableFileError(msg)
    return found


def _text(history: "SweepHistory", name: str, folder: Path, limit: int, session: Session) -> str:
    from torchstone.report.text import coloured, plain
    from torchstone.report.vector_text import run_text, side_by_side_text

    paint = coloured if session.uses_color else plain
    found = [history.runs[-1]] if name == "last" else [run for run in history.runs if run.run.startswith(name)]
    if len(found) != 1:
        known = ", ".join(run.run for run in history.runs[-5:])
        msg = (
            f"{'no run' if not found else f'{len(found)} runs'} in {folder} begin with {name!r}; the newest are {known}"
        )
        raise UnreadableFileError(msg)
    parts = [run_text(found[0], limit=limit, paint=paint)]
    if len(history.newest) > 1:
        parts.append(side_by_side_text(history, limit=limit, paint=paint))
    return "\n\n".join(parts)


def _vector(history: "SweepHistory", identity: str, *, as_json: bool) -> str | bytes:
    from torchstone.report.vector_text import vector_text

    told = [(run, result) for run in history.runs for result in run.results if result.id.startswith(identity)]
    if not told:
        told = [
            (run, one) for run in history.runs for one in run.results if one.id.partition("-")[2].startswith(identity)
        ]
    if len({result.id for _, result in told}) != 1:
        what = "no vector" if not told else "several vectors"
        msg = f"{what} begin with {identity!r}; `torchstone sweep report --json` lists them"
        raise InputError(msg)
    if as_json:
        import msgspec

        return msgspec.json.encode([{"run": run.run, "backend": run.backend, "result": result} for run, result in told])
    return vector_text(told, history.texts.get(told[0][1].id, ""))


def _write_page(folder: Path, history: "SweepHistory", session: Session) -> None:
    from torchstone.record.codec import save
    from torchstone.report.render import write_report
    from torchstone.report.sections.sweep import FILE

    try:
        save(folder / FILE, history)
        page = write_report(folder)
    except OSError as error:
        msg = f"cannot write to {folder}: {error.strerror or error}; choose another --dir"
        raise InputError(msg) from error
    hint(session, f"wrote {page}\nnext: torchstone serve {folder}")
