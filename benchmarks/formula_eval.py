"""A whole model of 126 layers: its cost from formulas, beside tracing it.

    PYTHONPATH=src python benchmarks/formula_eval.py

Both run in this process, one after the other. "first" reads the database and every formula from scratch, "again" is
the best of some runs after it. The trace is that of `torchstone cost`, with and without the reuse of equal layers.
Times are CPU seconds of this process.
"""

import time
from collections.abc import Callable

from torchstone.formula.database.compute import compute
from torchstone.formula.database.files import Formulas, load_formulas
from torchstone.record.formula import FlopAnalysis, FormulaEntry, MemoryAnalysis, Quantity, Status, Validation

MODEL = "meta-llama/Llama-3.1-405B"
CLASS = "transformers.models.llama.modeling_llama.LlamaForCausalLM"
SIZES = {
    "B": 1,
    "S": 2048,
    "hidden_size": 16384,
    "num_heads": 128,
    "num_kv_heads": 8,
    "intermediate_size": 53248,
    "num_hidden_layers": 126,
    "vocab_size": 128256,
}
QUANTITIES = (Quantity.FLOPS, Quantity.READS, Quantity.WRITES)
RUNS = 20
PROMISED_S = 0.050
PROMISED_RATIO = 100


def main() -> None:
    """Print what was promised beside what was measured."""
    first_s = seconds(from_formulas)
    again_s = min(seconds(from_formulas) for _ in range(RUNS))
    known = with_model(load_formulas())
    warm_s = min(seconds(lambda: evaluate(known)) for _ in range(RUNS))
    print(f"from formulas, first:                     {1e3 * first_s:9.1f} ms")
    print(f"from formulas, again, database read anew: {1e3 * again_s:9.1f} ms")
    print(f"from formulas, database at hand:          {1e3 * warm_s:9.2f} ms (promised: {1e3 * PROMISED_S:.0f} ms)")
    for reuse in (True, False):
        traced_s = trace(reuse=reuse)
        how = "equal layers once" if reuse else "every layer"
        print(f"traced, {how + ':':<34}{1e3 * traced_s:9.0f} ms, {traced_s / warm_s:,.0f} times as long")
    print(f"promised: {PROMISED_RATIO} times or more")


def seconds(function: Callable[[], object]) -> float:
    """CPU time of one call: what a wall clock shows when nobody else works on the machine."""
    start = time.process_time()
    function()
    return time.process_time() - start


def from_formulas() -> dict[Quantity, object]:
    """Read the database and compute the whole model."""
    return evaluate(with_model(load_formulas()))


def evaluate(known: Formulas) -> dict[Quantity, object]:
    """FLOPs and bytes of the model."""
    entry = known.find(CLASS)
    sizes = {name: value for name, value in SIZES.items() if name in entry.all_parameters}
    return {quantity: compute(known, CLASS, quantity, sizes) for quantity in QUANTITIES}


def with_model(known: Formulas) -> Formulas:
    """The database, with a model made of generic blocks where it has no entry for the class."""
    if known.get(CLASS) is not None:
        return known
    block = "{TransformerBlock}(${B}, ${S}, ${hidden_size}, ${num_heads}, ${intermediate_size})"
    head = "{torch.nn.Linear}(${B} * ${S}, ${hidden_size}, ${vocab_size})"
    template = f"${{num_hidden_layers}} * {block} + {head}"
    names = ("B", "S", "hidden_size", "num_heads", "intermediate_size", "num_hidden_layers", "vocab_size")
    entry = FormulaEntry(
        module_path=CLASS,
        flop_analysis=FlopAnalysis(parameters=names, formula_template=template),
        memory_analysis=MemoryAnalysis(parameters=names, reads_template=template, writes_template=template),
        validation=Validation(status=Status.UNCHECKED, validator="benchmark"),
    )
    return Formulas(entries={**known.entries, CLASS.replace(".", "__"): entry})


def trace(*, reuse: bool) -> float:
    """Seconds to capture and price the model; loading torch, the configuration and the model is not counted."""
    from torchstone.capture.capture_model import capture
    from torchstone.cost.price_trace import price
    from torchstone.models.inputs import InputOptions
    from torchstone.models.load_model import load

    model, inputs = load(MODEL, options=InputOptions(batch_size=SIZES["B"], seq_len=SIZES["S"]))
    return seconds(lambda: price(capture(model, inputs, reuse=reuse)))


if __name__ == "__main__":
    main()
