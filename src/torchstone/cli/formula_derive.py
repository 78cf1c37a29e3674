"""torchstone formula derive CLASS: the formula of a class from what it runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchstone.cli.options import Session, common_options, json_option
from torchstone.cli.progress import step
from torchstone.errors import EXIT_FINDINGS, EXIT_FINE

if TYPE_CHECKING:
    from torchstone.formula.derive.built_models import Options
    from torchstone.formula.derive.library import Library
    from torchstone.record.formula import FormulaEntry

SCHEMA = "torchstone/formula_derive/1"


@click.command(short_help="Derive the formula of a class from what it runs.")
@click.argument("class_path", metavar="CLASS", required=False)
@click.option("--all-in", "model", metavar="MODEL", help="Derive every class of this model instead of one CLASS.")
@click.option(
    "--recipe",
    metavar="FILE.py::FUNCTION",
    help="For a class of your own: a function from sizes to the module and its inputs.",
)
@click.option("--sizes", metavar="NAME,NAME", help="The sizes that FUNCTION takes, such as B,S,hidden_size.")
@click.option("--attention", type=click.Choice(["eager"]), help="Derive the code path with attention written out.")
@click.option("--no-cache", is_flag=True, help="Derive the code path that fills no cache.")
@click.option(
    "--phase",
    type=click.Choice(["prefill", "decode"]),
    default="prefill",
    show_default=True,
    help="The whole prompt, or one new token after a filled cache.",
)
@click.option("--no-save", is_flag=True, help="Show the formulas and keep nothing.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.json",
    help="Write the entries to this database instead of your own.",
)
@json_option
@common_options
@click.pass_obj
def command(session: Session, /, class_path: str | None, model: str | None, **given: Any) -> int:
    """Derive what CLASS costs as a formula, from what it runs at several sizes.

    CLASS is a path, such as torch.nn.Linear or transformers.models.llama.modeling_llama.LlamaAttention. It is built and
    run on tensors without data; every tensor size is fitted exactly; the formula is kept only if it gives the measured
    FLOPs and bytes at every point, also at points that were not fitted. Otherwise it is refused with the reason, and
    the exit code is 1.
    """
    if (class_path is None) == (model is None):
        msg = "give one CLASS, or --all-in MODEL"
        raise click.UsageError(msg)
    from torchstone.cli.formula_deriving import derive_class, derive_model, derive_recipe

    path = _code_path(given)
    with step(f"deriving {class_path or model}", session):
        if model is not None:
            library, wanted = derive_model(model, path)
        elif given["recipe"] is not None:
            library, wanted = derive_recipe(str(class_path), given["recipe"], _names(given["sizes"]))
        else:
            library, wanted = derive_class(str(class_path), path)
    entries = [library.entries[name] for name in wanted if name in library.entries]
    click.echo(_document(library, entries, wanted) if given["as_json"] else _text(library, entries, wanted))
    if entries and not given["no_save"]:
        _keep(library, entries, given["out"], session)
    return EXIT_FINE if len(entries) == len(wanted) else EXIT_FINDINGS


def _code_path(given: dict[str, Any]) -> "Options":
    from torchstone.cli.formula_bench import make_bench

    make_bench("deriving a formula")  # says what is missing before anything is imported
    from torchstone.formula.derive.built_models import Options

    decode = given["phase"] == "decode"
    if decode and (given["no_cache"] or given["recipe"] is not None):
        msg = f"--phase decode needs a cache; leave {'--no-cache' if given['no_cache'] else '--recipe'} out"
        raise click.UsageError(msg)
    return Options(attention=given["attention"] or "", use_cache=not given["no_cache"], decode=decode)


def _names(text: str | None) -> list[str]:
    names = [name.strip() for name in (text or "").split(",") if name.strip()]
    if not names:
        msg = "--recipe needs --sizes, the names of the sizes that the function takes, such as B,S,hidden_size"
        raise click.UsageError(msg)
    return names


def _text(library: "Library", entries: "list[FormulaEntry]", wanted: list[str]) -> str:
    from torchstone.formula.names import with_variant

    parts = []
    for entry in entries:
        memory, evidence = entry.memory_analysis, entry.evidence
        lines = [
            f"{with_variant(entry.module_path, entry.variant)}({', '.join(entry.all_parameters)})",
            f"  flops   {entry.flop_analysis.formula_template}",
        ]
        if memory is not None:
            lines += [f"  reads   {memory.reads_template}", f"  writes  {memory.writes_template}"]
            lines += [f"  holds   {memory.intermediates_template}"] if memory.intermediates_template else []
            lines += [f"  weights {memory.weights_template}"] if memory.weights_template else []
        lines += [f"  where   {condition}" for condition in entry.domain]
        if evidence is not None:
            lines.append(f"  exact at {evidence.points_checked} settings ({', '.join(evidence.routes)})")
        parts.append("\n".join(lines))
    parts += [f"refused: {_refusal(library, name)}" for name in wanted if name not in library.entries]
    return "\n\n".join(parts)


def _refusal(library: "Library", name: str) -> str:
    refused = library.refused.get(name)
    if refused is not None:
        return f"{name}: {refused.reason}"
    others = "; ".join(f"{one.class_name}: {one.reason}" for one in library.refused.values())
    return f"{name} was not seen in any run" + (f" ({others})" if others else "")


def _document(library: "Library", entries: "list[FormulaEntry]", wanted: list[str]) -> bytes:
    import msgspec

    refused = {name: _refusal(library, name) for name in wanted if name not in library.entries}
    return msgspec.json.encode({"schema": SCHEMA, "entries": entries, "refused": refused})


def _keep(library: "Library", entries: "list[FormulaEntry]", out: Path | None, session: Session) -> None:
    """Write the entries, and those they call that are not known yet."""
    from torchstone.cli.formula_deriving import with_callees
    from torchstone.formula.database import load_file, save_entry, save_file
    from torchstone.formula.names import key_of
    from torchstone.record.formula import FormulaDatabase

    everything = with_callees(entries, library)
    if out is None:
        for entry in everything:
            path, aside = save_entry(entry)
            if aside is not None:
                click.echo(f"torchstone: warning: {path} was damaged; it is kept as {aside}", err=True)
    else:
        path = out
        known = load_file(out).modules if out.exists() else {}
        added = {key_of(entry.module_path, entry.variant): entry for entry in everything}
        save_file(out, FormulaDatabase(modules={**known, **added}))
    if not session.quiet:
        click.echo(f"kept {len(everything)} in {path}", err=True)
