"""Derive the formulas that ship with torchstone anew and write src/torchstone/formula/module_db.json.

Entries written by hand (validator "hand") stay, unless a derived one has the same key.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from random import Random
from time import perf_counter

import msgspec
from transformers import CONFIG_MAPPING

from torchstone.formula.database.files import Formulas, key_of, load_file, save_file
from torchstone.formula.derive.gate import Contradiction, judge
from torchstone.formula.derive.library import Library
from torchstone.formula.derive.observe import Sample, observe
from torchstone.formula.derive.samples import plan_of, sample_model_randomly
from torchstone.formula.derive.validate import BACKWARD, Options, variant_of
from torchstone.formula.derive.validate_library import confirm_model, with_symbolic_route
from torchstone.record.formula import FormulaDatabase, FormulaEntry, Quantity
from torchstone.workflows.formula_derive import make_bench

DATABASE = Path(__file__).parents[1] / "src" / "torchstone" / "formula" / "module_db.json"
MODEL_TYPES = (
    "llama", "mistral", "mixtral", "qwen3", "qwen3_moe", "gemma", "gpt2", "bert", "t5", "deepseek_v3", "vit",
)  # fmt: skip
VARIANTS = (
    Options(), Options(decode=True), Options(attention="eager"), Options(use_cache=False), Options(backward=True)
)  # fmt: skip
WITHOUT_CACHE = {"bert", "vit"}
_TIED = "tie_word_embeddings"
_LENGTHS = ("B", "S", "S_encoder", "S_decoder", "cache_len")
_COUNTED = (Quantity.FLOPS, Quantity.READS, Quantity.WRITES)


def main() -> None:
    """Derive, tell what was refused, write the database after every model type."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", nargs="*", help="these model types alone, beside torch.nn; other entries stay")
    options.add_argument(
        "--variants", nargs="*", help="these code paths alone, forward passes with the usual one; other entries stay"
    )
    options.add_argument("--confirm", action="store_true", help="derive nothing; only run the second, symbolic route")
    options.add_argument("--out", type=Path, default=DATABASE)
    given = options.parse_args()
    paths = _paths(given.variants)
    partly = given.confirm or given.only is not None or given.variants is not None
    entries = _kept(given.out, everything=partly)
    libraries = {} if given.confirm else _libraries(paths)
    for model_type in given.only or MODEL_TYPES:
        for path in paths:
            if path in libraries and not (_needs_cache(path) and model_type in WITHOUT_CACHE):
                _derive(libraries[path], model_type, path, entries)
                _limit(entries, model_type, path)
            if not _needs_cache(path) and not path.backward:
                _confirm(entries, model_type, path)
        save_file(given.out, FormulaDatabase(modules=entries))
    print(f"{len(entries)} entries in {given.out}")


def _paths(variants: list[str] | None) -> list[Options]:
    """The code paths to derive; a forward pass shares the formulas of the usual one, which comes first."""
    chosen = [one for one in VARIANTS if variants is None or variant_of(one) in variants]
    is_shared = any(not one.backward for one in chosen)
    return [one for one in VARIANTS if one in chosen or (one == Options() and is_shared)]


def _needs_cache(path: Options) -> bool:
    return path.decode or not path.use_cache


def _libraries(paths: Sequence[Options]) -> dict[Options, Library]:
    """A library for each code path; all forward passes begin with torch.nn, which has one code path only."""
    usual = Library()
    if Options() in paths:
        usual.add_torch(make_bench("deriving formulas"), _tell)
    libraries = {
        path: Library() if path.backward
        else Library(base=usual, derived=dict(usual.derived), entries=dict(usual.entries))
        for path in paths
    }  # fmt: skip
    return {**libraries, Options(): usual} if Options() in paths else libraries


def _derive(library: Library, model_type: str, path: Options, entries: dict[str, FormulaEntry]) -> None:
    start = perf_counter()
    library.refused.clear()
    library.add_model(model_type, make_bench("deriving formulas"), _tell, path)
    found = [_settled(one, entries, model_type) for one in library.entries.values()]
    entries.update({key_of(one.module_path, one.variant): one for one in found})
    _tell(f"  {perf_counter() - start:.1f} s")
    for refused in library.refused.values():
        _tell(f"refused: {refused.class_name}: {refused.reason}")


def _limit(entries: dict[str, FormulaEntry], model_type: str, path: Options) -> None:
    """End the domain of formulas above a size of 1 where they are wrong at it: torch takes another path there.

    A formula that no such condition saves is dropped.
    """
    formulas = Formulas(entries=entries)
    contradictions: list[Contradiction] = []
    agreeing: dict[str, list[Mapping[str, int]]] = {}
    for sample in _with_ones(model_type, path):
        verdict = judge(formulas, observe(sample), variant_of(path))
        contradictions += [one for one in verdict.contradictions if one.quantity in _COUNTED]
        for name, sizes in verdict.agreeing.items():
            agreeing.setdefault(name, []).extend(sizes)
    for name in dict.fromkeys(one.class_name for one in contradictions):
        wrong = [one.sizes for one in contradictions if one.class_name == name]
        limit = next(_limits(wrong, agreeing.get(name, [])), None)
        key = key_of(name, variant_of(path))
        _tell(f"{key}: {limit or 'dropped, wrong at sizes of 1'}")
        if limit is None:
            del entries[key]
        else:
            entries[key] = msgspec.structs.replace(entries[key], domain=(*entries[key].domain, limit))


def _with_ones(model_type: str, path: Options) -> Iterator[Sample]:
    """Captures at random sizes, with each choice of batch, lengths and cached tokens as 1."""
    plan = plan_of(model_type, decode=path.decode)
    for point in plan.random_points(Random(5), 2):  # noqa: S311 - not for secrets
        names = [name for name in _LENGTHS if name in point.values]
        for few in (few for count in range(len(names) + 1) for few in combinations(names, count)):
            values = {**point.values, **dict.fromkeys(few, 1)}
            chosen = [replace(point, values=values)]
            yield from sample_model_randomly(model_type, plan, make_bench("deriving formulas"), path, chosen)


def _limits(wrong: Sequence[Mapping[str, int]], right: Sequence[Mapping[str, int]]) -> Iterator[str]:
    names = [name for name in wrong[0] if all(name in one for one in (*wrong, *right))]
    for name in names:
        if all(one[name] == 1 for one in wrong) and all(one[name] > 1 for one in right):
            yield f"{name} > 1"
    for first, second in combinations(names, 2):
        if all(one[first] * one[second] == 1 for one in wrong) and all(one[first] * one[second] > 1 for one in right):
            yield f"{first} * {second} > 1"


def _settled(one: FormulaEntry, entries: Mapping[str, FormulaEntry], model_type: str) -> FormulaEntry:
    """The entry with the settings of its configuration, which are those of the same class on the usual code path.

    The gradient of a tied weight is the sum of two, so that a backward pass depends on that setting, too.
    """
    keys = (key_of(one.module_path, one.variant), key_of(one.module_path))
    known = next((entries[key] for key in keys if key in entries and entries[key].settings), None)
    if one.settings or known is None:
        return one
    settings = dict(known.settings)
    tied = getattr(CONFIG_MAPPING[model_type](), _TIED, None)  # None: there is no embedding that could be
    if BACKWARD in one.variant and tied is not None:
        settings[_TIED] = bool(tied)
    return msgspec.structs.replace(one, settings=settings)


def _confirm(entries: dict[str, FormulaEntry], model_type: str, path: Options) -> None:
    """Add the second route to the evidence; a class that it contradicts ends everything."""
    price = make_bench("confirming formulas").price
    name = variant_of(path)
    result, failure = confirm_model(model_type, entries, price, path, name)
    _tell(f"{model_type} {name}: {sum(result.values())} confirmed by symbolic sizes {failure}")
    for class_path, equal in result.items():
        key = next(key for key in (key_of(class_path, name), key_of(class_path)) if key in entries)
        if not equal:
            msg = f"{key}: symbolic sizes lead to another formula"
            raise SystemExit(msg)
        entries[key] = with_symbolic_route(entries[key])


def _tell(what: str) -> None:
    print(what, flush=True)


def _kept(path: Path, *, everything: bool) -> dict[str, FormulaEntry]:
    known = load_file(path).modules if path.exists() else {}
    return {key: entry for key, entry in known.items() if everything or entry.validation.validator == "hand"}


if __name__ == "__main__":
    main()
