# mypy: disallow-any-expr
"""The types of the public functions, held by mypy: none of them is Any. Nothing here is run."""

from typing import assert_type

import torchstone as ts
from torchstone.models.load_model import Loaded
from torchstone.record.check import CheckResult
from torchstone.record.cost import CostTable
from torchstone.record.memory import MemoryTimeline
from torchstone.record.reference import Comparison
from torchstone.record.trace import Trace
from torchstone.workflows.reference import ReferenceOutcome


def every_public_name_has_a_type(found: Trace) -> None:
    assert_type(ts.trace("gpt2"), Trace)
    assert_type(ts.price(found), CostTable)
    assert_type(ts.check_model(found), CheckResult)
    assert_type(ts.make_reference("gpt2", None, "golden"), ReferenceOutcome)
    assert_type(ts.compare("golden", "port.npz"), Comparison)
    assert_type(ts.read_memory_log("run.log"), MemoryTimeline)
    assert_type(ts.load_model("gpt2"), Loaded)
