"""torchstone sweep compare: two runs, and what got worse."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchstone.cli.db_options import db_option, open_store
from torchstone.cli.options import Session, common_options, json_option
from torchstone.cli.sweep_options import folder_option
from torchstone.errors import EXIT_FINDINGS, EXIT_FINE, UnreadableFileError

if TYPE_CHECKING:
    from torchstone.record.vector import SweepRun
    from torchstone.sweep.comparing import Pair, RunComparison

SCHEMA = "torchstone/sweep_comparison/1"
_SHOWN = 10


@click.command(short_help="Regressions between two runs.")
@click.argument("first", metavar="RUN1")
@click.argument("second", metavar="RUN2")
@click.option(
    "--slower-by",
    type=click.FloatRange(min=1),
    default=1.2,
    show_default=True,
    help="A vector that takes so many times as long is a regression, too.",
)
@folder_option
@db_option
@json_option
@common_options
@click.pass_obj
def command(session: Session, /, *, first: str, second: str, slower_by: float, as_json: bool, **given: Any) -> int:
    """Compare RUN1 with RUN2: what failed anew, what is fixed, what became slower.

    A run is the beginning of its name, `last`, or the folder of a run elsewhere; with --db it is a run that the
    database keeps. Times are compared where both runs were made with --perf, and a difference counts only when it is
    larger than the noise of both. Exit code 1 when something got worse.
    """
    del session
    from torchstone.sweep.comparing import compare_runs

    before, after = (_run(name, **given) for name in (first, second))
    found = compare_runs(before, after, slower_by=slower_by)
    click.echo(_document(found) if as_json else _text(found))
    return EXIT_FINDINGS if found.is_worse else EXIT_FINE


def _run(name: str, *, folder: Path, database: str | None) -> "SweepRun":
    from torchstone.sweep.run_folder import RunFolder, find_run

    if database is not None:
        return _kept_run(name, database)
    path = Path(name)
    return RunFolder(path=path).run() if (path / "plan.json").is_file() else find_run(folder, name).run()


def _kept_run(name: str, database: str) -> "SweepRun":
    from torchstone.store.sweeps import read_sweep, sweep_runs

    with open_store(database) as store:
        known = [head.run for head in sweep_runs(store)]
        found = known[-1:] if name == "last" else [one for one in known if one.startswith(name)]
        run = read_sweep(store, found[0]) if len(found) == 1 else None
        if run is None:
            newest = ", ".join(known[-_SHOWN:]) or "none"
            msg = f"{len(found) or 'no'} runs in {store.name} begin with {name!r}; the newest are {newest}"
            raise UnreadableFileError(msg)
    return run


def _document(found: "RunComparison") -> bytes:
    import msgspec

    return msgspec.json.encode({"schema": SCHEMA, **msgspec.to_builtins(found), "is_worse": found.is_worse})


def _text(found: "RunComparison") -> str:
    lines = [
        f"{found.first} -> {found.second}: {len(found.regressions):,} regressions, {len(found.fixed):,} fixed, "
        f"{found.still_failing:,} still fail, {found.still_passing:,} still pass",
        f"{len(found.slower):,} slower, {len(found.faster):,} faster; {found.only_first:,} only in the first, "
        f"{found.only_second:,} only in the second, {found.not_comparable:,} not run in one of them",
    ]
    for title, pairs in (
        ("regressions", found.regressions),
        ("new vectors that fail", found.new_failures),
        ("slower", found.slower),
        ("fails in another way", found.other_failure),
        ("fixed", found.fixed),
    ):
        if pairs:
            lines += ["", f"{title}:", *map(_line, pairs[:_SHOWN])]
            lines += [f"  {len(pairs) - _SHOWN:,} more; --json has all"] if len(pairs) > _SHOWN else []
    return "\n".join(lines)


def _line(pair: "Pair") -> str:
    from torchstone.report.vector_text import short_id
    from torchstone.units import show_seconds

    times = ""
    if pair.before_s is not None and pair.after_s is not None and pair.ratio is not None:
        times = f"  {show_seconds(pair.before_s)} -> {show_seconds(pair.after_s)} ({pair.ratio:.2f}x)"
    detail = f"  {pair.detail}" if pair.detail else ""
    return f"  {short_id(pair.id)}  {pair.op}  {pair.before} -> {pair.after}{times}{detail}"
