import pytest

from tests.formula.derive.benches import bench
from tests.formula.derive.torch_modules import GROUPS
from torchstone.formula.database.compute import available_formulas
from torchstone.formula.derive.gate import judge
from torchstone.formula.derive.observe import Sample, observe
from torchstone.formula.derive.validate import entry_of_call

FEWEST = {  # calls of each group that have a formula; the others are refused for a setting or a layout
    "pointwise": 60, "linear": 84, "norms": 140, "embedding": 18, "convolutions": 120, "attention": 48,
    "encoder_layer": 64,
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::UserWarning")  # of torch, about modules that it runs without a fast path
@pytest.mark.parametrize("group", GROUPS)
def test_a_shipped_formula_is_right_or_refuses_the_setting(group: str) -> None:
    formulas, measure = available_formulas(), bench().measure
    agreed = 0
    for name, module, inputs in GROUPS[group]():
        trace, table = measure(module.eval(), inputs)
        assert trace.failure is None, name
        root = observe(Sample(trace=trace, table=table))[:1]
        verdict = judge(formulas, root, choose=entry_of_call)

        assert not verdict.wrong_but_for_copies, name
        agreed += bool(verdict.checked)
    assert agreed >= FEWEST[group]
