"""torchstone sweep generate: configurations or a sweep module -> vectors."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchstone.cli.db_options import database_address, db_option, open_store
from torchstone.cli.options import Session, common_options, json_option
from torchstone.cli.progress import step
from torchstone.cli.sweep_options import folder_option, hint, opened_executor, unknown_name
from torchstone.errors import EXIT_FINDINGS, EXIT_FINE, InputError

if TYPE_CHECKING:
    from torchstone.record.config import SeenConfiguration
    from torchstone.record.vector import Vector
    from torchstone.sweep.choosing import Choice

SCHEMA = "torchstone/sweep_generate/1"
_ROLES = ("compute", "view", "random", "factory")


@click.command(short_help="Vectors from the database or from a sweep module.")
@click.option("--op", metavar="OP", help="The configurations of one op, such as aten.mm.default.")
@click.option("--model", metavar="MODEL", help="The configurations that a model, test or script called.")
@click.option("--all", "everything", is_flag=True, help="All configurations of the database.")
@click.option(
    "--module-name",
    metavar="FILE|NAME",
    help="A sweep module: a file, or its name below --modules, such as eltwise.add.",
)
@click.option(
    "--modules",
    "modules_folder",
    type=click.Path(path_type=Path, file_okay=False),
    default="sweeps",
    show_default=True,
    help="The folder of sweep modules.",
)
@click.option(
    "--suite", "--suite-name", "suite", metavar="NAME", help="Only this suite of a module; a name for others."
)
@click.option("--budget", metavar="TIME", help="Choose vectors that run in about 90s, 10m or 1h, to cover most.")
@click.option("--neighbours", is_flag=True, help="Add variations: other sizes, element types and strides.")
@click.option(
    "--roles",
    metavar="NAMES",
    default="compute,view,random",
    show_default=True,
    help="Which ops: compute, view, random, factory.",
)
@click.option("--allow-empty", is_flag=True, help="No vectors at all is not a failure.")
@folder_option
@db_option
@json_option
@common_options
@click.pass_obj
def command(session: Session, /, folder: Path, **given: Any) -> int:
    """Make vectors: one test for each distinct way that an op is called.

    Choose the source with one of --op, --model, --all or --module-name. A vector is named after its configuration, so
    the same call has the same name in every database. A call that cannot be made here stays, marked as not valid, with
    the reason. Exit code 1 when there is no valid vector, unless --allow-empty is given.
    """
    chosen = [name for name in ("op", "model", "everything", "module_name") if given[name]]
    if len(chosen) != 1:
        msg = "give one of --op, --model, --all or --module-name"
        raise click.UsageError(msg)
    from torchstone.sweep.choosing import parse_duration

    budget_s = parse_duration(given["budget"]) if given["budget"] else None
    with step("making vectors", session):
        if given["module_name"]:
            from torchstone.cli.sweep_modules import module_vectors

            vectors = module_vectors(given)
        else:
            vectors = _traced_vectors(given)
        choice = _chosen(vectors, budget_s, folder)
    changed = _write(folder, list(choice.vectors))
    summary = _summary(choice, vectors, given)
    click.echo(_document(summary) if given["as_json"] else _text(summary))
    hint(
        session,
        f"{changed} files changed in {folder / 'vectors'}\nnext: torchstone sweep run --dir {folder} --backend eager",
    )
    return EXIT_FINE if summary["valid"] or given["allow_empty"] else EXIT_FINDINGS


def _traced_vectors(given: dict[str, Any]) -> "list[Vector]":
    from torchstone.record.task import Limits
    from torchstone.sweep.environments import checking_environment
    from torchstone.sweep.generating import generate
    from torchstone.sweep.vectors import TRACED

    roles = _roles(given["roles"])
    seen = _seen(given)
    if not seen:
        return []
    with opened_executor(checking_environment(), jobs=1, limits=Limits(), given={}) as executor:
        return generate(seen, executor, suite=given["suite"] or TRACED, neighbours=given["neighbours"], roles=roles)


def _roles(text: str) -> frozenset[str]:
    roles = frozenset(part.strip() for part in text.split(",") if part.strip())
    strange = sorted(roles - set(_ROLES))
    if strange or not roles:
        msg = f"--roles {text!r}: give some of {', '.join(_ROLES)}"
        raise InputError(msg)
    return roles


def _seen(given: dict[str, Any]) -> "list[SeenConfiguration]":
    from torchstone.store.reading import Query

    database = database_address(given["database"])
    with open_store(database) as store:
        if given["op"]:
            known = store.op_names()
            if given["op"] not in known:
                raise unknown_name("op", given["op"], known, database)
        if given["model"]:
            return _of_model(store, given["model"], database)
        return list(store.configurations(Query(op=given["op"])))


def _of_model(store: Any, model: str, database: str) -> "list[SeenConfiguration]":
    """The configurations of a model, or else those of a test or script of that name."""
    from torchstone.store.reading import Query

    if model in store.models():
        return list(store.configurations(Query(model=model)))
    if model in store.sources():
        return list(store.configurations(Query(source=model)))
    raise unknown_name("model", model, [*store.models(), *store.sources()], database)


def _chosen(vectors: "list[Vector]", budget_s: float | None, folder: Path) -> "Choice":
    from torchstone.sweep.choosing import choose
    from torchstone.sweep.run_folder import runs_in

    known_s: dict[str, float] = {}
    if budget_s is not None:
        for run in runs_in(folder):
            known_s |= {result.id: result.elapsed_s for result in run.results().values()}
    return choose(vectors, budget_s, known_s)


def _write(folder: Path, vectors: "list[Vector]") -> int:
    from torchstone.record.vector import VectorFile
    from torchstone.sweep.vector_folder import write_vectors

    by_module: dict[str, list[Vector]] = {}
    for vector in vectors:
        by_module.setdefault(vector.module, []).append(vector)
    files = [VectorFile(module=name, vectors=tuple(group)) for name, group in by_module.items()]
    try:
        return len(write_vectors(folder, files))
    except OSError as error:
        msg = f"cannot write to {folder}: {error.strerror or error}; choose another --dir"
        raise InputError(msg) from error


def _summary(choice: "Choice", vectors: "list[Vector]", given: dict[str, Any]) -> dict[str, Any]:
    reasons: dict[str, int] = {}
    for vector in choice.vectors:
        if vector.reason:
            reasons[vector.reason] = reasons.get(vector.reason, 0) + 1
    suites: dict[str, int] = {}
    for vector in choice.vectors:
        suites[vector.suite] = suites.get(vector.suite, 0) + 1
    return {
        "schema": SCHEMA,
        "modules": len({vector.module for vector in choice.vectors}),
        "vectors": len(choice.vectors),
        "valid": sum(1 for vector in choice.vectors if not vector.reason),
        "suites": suites,
        "left_out": len(vectors) - len(choice.vectors),
        "expected_s": choice.expected_s,
        "clusters": {"covered": choice.clusters[0], "all": choice.clusters[1]},
        "calls": {"covered": choice.calls[0], "all": choice.calls[1]},
        "invalid": dict(sorted(reasons.items(), key=lambda item: -item[1])),
        "budget": given["budget"],
    }


def _document(summary: dict[str, Any]) -> bytes:
    import msgspec

    return msgspec.json.encode(summary)


def _text(summary: dict[str, Any]) -> str:
    from torchstone.units import show_seconds

    suites = ", ".join(f"{count:,} in {suite}" for suite, count in summary["suites"].items())
    lines = [f"{summary['vectors']:,} vectors of {summary['modules']:,} modules ({suites or 'no suite'})"]
    lines.append(f"{summary['valid']:,} are valid and take about {show_seconds(summary['expected_s'])}")
    if summary["budget"]:
        covered, calls = summary["clusters"], summary["calls"]
        lines.append(
            f"in the budget of {summary['budget']}: {covered['covered']:,} of {covered['all']:,} clusters, "
            f"{calls['covered']:,} of {calls['all']:,} calls; {summary['left_out']:,} vectors left out"
        )
    lines += [f"{count:,} not valid: {reason}" for reason, count in summary["invalid"].items()]
    return "\n".join(lines)
