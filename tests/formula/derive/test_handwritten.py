"""Modules as people write them: the stored formula is the measured cost at every size in its domain."""

from collections.abc import Mapping
from itertools import cycle, islice

import pytest

from tests.formula.derive.benches import bench
from tests.formula.derive.branching import Made
from tests.formula.derive.handwritten import HANDWRITTEN as PLAIN
from tests.formula.derive.handwritten import Make
from tests.formula.derive.handwritten_branches import BRANCHES
from torchstone.errors import ModelError, OutsideDomainError
from torchstone.formula.database.compute import compute
from torchstone.formula.derive.derive_recipe import derive_recipe
from torchstone.formula.derive.gate import formulas_of
from torchstone.record.formula import Quantity

HANDWRITTEN = {**PLAIN, **BRANCHES}
QUICK = {"Doubling", "Pools", "Spectrum", "TwoThresholds"}
# The others are exact or refused in a sentence.
EXACT = {
    "EvenBatch", "Gated", "GlobalPool", "PaddedTo64", "Routed", "SecretLength", "Shuffled", "Summed", "Thresholds",
    "Adaptive", "Chunks", "ConvTranspose2d", "Doubling", "LSTM", "MultiheadAttention", "Normalized", "Overlapping",
    "PaddedWindows", "Pools", "Scan", "Spectrum", "Stack", "TwoThresholds", "Upsampled", "Window", "OddTail",
    "SingleSample", "LayerPerWidth", "TwoModuli", "Causal", "Repeated", "CrossAttention", "Unet", "PadToSquare",
}  # fmt: skip
SIZES = (64, 17, 1, 33, 8, 128, 32, 100, 63, 16, 2, 96, 65, 31, 127, 4)
FEW = (2, 1, 4, 3, 8)
COUNTED = (2, 1, 3)
MULTIPLES = {"hidden_size": "heads", "d_model": "nhead", "embed_dim": "num_heads"}
QUANTITIES = (Quantity.FLOPS, Quantity.READS, Quantity.WRITES)


def points(names: tuple[str, ...]) -> list[dict[str, int]]:
    """Twelve points of even, odd, divisible and single sizes; widths are multiples of the heads."""
    heads = ("B", *MULTIPLES.values())
    values = {name: COUNTED if "layer" in name else FEW if name in heads else SIZES for name in names}
    columns = {name: islice(cycle(values[name]), start, None) for start, name in enumerate(names)}
    found = [{name: next(column) for name, column in columns.items()} for _ in range(12)]
    for point in found:
        for whole, part in MULTIPLES.items():
            if whole in point and part in point:
                point[whole] = point[part] * 16
    return found


def measured(name: str, point: Mapping[str, int]) -> tuple[int, int, int] | None:
    """The totals of a capture; None where the module does not take the sizes."""
    make, _ = HANDWRITTEN[name]
    module, inputs = make(point)
    trace, table = bench().measure(module.eval(), inputs)
    totals = table.totals
    return None if trace.failure is not None else (totals.flops, totals.bytes_read, totals.bytes_written)


def _as_recipe(make: Make) -> Make:
    """What cannot be built is an error of the model, as for a recipe in a file."""

    def made(sizes: Mapping[str, int]) -> Made:
        try:
            return make(sizes)
        except (AssertionError, RuntimeError, ValueError, ZeroDivisionError) as error:
            msg = f"it cannot be built at {sizes}: {error}"
            raise ModelError(msg) from error

    return made


@pytest.mark.filterwarnings("ignore::UserWarning")  # of torch, about modules that it runs without a fast path
@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.heavy) for name in HANDWRITTEN]
)
def test_a_module_is_exact_at_sizes_that_nobody_chose_for_it_or_refused(name: str) -> None:
    make, names = HANDWRITTEN[name]
    library = derive_recipe(_as_recipe(make), names, bench())
    module, _ = make(points(names)[0])
    root = f"{type(module).__module__}.{type(module).__qualname__}"
    entry = library.entries.get(root)
    if entry is None:
        assert name not in EXACT, library.refused
        assert any(one.reason for one in library.refused.values())
        return
    formulas = formulas_of(library.entries.values())
    agreed = 0
    for point in points(names):
        given = {**point, "dtype_bytes": 4}
        settings = vars(make(points(names)[0])[0])  # of torch.nn's own classes, such as batch_first
        try:
            found = tuple(
                compute(
                    formulas,
                    entry.module_path,
                    one,
                    {key: int(value) for key, value in (settings | given).items() if key in entry.parameters(one)},
                )
                for one in QUANTITIES
            )
        except OutsideDomainError:
            continue
        expected = measured(name, point)
        if expected is not None:
            assert found == expected, point
            agreed += 1
    assert agreed >= 4
