"""What derivations measure with, and small things to derive."""

from collections.abc import Mapping, Sequence
from functools import cache
from random import Random

from torch import nn

from torchstone.formula.derive.code_paths import Derived, Refused
from torchstone.formula.derive.coordinates import Coordinates
from torchstone.formula.derive.derive_class import derive
from torchstone.formula.derive.library import Library
from torchstone.formula.derive.observe import Observation, Sample, observe
from torchstone.formula.derive.samples import Bench
from torchstone.workflows.formula_derive import make_bench

PLAIN = Coordinates()


def seeded(seed: int) -> Random:
    """The same random numbers every time."""
    return Random(seed)  # noqa: S311 - not for secrets


@cache
def bench() -> Bench:
    return make_bench("tests")


def sample(
    module: nn.Module, *inputs: object, known: Mapping[str, int] | None = None, held_out: bool = False
) -> Sample:
    trace, table = bench().measure(module, inputs)
    return Sample(trace=trace, table=table, known=dict(known or {}), held_out=held_out)


def observed(samples: Sequence[Sample]) -> list[Observation]:
    return [seen for one in samples for seen in observe(one)]


def derived(samples: Sequence[Sample]) -> tuple[dict[str, Derived], dict[str, Refused]]:
    found, refused = derive(observed(samples), bench().price, PLAIN, {})
    return {name.rpartition(".")[2]: one for name, one in found.items()}, {
        name.rpartition(".")[2]: one for name, one in refused.items()
    }


@cache
def torch_library() -> Library:
    """A few classes of torch.nn, derived once for all tests."""
    library = Library()
    library.add_torch(bench(), lambda _: None, ("Linear", "Embedding", "LayerNorm", "Conv1d", "ReLU"))
    return library


@cache
def llama_library() -> Library:
    """All classes of Llama, derived once for all tests."""
    library = Library()
    library.add_model("llama", bench(), lambda _: None)
    return library
