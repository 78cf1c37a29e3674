import json
import subprocess
import sys

import pytest
import torch

from torchstone.backends.faults import (
    AFTER,
    BEFORE,
    Dose,
    break_compiling,
    raise_error,
    refuse,
    scaled,
    shifted,
    with_nan,
)
from torchstone.backends.protocol import CompileFailed, Unsupported

VALUES = [
    torch.randn(3, 4),
    torch.arange(5),
    torch.eye(2) > 0,
    torch.randn(2, 3).t(),
    torch.randn(3).to(torch.bfloat16),
    torch.tensor(1.0),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: f"{value.dtype}{tuple(value.shape)}")
def test_wrong_values_keep_shape_and_type_and_are_wrong_everywhere(value: torch.Tensor) -> None:
    other = shifted((value, [value]))[1][0]

    assert (other.shape, other.dtype) == (value.shape, value.dtype)
    assert bool((other != value).all())


def test_scaling_cannot_be_seen_by_correlation() -> None:
    value = torch.randn(10)

    assert torch.equal(scaled(value), value * 2)


@pytest.mark.parametrize("value", [torch.ones(2, 3), torch.ones(2, 3).t(), torch.tensor(1.0)])
def test_one_nan_is_enough(value: torch.Tensor) -> None:
    assert int(with_nan(value).isnan().sum()) == 1
    assert not value.isnan().any()


def test_refusals_name_the_op() -> None:
    with pytest.raises(Unsupported, match=r"no rule for aten.mm.default"):
        refuse(Dose("aten.mm.default"))
    with pytest.raises(CompileFailed, match=r"aten.mm.default"):
        break_compiling(Dose("aten.mm.default"))
    with pytest.raises(RuntimeError, match=r"aten.mm.default"):
        raise_error(Dose("aten.mm.default"))


ENDINGS = {"crash": -11, "abort": -6, "kill": -9, "exit": 7, "no_answer": 0}
IN_CHILDREN = """
import json, os, sys
from torchstone.backends.faults import BEFORE, Dose
endings = {}
for name in sys.argv[1:]:
    child = os.fork()
    if not child:
        BEFORE[name](Dose())
        os._exit(99)  # it went on
    endings[name] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
BEFORE["flood"](Dose(bytes=3_000_000))
print(json.dumps(endings))
"""


def test_processes_end_in_the_way_that_is_asked_for_and_a_flood_goes_on_after() -> None:
    done = subprocess.run([sys.executable, "-c", IN_CHILDREN, *ENDINGS], capture_output=True, timeout=600, check=True)

    *flood, last = done.stdout.splitlines(keepends=True)
    assert json.loads(last) == ENDINGS
    assert sum(map(len, flood)) > 1_500_000


def test_a_dose_of_memory_and_of_waiting_ends() -> None:
    BEFORE["memory"](Dose(bytes=1 << 21))
    BEFORE["slow"](Dose(seconds=0.01))
    BEFORE["threads"](Dose(threads=0))


def test_no_fault_has_two_meanings() -> None:
    assert not set(BEFORE) & set(AFTER)
