from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from tests.capture.nets import PlainObject
from torchstone.capture.describe import rebuilt

Pair = namedtuple("Pair", ["left", "right"])


@dataclass
class Output:
    logits: Any
    loss: Any = None


def test_every_kind_of_structure_comes_back_with_other_tensors() -> None:
    old, new = torch.zeros(1), torch.ones(1)
    value = {"list": [old], "tuple": (old, 1), "pair": Pair(old, None), "output": Output(logits=old)}

    copy = rebuilt(value, lambda part: new if part is old else part)

    assert copy["list"][0] is copy["tuple"][0] is copy["pair"].left is copy["output"].logits is new
    assert (copy["tuple"][1], copy["pair"].right, copy["output"].loss) == (1, None, None)
    assert value["list"][0] is old  # type: ignore[index]


def test_an_object_is_handed_over_whole() -> None:
    thing = PlainObject()

    assert rebuilt([thing], lambda part: (part, "seen")) == [(thing, "seen")]


def test_what_cannot_be_exchanged_is_up_to_the_caller() -> None:
    def refuse(part: Any) -> Any:
        raise LookupError(part)

    with pytest.raises(LookupError):
        rebuilt((1, torch.zeros(1)), refuse)
