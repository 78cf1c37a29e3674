"""Reference of a model: golden data and documents, each part checked; and the comparison of a port with it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from torchstone.errors import InputError, ModelError
from torchstone.models.inputs import InputOptions
from torchstone.models.load_model import require_existing
from torchstone.record.codec import save, write_atomically
from torchstone.record.folder_lock import exclusive
from torchstone.record.reference import CHECKLIST_FILE, DELIVERABLES, Box, Check, Checklist, Comparison
from torchstone.record.trace import Trace
from torchstone.record.unique import UNIQUE_FILE, unique_modules
from torchstone.workflows.model_source import TRACE_FILE, ModelRequest, name_code, require_values
from torchstone.workflows.progress import SILENT, Progress
from torchstone.workflows.result_folder import COST_FILE, write_result, write_trace, writing_to

if TYPE_CHECKING:
    from torch import nn

    from torchstone.models.load_model import LoadedWithSource
    from torchstone.record.reference import FunctionUse, WeightsSource
    from torchstone.reference.golden_files import Golden
    from torchstone.report.reference.graph_files import GraphFiles

CHECKLIST_PAGE = "CHECKLIST.md"
COMPARISON_FILE = "comparison.json"
KV_LENGTHS = (128, 2048, 8192, 32768)
_DEFAULTS = InputOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceRequest:
    """A named model, the folder for its reference, and which tensors to keep."""

    model: ModelRequest
    folder: Path
    intermediates: str = ""  # modules whose inputs and outputs are kept: unique, all or a pattern of paths
    with_weights: bool = False  # save the weights beside the golden data
    kv_lengths: tuple[int, ...] = KV_LENGTHS  # sequence lengths for which the summary states the size of the KV cache


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceOutcome:
    """A reference and its folder; incomplete where the forward pass or a check failed."""

    folder: Path
    trace: Trace
    checklist: Checklist
    golden: "Golden | None" = field(repr=False)  # None: the forward pass failed, see trace.failure

    @property
    def complete(self) -> bool:
        """Whether every deliverable is there and passed its checks."""
        return self.checklist.complete


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareRules:
    """How a port is compared with golden data."""

    pcc: float | None = None  # minimum PCC to pass, in place of the noise
    profile: str = "default"  # what a correct port may do: exact, default, tt, ...
    partial: bool = False  # accept a port that lacks outputs, or most outputs of modules
    names: Path | Mapping[str, object] | None = None  # a file or a mapping: port name -> golden name


_DEFAULT_RULES = CompareRules()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """A loaded model, where it came from, and how to build it again."""

    loaded: "LoadedWithSource"
    name: str  # "" for a module in memory
    description: str
    inputs: str | None
    options: InputOptions
    command: str
    rebuild: "Callable[[], nn.Module]"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """Which tensors to keep, and the folder."""

    folder: Path
    intermediates: str
    with_weights: bool
    kv_lengths: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Observed:
    """The results of all runs of a model."""

    source: _Source
    trace: Trace
    golden: "Golden"
    functions: "tuple[FunctionUse, ...] | None"  # None: the model does not run while its functions are observed


def write_reference(request: ReferenceRequest, progress: Progress = SILENT) -> ReferenceOutcome:
    """Write the reference of a named model to a folder: golden data, graph, summary, operators, shapes, parameters.

    The model runs on real CPU tensors. A forward pass that fails is a result (`golden` is None). Raises InputError for
    a saved trace, a mode without values, a backward pass, and a folder that cannot be written.
    """
    require_values(request.model, "a reference")
    require_existing(request.model.model, request.model.options)
    name_code(request.model, progress)
    with progress.step(f"loading {request.model.model}"):
        asked = request.model
        source = _named_source(asked.model, asked.inputs, asked.options, command=asked.command)
    plan = _Plan(
        folder=request.folder,
        intermediates=request.intermediates,
        with_weights=request.with_weights,
        kv_lengths=request.kv_lengths,
    )
    return _make(source, plan, progress)


def make_reference(
    model: "str | nn.Module",
    inputs: object,
    folder: Path | str,
    *,
    intermediates: str = "",
    with_weights: bool | None = None,
    options: InputOptions = _DEFAULTS,
) -> ReferenceOutcome:
    """Write the reference of a model to a folder: golden data, graph, summary, operators, shapes, parameters.

    `model` is a module in memory or a model name; `inputs` are its example inputs as `models.load` takes them, None to
    generate them. `intermediates` keeps inputs and outputs of modules, too: "unique", "all" or a pattern of paths. By
    default the weights are kept only for a module in memory, as its source cannot build it again. The module is not
    changed. A forward pass that fails is a result; raises InputError as `write_reference` does.

    >>> import tempfile, torch, torchstone as ts
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = ts.make_reference(torch.nn.Linear(8, 4), torch.ones(2, 8), folder)
    >>> found.checklist.complete
    True
    """
    keeps = not isinstance(model, str) if with_weights is None else with_weights
    plan = _Plan(folder=Path(folder), intermediates=intermediates, with_weights=keeps, kv_lengths=KV_LENGTHS)
    if isinstance(model, str):
        require_values(ModelRequest(model=model), "a reference")
        source = _named_source(model, inputs, options)
    else:
        source = _live_source(model, inputs, options)
    return _make(source, plan, SILENT)


def verify_reference(
    folder: Path,
    *,
    model: str | None = None,
    inputs: str | None = None,
    pcc: float | None = None,
    progress: Progress = SILENT,
) -> Comparison:
    """Build the model of a reference again, run it on the golden inputs and compare the outputs.

    `model` and `inputs` name the model and its inputs where they have moved. Wrong outputs are in the comparison.
    Raises UnreadableFileError for a folder without golden data, ModelError for a model that cannot be built.
    """
    with progress.step(f"replaying {folder}"):
        from torchstone.reference.verify import verify

        return verify(folder, model=model, inputs=inputs, pcc=pcc)


def compare_with_port(
    golden: Path | str,
    outputs: object,
    *,
    rules: CompareRules = _DEFAULT_RULES,
    write: bool = False,
    progress: Progress = SILENT,
) -> Comparison:
    """Compare the outputs of a port with the golden data in a folder, tensor by tensor in order of execution.

    `outputs` is a .safetensors, .npz, .npy, .pt or .tensorbin file, a folder of them, a mapping of names to tensors or
    arrays, or what the port returned: a tensor or any nested value with tensors. Names are those of the golden data
    (`outputs/logits`), shorter ones that are unambiguous (`logits`), or those that `rules.names` gives; other tensors
    are recognised by value and order. Unless `rules.partial`, an output that is missing counts as wrong, and a
    comparison without most outputs of modules does not pass. With `write` the comparison goes to comparison.json beside
    the golden data, and into the report. Raises UnreadableFileError for a file that cannot be read, InputError for
    names that match no golden tensor.
    """
    shown = str(outputs) if isinstance(outputs, str | Path) else "the given outputs"
    with progress.step(f"comparing {shown}"):
        from torchstone.reference.compare_port import compare

        found = compare(golden, outputs, pcc=rules.pcc, profile=rules.profile, partial=rules.partial, names=rules.names)
    if write:
        write_result(Path(golden) / COMPARISON_FILE, found, progress)
    return found


def _named_source(name: str, inputs: object, options: InputOptions, *, command: str = "") -> _Source:
    from torchstone.models.load_model import describe_source, load_with_source
    from torchstone.reference.run_model import seeded

    def built() -> "LoadedWithSource":
        """The model, with weights that follow from the seed where its code sets none."""
        with seeded(options.seed):
            return load_with_source(name, inputs=inputs, options=options, device="cpu")

    return _Source(
        loaded=_with_values(built()),
        name=name,
        description=describe_source(name),
        inputs=inputs if isinstance(inputs, str) else None,
        options=options,
        command=command,
        rebuild=lambda: built().model,
    )


def _live_source(model: "nn.Module", inputs: object, options: InputOptions) -> _Source:
    from torchstone.models.load_model import describe_source, load_with_source

    def rebuild() -> "nn.Module":
        msg = "it was given in memory, so there is no source to build it from; keep its weights: with_weights=True"
        raise InputError(msg)

    return _Source(
        loaded=_with_values(load_with_source(model, inputs=inputs, options=options, device="cpu")),
        name="",
        description=describe_source(model),
        inputs=None,
        options=options,
        command="",
        rebuild=rebuild,
    )


def _with_values(loaded: "LoadedWithSource") -> "LoadedWithSource":
    from torchstone.models.prepare import check_inputs_match
    from torchstone.reference.golden_files import require_values

    require_values(loaded.model)
    check_inputs_match(loaded.model, loaded.inputs)
    return loaded


def _make(source: _Source, plan: _Plan, progress: Progress) -> ReferenceOutcome:
    with exclusive(plan.folder):
        return _made(source, plan, progress)


def _made(source: _Source, plan: _Plan, progress: Progress) -> ReferenceOutcome:
    with progress.step("running the model on real tensors"):
        trace = _captured(source)
    if trace.failure is not None:
        write_trace(plan.folder, trace, progress)
        checklist = _failed_checklist(trace, source.loaded.weights)
        _write_checklist(plan.folder, checklist)
        return ReferenceOutcome(folder=plan.folder, trace=trace, checklist=checklist, golden=None)
    with progress.step("running the model again for golden data"):
        golden = _golden(source, trace, plan.intermediates)
    with progress.step("running the model again for its torch functions"):
        functions = _functions(source)
    with writing_to(plan.folder):
        with progress.step("writing golden data"):
            from torchstone.reference.golden_files import save_golden

            golden = save_golden(plan.folder, golden, weights_of=source.loaded.model if plan.with_weights else None)
        with progress.step("running the model in float64 and with noise"):
            from torchstone.reference.golden_noise import measure_noise, save_noise

            save_noise(plan.folder, measure_noise(golden, source.loaded.model, source.loaded.inputs))
        observed = _Observed(source=source, trace=trace, golden=golden, functions=functions)
        checklist = _write_documents(observed, plan, progress)
    for note in golden.data.notes:
        progress.note(f"note: {note}")
    return ReferenceOutcome(folder=plan.folder, trace=trace, checklist=checklist, golden=golden)


def _captured(source: _Source) -> Trace:
    from torchstone.capture.capture_model import About, capture

    inputs = source.loaded.inputs
    about = About(
        model=source.description,
        phase=inputs.phase,
        inputs=inputs.origin,
        command=source.command,
        notes=inputs.notes,
    )
    return capture(source.loaded.model, inputs, "cpu", about=about)


def _golden(source: _Source, trace: Trace, intermediates: str) -> "Golden":
    from torchstone.reference.make import Request, chosen_modules, make_golden

    asked = Request(
        model=source.name,
        inputs=source.inputs,
        options=_pinned(source),
        intermediates=intermediates,
        watched=chosen_modules(trace, intermediates),
        weights=source.loaded.weights,
    )
    return make_golden(source.loaded.model, source.loaded.inputs, asked)


def _pinned(source: _Source) -> InputOptions:
    """The options to build the model with again: the commit that was read, and never the network."""
    options, found = source.options, source.loaded.weights
    revision = found.revision if found is not None and found.revision else options.revision
    return replace(options, download=False, revision=revision if options.pretrained else None)


def _functions(source: _Source) -> "tuple[FunctionUse, ...] | None":
    from torchstone.reference.run_model import used_functions

    try:
        return used_functions(source.loaded.model, source.loaded.inputs, seed=source.options.seed)
    except ModelError:  # the model ran before, so the observation is the cause: the checklist shows the gap
        return None


def _write_documents(observed: _Observed, plan: _Plan, progress: Progress) -> Checklist:
    with progress.step("writing summary, operators, shapes and graphs"):
        from torchstone.cost.price_trace import price
        from torchstone.record.cost import Conventions
        from torchstone.report.reference.documents import write_documents

        trace = observed.trace
        save(plan.folder / TRACE_FILE, trace)
        save(plan.folder / UNIQUE_FILE, unique_modules(trace))
        save(plan.folder / COST_FILE, price(trace))
        macs = price(trace, Conventions(multiply_add=1))
        graphs = write_documents(plan.folder, trace, macs, plan.kv_lengths, observed.functions or ())
    with progress.step("reading all files back and replaying the golden data"):
        checklist = _checklist(plan.folder, observed, graphs)
    _write_checklist(plan.folder, checklist)
    return checklist


def _checklist(folder: Path, observed: _Observed, graphs: "tuple[GraphFiles, ...]") -> Checklist:
    from torchstone.reference.golden_files import checksums
    from torchstone.reference.run_model import module_paths, parameter_bytes, parameter_count, state_shapes
    from torchstone.reference.verify import golden_box
    from torchstone.report.reference.checks import ModelFacts, document_boxes

    source, functions = observed.source, observed.functions
    model = source.loaded.model
    facts = ModelFacts(
        parameters=parameter_count(model),
        parameter_bytes=parameter_bytes(model),
        held=state_shapes(model),
        modules=module_paths(model),
        function_calls=None if functions is None else sum(use.calls for use in functions),
    )
    golden = golden_box(folder, model, source.loaded.inputs, observed.golden, source.rebuild)
    boxes = (golden, *document_boxes(folder, observed.trace, facts, graphs))
    return Checklist(
        banner=observed.golden.data.banner,
        model=observed.trace.provenance.model,
        complete=all(box.ticked for box in boxes),
        boxes=boxes,
        seals=checksums(folder, (name for box in boxes for name in box.files)),
    )


def _failed_checklist(trace: Trace, weights: "WeightsSource | None") -> Checklist:
    from torchstone.report.text import failure_text

    check = Check(title="the model runs", passed=False, detail=failure_text(trace).splitlines()[0])
    boxes = tuple(Box(name=name, title=title, files=(), checks=(check,)) for name, title in DELIVERABLES.items())
    banner = "" if weights is None else weights.banner
    return Checklist(banner=banner, model=trace.provenance.model, complete=False, boxes=boxes)


def _write_checklist(folder: Path, checklist: Checklist) -> None:
    from torchstone.report.reference_text import checklist_markdown
    from torchstone.report.render import write_report

    save(folder / CHECKLIST_FILE, checklist)
    write_atomically(folder / CHECKLIST_PAGE, checklist_markdown(checklist).encode())
    write_report(folder)
