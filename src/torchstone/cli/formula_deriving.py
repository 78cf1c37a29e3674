"""From a class, a model or a recipe to its derived formulas: capture and prices meet derivation here."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from torchstone.cli.formula_bench import make_bench
from torchstone.cli.formula_recipe import load_recipe
from torchstone.errors import InputError

if TYPE_CHECKING:
    from torchstone.formula.derive.built_models import Options
    from torchstone.formula.derive.library import Library
    from torchstone.record.formula import FormulaEntry

_TORCH = "torch.nn."


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
    return derive_model_type(model_type_of(class_path, model_types()), path), [class_path]


def derive_model(model: str, path: "Options") -> "tuple[Library, list[str]]":
    """Every class inside a model that transformers can build."""
    library = derive_model_type(model_type_in(model), path)
    return library, [*library.entries, *library.refused]


def derive_model_type(model_type: str, path: "Options") -> "Library":
    """Every class of a model type; in the decode phase, those that do not look at the cache are the usual ones."""
    from torchstone.formula.derive.library import Library

    bench = make_bench("deriving formulas")
    if not path.decode:
        library = Library()
    else:
        usual = derive_model_type(model_type, replace(path, decode=False))
        library = Library(usual=usual)
    library.add_model(model_type, bench, _silent, path)
    return library


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

    make = load_recipe(recipe)
    library = Library()
    library.add_recipe(make, sizes, make_bench("deriving a formula"))
    return library, [class_path]


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
