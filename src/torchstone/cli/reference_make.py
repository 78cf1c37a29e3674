"""torchstone reference make MODEL --dir D: everything a bring-up starts from, each part checked."""

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchstone.cli.model_options import ModelRequest, model_options, saved_trace
from torchstone.cli.options import Session, common_options, json_option
from torchstone.cli.progress import step
from torchstone.errors import EXIT_FINDINGS, EXIT_FINE, InputError, ModelError

if TYPE_CHECKING:
    from torchstone.models.loading import Loaded
    from torchstone.record.checklist import Checklist
    from torchstone.record.functions import FunctionUse
    from torchstone.record.trace import Trace
    from torchstone.reference.golden_files import Golden
    from torchstone.report.reference.graph_files import GraphFiles

CHECKLIST_PAGE = "CHECKLIST.md"


@click.command()
@model_options
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Write everything to this folder.",
)
@click.option(
    "--intermediates",
    default="",
    metavar="unique|all|PATTERN",
    help="Keep inputs and outputs of modules, too: one of each kind, all, or those whose path matches (*.mlp).",
)
@click.option("--with-weights", is_flag=True, help="Keep the weights, too; else the source and the seed make them.")
@click.option(
    "--kv-lengths",
    default="128,2048,8192,32768",
    show_default=True,
    metavar="TOKENS,...",
    help="Lengths that the summary gives the size of the KV cache for.",
)
@json_option
@common_options
@click.pass_obj
def command(session: Session, /, request: ModelRequest, *, folder: Path, as_json: bool, **given: Any) -> int:
    """Write what is right about MODEL to a folder: golden data, graph, summary, operators, shapes, parameters.

    MODEL is anything that `torchstone inspect` takes and that has values: a file.py::function, a model of the zoo with
    seeded random weights, tiny:TYPE, a local folder from Hugging Face. It runs on the CPU, five or six times.

    CHECKLIST.md has one box for each of the six deliverables. A box is ticked by checks that ran: read back, run again,
    equal. Exit code 1 when a box stays open.
    """
    lengths = _lengths(given["kv_lengths"])
    _refuse(request)
    loaded = _load(request, session)
    trace = _capture(request, loaded, session)
    if trace.failure is not None:
        return _failed(folder, trace, session)
    with step("running it twice, for golden data", session):
        golden = _golden(request, loaded, trace, given["intermediates"])
    with step("running it once more, to see its torch functions", session):
        functions = _functions(loaded, request.options.seed)
    try:
        with step("writing golden data", session):
            golden = _saved(folder, golden, loaded, with_weights=given["with_weights"])
        seen = _Seen(request=request, loaded=loaded, trace=trace, golden=golden, functions=functions)
        checklist = _documents(folder, seen, lengths, session)
    except OSError as error:
        msg = f"cannot write to {folder}: {error.strerror or error}; choose another --dir"
        raise InputError(msg) from error
    if not session.quiet:
        for note in golden.data.notes:
            click.echo(f"note: {note}", err=True)
    return _show(folder, checklist, session, as_json=as_json)


def _lengths(text: str) -> tuple[int, ...]:
    try:
        lengths = tuple(int(part) for part in text.split(","))
    except ValueError:
        lengths = (0,)
    if min(lengths) < 1:
        msg = f"--kv-lengths {text!r} is no list of token counts; write it as 2048,8192"
        raise click.UsageError(msg)
    return lengths


def _refuse(request: ModelRequest) -> None:
    if request.mode not in ("auto", "cpu"):
        msg = f"golden data needs real values, which --mode {request.mode} does not give; leave --mode out"
        raise click.UsageError(msg)
    if request.backward:
        msg = "a reference is the forward pass; leave --backward out"
        raise click.UsageError(msg)
    if saved_trace(request.model) is not None:
        msg = f"{request.model} holds a capture, which has no values; give the model itself"
        raise InputError(msg)


def _load(request: ModelRequest, session: Session) -> "Loaded":
    with step(f"loading {request.model}", session):
        from torchstone.models.fit import check_fit
        from torchstone.reference.weights import refuse_without_values

        loaded = _built(request)
        refuse_without_values(loaded.model)
        check_fit(loaded.model, loaded.inputs)
    return loaded


def _built(request: ModelRequest) -> "Loaded":
    """The model, with weights that follow from the seed where its code sets none."""
    from torchstone.models.loading import load
    from torchstone.reference.running import seeded

    with seeded(request.options.seed):
        return load(request.model, inputs=request.inputs, options=request.options, device="cpu")


def _capture(request: ModelRequest, loaded: "Loaded", session: Session) -> "Trace":
    with step("running it once, to see every op", session):
        from torchstone.capture.capturing import About, capture
        from torchstone.models.loading import describe_source

        about = About(
            model=describe_source(request.model),
            phase=loaded.inputs.phase,
            inputs=loaded.inputs.origin,
            command=shlex.join(["torchstone", *sys.argv[1:]]),
            notes=loaded.inputs.notes,
        )
        return capture(loaded.model, loaded.inputs, "cpu", about=about)


def _failed(folder: Path, trace: "Trace", session: Session) -> int:
    from torchstone.cli.result_folder import write_trace
    from torchstone.record.checklist import DELIVERABLES, Box, Check, Checklist
    from torchstone.report.inspect_text import failure_text

    words = failure_text(trace)
    check = Check(title="the model runs", passed=False, detail=words.splitlines()[0])
    boxes = tuple(Box(name=name, title=title, files=(), checks=(check,)) for name, title in DELIVERABLES.items())
    write_trace(folder, trace, session)
    _write_checklist(folder, Checklist(model=trace.provenance.model, complete=False, boxes=boxes))
    click.echo(words)
    click.echo("no reference was made: the forward pass fails", err=True)
    return EXIT_FINDINGS


def _golden(request: ModelRequest, loaded: "Loaded", trace: "Trace", intermediates: str) -> "Golden":
    from torchstone.reference.intermediates import chosen_modules
    from torchstone.reference.making import Request, make_golden

    asked = Request(
        model=request.model,
        inputs=request.inputs,
        options=request.options,
        intermediates=intermediates,
        watched=chosen_modules(trace, intermediates),
    )
    return make_golden(loaded.model, loaded.inputs, asked)


def _saved(folder: Path, golden: "Golden", loaded: "Loaded", *, with_weights: bool) -> "Golden":
    from torchstone.reference.golden_files import save_golden

    return save_golden(folder, golden, weights_of=loaded.model if with_weights else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What the runs of a model gave."""

    request: ModelRequest
    loaded: "Loaded"
    trace: "Trace"
    golden: "Golden"
    functions: "tuple[FunctionUse, ...] | None"  # None: the model does not run while somebody listens


def _functions(loaded: "Loaded", seed: int) -> "tuple[FunctionUse, ...] | None":
    from torchstone.reference.functions import used_functions

    try:
        return used_functions(loaded.model, loaded.inputs, seed=seed)
    except ModelError:  # it ran before, so the listening is to blame: the box stays open
        return None


def _documents(folder: Path, seen: _Seen, lengths: tuple[int, ...], session: Session) -> "Checklist":
    with step("writing summary, operators, shapes and graphs", session):
        from torchstone.cost import price
        from torchstone.record.codec import save
        from torchstone.record.cost import Conventions
        from torchstone.record.unique import unique_modules
        from torchstone.report.reference.write_documents import write_documents
        from torchstone.workflows.result_folder import COST_FILE

        trace = seen.trace
        save(folder / "trace.json", trace)
        save(folder / "unique_modules.json", unique_modules(trace))
        save(folder / COST_FILE, price(trace))
        macs = price(trace, Conventions(multiply_add=1))
        graphs = write_documents(folder, trace, macs, lengths, seen.functions or ())
    with step("reading everything back, and running it again", session):
        checklist = _checklist(folder, seen, graphs)
    _write_checklist(folder, checklist)
    return checklist


def _checklist(folder: Path, seen: _Seen, graphs: "tuple[GraphFiles, ...]") -> "Checklist":
    from torchstone.record.checklist import Checklist
    from torchstone.reference.facts import held_shapes, module_paths, parameter_bytes, parameter_count
    from torchstone.reference.golden_checks import golden_box
    from torchstone.reference.sealing import seals
    from torchstone.report.reference.document_checks import ModelFacts, document_boxes

    model = seen.loaded.model
    facts = ModelFacts(
        parameters=parameter_count(model),
        parameter_bytes=parameter_bytes(model),
        held=held_shapes(model),
        modules=module_paths(model),
        function_calls=None if seen.functions is None else sum(use.calls for use in seen.functions),
    )
    golden = golden_box(folder, model, seen.loaded.inputs, seen.golden, lambda: _built(seen.request).model)
    boxes = (golden, *document_boxes(folder, seen.trace, facts, graphs))
    return Checklist(
        model=seen.trace.provenance.model,
        complete=all(box.ticked for box in boxes),
        boxes=boxes,
        seals=seals(folder, (name for box in boxes for name in box.files)),
    )


def _write_checklist(folder: Path, checklist: "Checklist") -> None:
    from torchstone.record.checklist import CHECKLIST_FILE
    from torchstone.record.codec import save, write_atomically
    from torchstone.report.checklist_text import checklist_markdown
    from torchstone.report.render import write_report

    save(folder / CHECKLIST_FILE, checklist)
    write_atomically(folder / CHECKLIST_PAGE, checklist_markdown(checklist).encode())
    write_report(folder)


def _show(folder: Path, checklist: "Checklist", session: Session, *, as_json: bool) -> int:
    from torchstone.record.codec import encode
    from torchstone.report.checklist_text import checklist_text
    from torchstone.report.text import coloured, plain

    if as_json:
        click.echo(encode(checklist))
    else:
        paint = coloured if session.uses_color else plain
        click.echo(checklist_text(checklist, paint), color=session.uses_color)
    if not session.quiet:
        click.echo(f"wrote {folder / CHECKLIST_PAGE} and what it lists; report: {folder / 'report.html'}", err=True)
        click.echo(f"next: torchstone reference compare {folder} YOUR_OUTPUTS.safetensors", err=True)
    return EXIT_FINE if checklist.complete else EXIT_FINDINGS
