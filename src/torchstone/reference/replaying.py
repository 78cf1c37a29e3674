"""Run a model on the golden inputs and compare with the golden outputs."""

import copy
from dataclasses import dataclass

from torch import nn

from torchstone.models.inputs import Inputs
from torchstone.numerics.tolerance import DEFAULT_PCC
from torchstone.record.comparison import Comparison
from torchstone.record.golden import Role
from torchstone.reference.comparing import compare_named
from torchstone.reference.golden_files import Golden
from torchstone.reference.names import INPUTS
from torchstone.reference.running import given_inputs, observe
from torchstone.reference.structure import fill_in


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What a replay gave."""

    comparison: Comparison
    misfits: tuple[str, ...]  # inputs that the model takes otherwise than the golden run did


def replay(
    golden: Golden, model: nn.Module, inputs: Inputs, *, candidate: str = "a second run", pcc: float = DEFAULT_PCC
) -> Replay:
    """Give copies of the inputs the golden values, run the model, and compare all that golden data holds."""
    args, kwargs = copy.deepcopy((inputs.args, inputs.kwargs))
    own = Inputs(args=args, kwargs=kwargs, origin=inputs.origin)
    misfits = fill_in(given_inputs(own, model), INPUTS, golden.named(Role.INPUT))
    known = dict(model.named_modules(remove_duplicate=False))
    asked = dict.fromkeys(one.module for one in golden.data.tensors)
    watched = [path for path in asked if path is not None and path in known]
    seen = observe(model, own, seed=golden.data.seed, watched=watched)
    found = compare_named(golden, seen.tensors(), candidate=candidate, pcc=pcc)
    return Replay(comparison=found, misfits=tuple(misfits))
