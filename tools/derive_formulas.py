"""Derive the formulas that ship with torchstone anew and write src/torchstone/formula/module_db.json.

Entries written by hand (validator "hand") stay, unless a derived one has the same key.
"""

import argparse
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from time import perf_counter

from torchstone.cli.formula_bench import make_bench
from torchstone.formula.database import load_file, save_file
from torchstone.formula.derive.built_models import Options
from torchstone.formula.derive.library import Library, variant_of
from torchstone.formula.names import key_of
from torchstone.formula.validate_symbolic import confirm_model, with_symbolic_route
from torchstone.record.formula import FormulaDatabase, FormulaEntry

DATABASE = Path(__file__).parents[1] / "src" / "torchstone" / "formula" / "module_db.json"
MODEL_TYPES = (
    "llama", "mistral", "mixtral", "qwen3", "qwen3_moe", "gemma", "gpt2", "bert", "t5", "deepseek_v3", "vit",
)  # fmt: skip
VARIANTS = (Options(), Options(attention="eager"), Options(use_cache=False))
SHORT_OF_VARIANTS = {"bert", "vit"}  # no cache


def main() -> None:
    """Derive, tell what was refused, write the database."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", nargs="*", help="these model types alone, beside torch.nn; other entries stay")
    options.add_argument("--confirm", action="store_true", help="derive nothing; only run the second, symbolic route")
    options.add_argument("--out", type=Path, default=DATABASE)
    given = options.parse_args()
    model_types = MODEL_TYPES if given.only is None else given.only
    entries = _kept(given.out, everything=given.confirm or given.only is not None)
    if not given.confirm:
        _derive(entries, model_types)
    _confirm(entries, model_types)
    save_file(given.out, FormulaDatabase(modules=entries))
    print(f"{len(entries)} entries in {given.out}")


def _derive(entries: dict[str, FormulaEntry], model_types: Iterable[str]) -> None:
    usual = None
    for variant in VARIANTS:
        library = Library(usual=usual)
        library.add_torch(make_bench("deriving formulas"), _tell)
        for model_type in model_types:
            if not variant.use_cache and model_type in SHORT_OF_VARIANTS:
                continue
            start = perf_counter()
            library.add_model(model_type, make_bench("deriving formulas"), _tell, variant)
            print(f"  {perf_counter() - start:.1f} s")
        usual = usual or library
        entries.update({key_of(one.module_path, one.variant): one for one in library.entries.values()})
        for refused in library.refused.values():
            print(f"refused: {refused.class_name}: {refused.reason}")


def _confirm(entries: dict[str, FormulaEntry], model_types: Iterable[str]) -> None:
    """Add the second route to the evidence; a class that it contradicts ends everything."""
    price = make_bench("confirming formulas").price
    for variant, model_type in product(VARIANTS, model_types):
        name = variant_of(variant)
        if not variant.use_cache:
            continue
        result, failure = confirm_model(model_type, entries, price, variant, name)
        print(f"{model_type} {name}: {sum(result.values())} confirmed by symbolic sizes {failure}", flush=True)
        for class_path, equal in result.items():
            key = next(key for key in (key_of(class_path, name), key_of(class_path)) if key in entries)
            if equal:
                entries[key] = with_symbolic_route(entries[key])
            else:
                msg = f"{key}: symbolic sizes lead to another formula"
                raise SystemExit(msg)


def _tell(what: str) -> None:
    print(what, flush=True)


def _kept(path: Path, *, everything: bool) -> dict[str, FormulaEntry]:
    known = load_file(path).modules if path.exists() else {}
    return {key: entry for key, entry in known.items() if everything or entry.validation.validator == "hand"}


if __name__ == "__main__":
    main()
