"""Derive every model type of transformers, and count whose formulas are right at default sizes.

    PYTHONPATH=src python benchmarks/formula_soundness.py RESULTS.jsonl [MODEL_TYPE ...] [--limit N] [--summary]

Each type is derived in a forked child with a limit on its processor time and memory, at the default configuration of
its class (at a tiny one where the defaults cannot be built, which the result says). The call with the default inputs is
given to the derivation, as `cost --by formula` gives it the traced call. The entries are written to a database file,
read again, and evaluated at this call and at batches and lengths that the derivation did not choose. A result is
appended to the file the moment it exists; types that are in the file are skipped, so an interrupted run goes on where
it ended.

    exact    the whole model has a formula, and it gives the measured FLOPs and bytes at every point
    in part  some classes have formulas, the whole model has none
    refused  no class has a formula; the reason is kept
    wrong    a formula gives another number than the capture, inside its domain
    crashed  the derivation raised an error
    slow     the derivation did not end within the limit on its processor time or memory
    unbuilt  the model itself cannot be built or run on this machine
    package  the model needs a Python package that is not installed
    no class transformers has a configuration of this type, but no model
"""

import sys
import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.model_types import Trial, arguments_of, read_rows, run_types

if TYPE_CHECKING:
    from torchstone.formula.derive.derive_model import ConfiguredModel
    from torchstone.formula.derive.observe import Observation

PROCESSOR_S = 90
MEMORY_BYTES = 7 << 30
POINTS = ((1, 64), (3, 40))


def main() -> int:
    """Run the types that have no result yet, and print the counts."""
    arguments = arguments_of(__doc__).parse_args()
    done = read_rows(arguments.results)
    for row in done.values():
        if row["status"] == "unbuilt":  # rows of earlier runs did not distinguish them
            row["status"] = _why_unbuilt(str(row["detail"]))
    trial = Trial(attempt=_try, processor_s=PROCESSOR_S, memory_bytes=MEMORY_BYTES, warm=("bert", "vit"))
    run_types(trial, arguments, done)
    return 0


def _try(model_type: str) -> dict[str, object]:
    import torch

    torch.set_num_threads(1)
    try:
        model, seen, note = _model(model_type)
    except Exception as error:  # noqa: BLE001 - the model's own code: every failure is a row
        return {"status": _why_unbuilt(_shown(error)), "detail": _shown(error)}
    try:
        return _derived(model, seen, note)
    except Exception as error:  # noqa: BLE001 - a crash is what this measures
        traceback.print_exc()
        return {"status": "crashed", "detail": _shown(error)}


def _why_unbuilt(detail: str) -> str:
    if "transformers has no model class" in detail:
        return "no class"
    return "package" if any(one in detail for one in ("ImportError", "ModuleNotFoundError")) else "unbuilt"


def _model(model_type: str) -> "tuple[ConfiguredModel, list[Observation], str]":
    from torchstone.formula.derive.derive_model import ConfiguredModel
    from torchstone.formula.derive.validate import Options
    from torchstone.models.inputs import InputOptions
    from torchstone.models.pretrained import default_blueprint, find_blueprint, quiet_and_offline
    from torchstone.workflows.formula_derive import make_bench

    bench = make_bench("measuring")
    with quiet_and_offline():
        try:
            model = ConfiguredModel(blueprint=default_blueprint(model_type), bench=bench, options=Options())
            return model, _observed(model, {}), ""
        except Exception as error:  # noqa: BLE001 - defaults that do not fit together are common
            tiny = find_blueprint(f"tiny:{model_type}", InputOptions())
            model = ConfiguredModel(blueprint=tiny, bench=bench, options=Options())
            return model, _observed(model, {}), f"tiny: {_shown(error)[:80]}"


def _observed(model: "ConfiguredModel", sizes: dict[str, int]) -> "list[Observation]":
    """The calls of a fresh capture, at the default inputs or at chosen sizes."""
    from torchstone.formula.derive.observe import observe

    sample = model.sample(sizes, held_out=True)
    if sample is None:
        raise RuntimeError(model.problem)
    return observe(sample)


def _derived(model: "ConfiguredModel", seen: "list[Observation]", note: str) -> dict[str, object]:
    from torchstone.formula.database.files import Formulas, key_of, load_file, save_file
    from torchstone.formula.derive.derive_model import derive_model
    from torchstone.formula.derive.gate import judge
    from torchstone.record.formula import FormulaDatabase

    library = derive_model(model, seen)  # as `cost --by formula` does: the call that is to be priced is known
    root = seen[0].class_name
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "module_db.json"
        entries = {key_of(one.module_path, one.variant): one for one in library.entries.values()}
        save_file(file, FormulaDatabase(modules=entries))
        formulas = Formulas(entries=load_file(file).modules)
    calls = list(seen)
    for batch, length in POINTS:
        try:
            calls += _observed(model, {**dict.fromkeys(model.sizes, length), "B": batch})
        except RuntimeError:
            continue
    verdict = judge(formulas, calls)
    wrong = [f"{one.class_name.rpartition('.')[2]}: {one.text}" for one in verdict.contradictions]
    classes = {one.class_name for one in seen if not one.class_name.startswith("torch.nn.")}
    detail = f"{len(classes & library.entries.keys())} of {len(classes)} classes {note}".strip()
    if wrong:
        return {"status": "wrong", "detail": "; ".join(wrong)[:400], "root": root}
    if root in library.entries and judge(formulas, seen).checked.get(root):
        limits = ", ".join(one for one in library.entries[root].domain if "<=" in one)
        return {"status": "exact", "detail": detail, "root": root, "sizes": list(model.sizes), "domain": limits}
    refused = library.refused.get(root) or next(iter(library.refused.values()), None)
    reason = refused.reason[:300] if refused else "no formula was found"
    if root in library.entries:
        reason = f"the default call is outside its domain: {', '.join(library.entries[root].domain)}"
    return {"status": "in part" if library.entries else "refused", "detail": f"{detail}: {reason}", "root": root}


def _shown(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:240]}"


if __name__ == "__main__":
    sys.exit(main())
