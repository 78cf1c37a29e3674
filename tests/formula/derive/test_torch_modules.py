import pytest
import torch
from torch import nn

from tests.formula.derive.benches import bench
from tests.formula.derive.torch_modules import GROUPS
from torchstone.formula.database.compute import available_formulas
from torchstone.formula.derive.gate import judge
from torchstone.formula.derive.observe import Sample, observe
from torchstone.formula.derive.validate import cost_by_formula, entry_of_call
from torchstone.record.formula import Coverage

FEWEST = {  # calls of each group that have a formula; the others are refused for a setting or a layout
    "pointwise": 60, "linear": 84, "norms": 140, "embedding": 18, "convolutions": 120, "attention": 48,
    "encoder_layer": 64,
}  # fmt: skip

X, Q = torch.zeros(2, 3, 8, 8), torch.zeros(2, 5, 8)
ATTENTION = nn.MultiheadAttention(8, 2, batch_first=True)


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


@pytest.mark.parametrize(
    ("module", "inputs", "reason"),
    [
        (nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"), (X,), "its formula is for padding_mode=zeros only"),
        (ATTENTION, (Q, Q, Q, torch.zeros(2, 5).bool()), "its formula is for calls without key_padding_mask only"),
        (ATTENTION, (Q, Q.clone(), Q.clone()), "its formula is for self_attention=True only"),
        (nn.LayerNorm(8), (Q.bfloat16(),), "its tensors have elements of different sizes, and its formula is for one"),
    ],
)
def test_a_call_with_another_setting_is_traced_only_with_the_setting_as_the_reason(
    module: nn.Module, inputs: tuple[torch.Tensor, ...], reason: str
) -> None:
    trace, table = bench().measure(module.eval(), inputs)
    result = cost_by_formula("net", observe(Sample(trace=trace, table=table)), available_formulas(), {}, "")

    assert result.modules[0].coverage is Coverage.TRACED
    assert result.modules[0].reason.startswith(reason)
