"""From a class, a model or a recipe to its derived formulas: capture and prices meet derivation here."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from torchstone.cli.formula_bench import make_bench
from torchstone.errors import InputError, ModelError

if TYPE_CHECKING:
    from torchstone.formula.derive.built_models import Options
    from torchstone.formula.derive.library import Library
    from torchstone.record.formula import FormulaEntry

_TORCH = "torch.nn."
_PAIR = 2


def derive_class(class_path: str, path: "Options") -> "tuple[Library, list[str]]":
    """One class, seen alone or inside the model type it belongs to."""
    from torchstone.formula.derive.built_models import model_types
    from torchstone.formula.derive.built_modules import RECIPES
    from torchstone.formula.derive.library import Library, model_type_of

    short = class_path.rpartition(".")[2]
    library = Library()
    bench = make_bench("deriving a formula")
    if class_path.startswith(_TORCH) and short in RECIPES:
        library.add_torch(bench, _silent, None if short == "TransformerEncoderLayer" else (short,))
        return library, [name for name in (*library.derived, *library.refused) if name.rpartition(".")[2] == short]
    library.add_model(model_type_of(class_path, model_types()), bench, _silent, path)
    return library, [class_path]


def derive_model(model: str, path: "Options") -> "tuple[Library, list[str]]":
    """Every class inside a model that transformers can build."""
    from torchstone.formula.derive.library import Library

    library = Library()
    bench = make_bench("deriving formulas")
    library.add_model(model_type_in(model), bench, _silent, path)
    return library, [*library.entries, *library.refused]


def model_type_in(model: str) -> str:
    """The model type behind the name of a model."""
    from torchstone.models.inputs import InputOptions
    from torchstone.models.pretrained import find_blueprint

    if not built_by_transformers(model):
        msg = f"{model} is no model of transformers; derive its classes one by one with --recipe"
        raise InputError(msg)
    return str(find_blueprint(model, InputOptions()).config.model_type)


def built_by_transformers(model: str) -> bool:
    """Whether a name stands for a configuration, and not for code of the user or an exported file."""
    from torchstone.models.user_code import parse_target

    return model.startswith("tiny:") or (parse_target(model) is None and not model.endswith(".pt2"))


def derive_recipe(class_path: str, recipe: str, sizes: list[str]) -> "tuple[Library, list[str]]":
    """A class of the user's own, built by a function of sizes."""
    from torchstone.formula.derive.library import Library

    make = _function(recipe)
    library = Library()
    bench = make_bench("deriving a formula")
    library.add_recipe(lambda values: _made(make, recipe, values), sizes, bench)
    return library, [class_path]


def _function(recipe: str) -> Any:
    from torchstone.models.user_code import UserCode, parse_target

    target = parse_target(recipe)
    if target is None or not target.name:
        msg = f"--recipe {recipe!r} names no function; write file.py::function or pkg.mod:function"
        raise ModelError(msg)
    return UserCode.of(target).named(target.name)


def _made(make: Any, recipe: str, values: Mapping[str, int]) -> tuple[Any, Any]:
    try:
        made = make(**values)
    except Exception as error:  # the user's code may raise anything
        shown = ", ".join(f"{name}={value}" for name, value in values.items())
        msg = f"{recipe} stops at {shown} with {type(error).__name__}: {error}"
        raise ModelError(msg) from error
    if not isinstance(made, tuple) or len(made) != _PAIR:
        msg = f"{recipe} gave {type(made).__name__}; return the module and its inputs"
        raise ModelError(msg)
    return made


def with_callees(entries: "Iterable[FormulaEntry]", library: "Library") -> "list[FormulaEntry]":
    """The entries, and those that they call at any depth and that the shipped database has not in the same words."""
    from torchstone.formula.database import load_shipped
    from torchstone.formula.names import key_of

    shipped = load_shipped().modules
    waiting, found = list(entries), {}
    asked = {entry.module_path for entry in waiting}
    while waiting:
        entry = waiting.pop()
        key = key_of(entry.module_path, entry.variant)
        known = shipped.get(key)
        if key in found or (entry.module_path not in asked and known is not None and _same(known, entry)):
            continue
        found[key] = entry
        waiting.extend(library.entries[name] for name in entry.flop_analysis.module_depends)
    return list(found.values())


def _same(one: "FormulaEntry", other: "FormulaEntry") -> bool:
    from torchstone.record.formula import Quantity

    return all(one.template(quantity) == other.template(quantity) for quantity in Quantity)


def _silent(_what: str) -> None:
    """Progress of parts is not told: the whole takes seconds."""
