"""A module class, a model or a user's recipe -> derived formula entries; capture and prices meet derivation here."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from torchstone.errors import InputError, MissingExtraError, ModelError
from torchstone.foreign import foreign_code
from torchstone.record.formula import BuiltBy, FormulaEntry, MeasuredCost, Quantity
from torchstone.workflows.progress import SILENT, Progress

if TYPE_CHECKING:
    from torch import nn

    from torchstone.formula.database.files import Formulas
    from torchstone.formula.derive.library import Library
    from torchstone.formula.derive.observe import StorageLifetimes
    from torchstone.formula.derive.samples import Bench, Make
    from torchstone.formula.derive.validate import Options
    from torchstone.models.pretrained import Blueprint
    from torchstone.record.cost import CostTable
    from torchstone.record.op import OpSignature
    from torchstone.record.trace import Trace

_TORCH = "torch.nn."
_PAIR = 2
_HALF_PRECISION = "dtype_bytes == 2"  # the condition of an entry that was measured in bfloat16


@dataclass(frozen=True, slots=True, kw_only=True)
class DeriveRequest:
    """One class, or every class of a model, and the code path to derive."""

    class_path: str = ""
    model: str = ""  # every class of this model; either this or class_path
    recipe: str = ""  # FILE.py::FUNCTION, for a class that torchstone cannot build by itself
    sizes: tuple[str, ...] = ()  # the parameters of the recipe
    attention: str = ""  # "eager": attention written out
    use_cache: bool = True
    decode: bool = False  # one new token after a filled cache, instead of the whole prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class DeriveResult:
    """The requested entries, and the reason for each class that was refused."""

    entries: Sequence[FormulaEntry]
    refused: Mapping[str, str]
    library: "Library"  # all derived formulas, those of inner classes included

    @property
    def complete(self) -> bool:
        """Whether every requested class has a formula."""
        return not self.refused


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedEntries:
    """Where entries were stored."""

    path: Path
    num_entries: int
    damaged: tuple[Path, ...] = ()  # unreadable databases that were moved here


def derive_formulas(request: DeriveRequest, progress: Progress = SILENT) -> DeriveResult:
    """Derive the formulas of a class, or of every class of a model, from captures at several sizes.

    A class whose formula is not exact at every point is refused, with the reason in the result. Nothing is stored (see
    `save_derived`). Raises InputError unless there is either a class or a model, and MissingExtraError without torch or
    transformers.
    """
    if bool(request.class_path) == bool(request.model):
        msg = "give one CLASS, or --all-in MODEL"
        raise InputError(msg)
    path = _code_path(request)
    with progress.step(f"deriving {request.class_path or request.model}"):
        if request.model:
            blueprint = blueprint_of(request.model)
            library = derive_model_type(str(blueprint.config.model_type), path, blueprint)
            requested = [*library.entries, *library.refused]
        elif request.recipe:
            library = derive_recipe(request.recipe, request.sizes)
            requested = [request.class_path]
        else:
            library, requested = _derive_class(request.class_path, path)
    return DeriveResult(
        entries=[library.entries[name] for name in requested if name in library.entries],
        refused={name: _refusal(library, name) for name in requested if name not in library.entries},
        library=library,
    )


def _code_path(request: DeriveRequest) -> "Options":
    make_bench("deriving a formula")  # names a missing package before anything is imported
    from torchstone.formula.derive.validate import Options

    if request.decode and (request.recipe or not request.use_cache):
        msg = f"--phase decode needs a cache; drop {'--recipe' if request.use_cache else '--no-cache'}"
        raise InputError(msg)
    return Options(attention=request.attention, use_cache=request.use_cache, decode=request.decode)


def _refusal(library: "Library", name: str) -> str:
    refused = library.refused.get(name)
    if refused is not None:
        return f"{name}: {refused.reason}"
    others = "; ".join(f"{one.class_name}: {one.reason}" for one in library.refused.values())
    return f"{name} was not seen in any run" + (f" ({others})" if others else "")


def _derive_class(class_path: str, path: "Options") -> "tuple[Library, list[str]]":
    """One class, built alone or inside the model type it belongs to."""
    from torchstone.formula.derive.library import Library, model_type_of
    from torchstone.formula.derive.samples import RECIPES, model_types

    short = class_path.rpartition(".")[2]
    library = Library()
    bench = make_bench("deriving a formula")
    if class_path.startswith(_TORCH) and short in RECIPES:
        library.add_torch(bench, _silent, None if short == "TransformerEncoderLayer" else (short,))
        return library, [name for name in (*library.derived, *library.refused) if name.rpartition(".")[2] == short]
    return derive_model_type(model_type_of(class_path, model_types()), path), [class_path]


def derive_model_type(model_type: str, path: "Options", blueprint: "Blueprint | None" = None) -> "Library":
    """Derive every class of a model type, and judge it at a real configuration: that of the blueprint, or the default.

    In the decode phase, classes that do not receive the cache share the formulas of a forward pass over the prompt.
    """
    bench = make_bench("deriving formulas")
    from torchstone.formula.derive.derive_model import ConfiguredModel, complete_model_type
    from torchstone.formula.derive.library import Library
    from torchstone.formula.derive.tied_weights import free_tying
    from torchstone.models.pretrained import default_blueprint

    base = derive_model_type(model_type, replace(path, decode=False), blueprint) if path.decode else None
    library = Library(base=base)
    library.add_model(model_type, bench, _silent, path)
    chosen = blueprint or default_blueprint(model_type)
    complete_model_type(library, chosen, bench, path)
    free_tying(library, ConfiguredModel(blueprint=chosen, bench=bench, options=path))
    return library


def blueprint_of(model: str) -> "Blueprint":
    """The configuration of a model name; raises InputError for a model that transformers does not build."""
    from torchstone.models.inputs import InputOptions
    from torchstone.models.pretrained import find_blueprint

    if not built_by_transformers(model):
        msg = f"{model} is not a transformers model; derive its classes one by one with --recipe"
        raise InputError(msg)
    return find_blueprint(model, InputOptions())


def built_by_transformers(model: str) -> bool:
    """Whether a model name stands for a configuration, and not for code of the user or an exported file."""
    from torchstone.models.user_code import parse_target

    return parse_target(model) is None and not model.endswith(".pt2")


def derive_recipe(recipe: str, sizes: Sequence[str]) -> "Library":
    """Derive the classes inside a module that a user's function of sizes builds; raises InputError without sizes."""
    if not sizes:
        msg = "--recipe needs --sizes, the names of the sizes that the function takes, such as B,S,hidden_size"
        raise InputError(msg)
    bench = make_bench("deriving a formula")
    from torchstone.formula.derive.derive_recipe import derive_recipe as derive

    return derive(load_recipe(recipe), sizes, bench, BuiltBy(recipe=absolute_recipe(recipe), sizes=tuple(sizes)))


def absolute_recipe(recipe: str) -> str:
    """The recipe with the whole path of its file, so that it is found from any folder."""
    file, separator, function = recipe.partition("::")
    return f"{Path(file).absolute()}{separator}{function}" if separator else recipe


def refute(entry: FormulaEntry, formulas: "Formulas") -> str | None:
    """What fresh captures at hidden points say against an entry of a recipe; "" for nothing, None where none is stored.

    The recipe's file is executed. Raises ModelError where it is gone or fails.
    """
    if entry.built_by is None:
        return None
    bench = make_bench("measuring an entry")
    from torchstone.formula.derive.derive_recipe import remeasure
    from torchstone.formula.derive.op_forms import RefusedError

    if entry.built_by.model:
        return _refute_model(entry, entry.built_by, formulas, bench)
    try:
        make = load_recipe(entry.built_by.recipe)
        return remeasure(formulas, entry, make, entry.built_by.sizes, bench).problem(entry)
    except RefusedError as reason:
        raise ModelError(str(reason)) from reason


def _refute_model(entry: FormulaEntry, built_by: BuiltBy, formulas: "Formulas", bench: "Bench") -> str:
    from torchstone.formula.derive.derive_model import ConfiguredModel, remeasure_model
    from torchstone.formula.derive.validate_library import options_of
    from torchstone.models.pretrained import DEFAULT_OF, default_blueprint

    of_type = built_by.model.removeprefix(DEFAULT_OF)
    blueprint = default_blueprint(of_type) if of_type != built_by.model else blueprint_of(built_by.model)
    options = options_of(entry.variant)
    if _HALF_PRECISION in entry.domain:
        options = replace(options, dtype="bfloat16")
    model = ConfiguredModel(blueprint=blueprint, bench=bench, options=options, sizes=built_by.sizes)
    return remeasure_model(formulas, entry, model).problem(entry)


def save_derived(result: DeriveResult, out: Path | None = None) -> SavedEntries:
    """Store derived entries, and those they call that do not ship, in a file or in the user's own database.

    Entries of the same name are replaced, others stay. Raises InputError where the file cannot be written.
    """
    from torchstone.formula.database.files import add_to_file, save_entries

    everything = with_callees(result.entries, result.library)
    if out is not None:
        add_to_file(out, everything)
        return SavedEntries(path=out, num_entries=len(everything))
    path, aside = save_entries(everything)
    return SavedEntries(path=path, num_entries=len(everything), damaged=() if aside is None else (aside,))


def with_callees(entries: Iterable[FormulaEntry], library: "Library") -> list[FormulaEntry]:
    """The entries, and those that they call at any depth and that do not ship with identical formulas."""
    from torchstone.formula.database.files import key_of, load_shipped

    shipped = load_shipped().modules
    waiting, found = list(entries), {}
    requested = {entry.module_path for entry in waiting}
    while waiting:
        entry = waiting.pop()
        key = key_of(entry.module_path, entry.variant)
        known = shipped.get(key)
        if key in found or (entry.module_path not in requested and known is not None and _same(known, entry)):
            continue
        found[key] = entry
        waiting.extend(library.entries[name] for name in entry.flop_analysis.module_depends)
    return list(found.values())


def _same(one: FormulaEntry, other: FormulaEntry) -> bool:
    return all(one.template(quantity) == other.template(quantity) for quantity in Quantity)


def _silent(_what: str) -> None:
    """Progress of parts is not reported: the whole takes seconds."""


def make_bench(needed_for: str) -> "Bench":
    """The functions that derivation measures with: captures on fake tensors, priced as `torchstone cost` does.

    Stages do not import each other, so capture and cost are passed to derivation from here. Raises MissingExtraError
    without torch or transformers; `needed_for` names the task in its message.
    """
    for package, extra in (("torch", "torch"), ("transformers", "hf")):
        if find_spec(package) is None:
            raise MissingExtraError(needed_for=needed_for, extra=extra)
    from torchstone.formula.derive.samples import Bench

    return Bench(measure=_measure, measure_training=_measure_training, price=_price, lifetimes=_lifetimes)


def _measure(module: "nn.Module", inputs: object) -> "tuple[Trace, CostTable]":
    from torchstone.capture import capture
    from torchstone.cost import price

    trace = capture(module, inputs)
    return trace, price(trace)


def _measure_training(module: "nn.Module", inputs: object) -> "tuple[Trace, CostTable]":
    from torchstone.capture import capture
    from torchstone.cost import price

    trace = capture(module, inputs, backward=True)
    return trace, price(trace)


def _price(signature: "OpSignature") -> tuple[int, int, int]:
    from torchstone.cost.price_trace import price_signature

    price, traffic = price_signature(signature)
    if isinstance(traffic, str):
        return 0, 0, 0
    return price.flops, sum(traffic.reads), sum(traffic.writes)


def _lifetimes(trace: "Trace") -> "StorageLifetimes":
    from torchstone.cost.liveness import lives_of
    from torchstone.cost.storages import find_storages
    from torchstone.formula.derive.observe import StorageLifetimes
    from torchstone.record.cost import Category

    storages = find_storages(trace)
    lives = lives_of(trace, storages)
    counted = [category is not Category.WEIGHTS for category in storages.categories]
    return StorageLifetimes(sizes=storages.sizes, first=lives.first, last=lives.last, counted=counted)


def load_recipe(recipe: str) -> "Make":
    """The function that FILE.py::FUNCTION names, from sizes to a module and its inputs; the file is executed.

    Raises ModelError where there is no such function; the function itself does where the user's code fails.
    """
    from torchstone.models.user_code import UserCode, parse_target

    target = parse_target(recipe)
    if target is None or not target.name:
        msg = f"--recipe {recipe!r} does not name a function; write file.py::function or pkg.mod:function"
        raise ModelError(msg)
    function = UserCode.of(target).attribute(target.name)

    def make(sizes: Mapping[str, int]) -> "tuple[nn.Module, object]":
        with foreign_code() as ran:  # the user's code may raise anything
            result = function(**sizes)
        if ran.error is not None:
            msg = f"{recipe} failed at {_shown(sizes)} with {type(ran.error).__name__}: {ran.error}"
            raise ModelError(msg) from ran.error
        if not isinstance(result, tuple) or len(result) != _PAIR:
            msg = f"{recipe} returned {type(result).__name__}; return the module and its inputs"
            raise ModelError(msg)
        module, inputs = result
        return module.eval(), inputs  # formulas hold for evaluation mode

    return make


def _shown(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sizes.items())


def measure_recipe(
    recipe: str, class_path: str, settings: Sequence[Mapping[str, int]], progress: Progress = SILENT
) -> tuple[list[MeasuredCost], dict[str, str]]:
    """Build a module at each setting, capture and price it; also returns the versions of the libraries.

    Raises ModelError where the recipe fails, builds another class, or runs ops without a price.
    """
    if find_spec("torch") is None:
        raise MissingExtraError(needed_for="measuring a module", extra="torch")
    make = load_recipe(recipe)
    measured: list[MeasuredCost] = []
    versions: dict[str, str] = {}
    for setting in settings:
        with progress.step(f"measuring at {_shown(setting)}"):
            trace, table = _measure(*make(setting))
            _require_class(trace, recipe, class_path)
            if table.unpriced:
                msg = f"{class_path} runs ops without a price ({', '.join(table.unpriced)}), so its cost is not known"
                raise ModelError(msg)
            measured.append(_cost_at(setting, trace, table))
            versions = dict(trace.provenance.versions)
    return measured, versions


def _require_class(trace: "Trace", recipe: str, class_path: str) -> None:
    from torchstone.formula.database.files import public_alias

    if trace.failure is not None:
        msg = f"the module of {recipe} failed: {trace.failure.error}"
        raise ModelError(msg)
    built = trace.provenance.model
    if class_path not in (built, public_alias(built)):
        msg = f"{recipe} builds {built}, not {class_path}"
        raise ModelError(msg)


def _cost_at(setting: Mapping[str, int], trace: "Trace", table: "CostTable") -> MeasuredCost:
    from torchstone.formula.derive.observe import Sample, observe

    totals = table.totals
    root = observe(Sample(trace=trace, table=table, lifetimes=_lifetimes(trace), root=dict(setting)))[0]
    return MeasuredCost(
        parameters=dict(setting),
        flops=totals.flops,
        reads_bytes=totals.bytes_read,
        writes_bytes=totals.bytes_written,
        live_bytes=root.peak_bytes,
        weight_bytes=root.weight_bytes,
    )
