"""Models that read back what depends on weights, without weights: what is assumed, against runs with values."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from torchstone.capture import capture
from torchstone.capture import reuse as reuse_module
from torchstone.cost import price
from torchstone.models import load
from torchstone.models.inputs import InputOptions
from torchstone.units import many


class Router(nn.Module):
    """Experts that loop over the tokens which chose them."""

    def __init__(self, experts: int, chosen: int) -> None:
        super().__init__()
        self.gate = nn.Linear(8, experts, bias=False)
        self.experts = nn.ModuleList([nn.Linear(8, 8, bias=False) for _ in range(experts)])
        self.chosen = chosen

    def forward(self, x: Tensor) -> Tensor:
        _, index = self.gate(x).topk(self.chosen, dim=-1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows, _ = torch.where(index == number)
            if rows.numel():
                out.index_add_(0, rows, expert(x[rows]))
        return out


class Threshold(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x[self.score(x).squeeze(-1) > 0]


class Duration(nn.Module):
    """The length of the result is a number that the weights predict."""

    def __init__(self) -> None:
        super().__init__()
        self.predict = nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        length = int(self.predict(x).exp().sum().long())
        return x.new_zeros(length, 8)


def _without_values(model: nn.Module) -> nn.Module:
    return model.to("meta")


@pytest.mark.parametrize(("tokens", "experts", "chosen"), [(64, 8, 2), (1, 8, 2), (5, 8, 3), (7, 1, 1), (3, 16, 16)])
def test_a_choice_is_spread_evenly_and_stated(tokens: int, experts: int, chosen: int) -> None:
    trace = capture(_without_values(Router(experts, chosen)), torch.randn(tokens, 8))
    assert trace.failure is None
    hit = sum(1 for call in trace.module_calls.modules if ".experts" not in trace.modules[call].path
              and trace.modules[call].path.startswith("experts."))  # fmt: skip
    assert hit == min(experts, tokens * chosen)
    assert trace.assumed[0].startswith(
        f"aten.topk.default chooses {chosen} of {experts} in each of {many(tokens, 'row')}"
    )
    assert price(trace).conventions.assumed == trace.assumed
    assert price(trace).totals.matmul_flops == 2 * tokens * 8 * (experts + chosen * 8)


class Block(nn.Module):
    """Attention, then experts."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.router = Router(4, 2)
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        heads = x.reshape(1, x.shape[0], 2, 4).transpose(1, 2)
        seen = nn.functional.scaled_dot_product_attention(heads, heads, heads, dropout_p=self.dropout)
        return torch.Tensor(self.router(seen.transpose(1, 2).reshape(x.shape)))


@pytest.mark.parametrize(("dropout", "reused"), [(0.0, True), (0.5, False)])
def test_equal_layers_that_draw_no_numbers_are_reused_where_values_are_assumed(
    dropout: float, *, reused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reuse_module, "_VERY_MANY", 1)  # single layers are compared, too
    model = _without_values(nn.Sequential(*[Block(dropout) for _ in range(4)]))
    trace = capture(model, torch.randn(16, 8), "fake")
    assert trace.failure is None
    assert trace.assumed
    assert (trace.provenance.reused_ops > trace.size.op // 2) is reused
    assert any("values read back" in note for note in trace.notes) is not reused


def test_with_values_nothing_is_assumed() -> None:
    trace = capture(Router(8, 2), torch.randn(16, 8))
    assert (trace.provenance.mode, trace.assumed) == ("cpu", ())


def test_a_comparison_sees_drawn_values_and_its_count_is_stated() -> None:
    trace = capture(_without_values(Threshold()), torch.randn(1000, 8))
    assert trace.failure is None
    (stated,) = trace.assumed
    kept = trace.tensors.specs[trace.tensors.spec_of[trace.ops.outputs[-1][0]]].shape[0]
    assert f"{kept} of 1,000 are true" in stated
    assert 400 < kept < 600


def test_an_integer_that_weights_predict_stays_unknown() -> None:
    trace = capture(_without_values(Duration()), torch.randn(4, 8))
    assert trace.failure is not None
    assert "DataDependentOutputException" in trace.failure.error


def test_a_large_known_mask_is_read_without_assuming_anything() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Linear(4, 4)

        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            return self.weight(x)[torch.nonzero(mask).squeeze(-1)]

    mask = torch.arange(10_000) % 3 == 0
    trace = capture(Masked(), (torch.randn(10_000, 4), mask), "fake")
    assert (trace.failure, trace.assumed) == (None, ())
    assert trace.tensors.specs[trace.tensors.spec_of[trace.ops.outputs[-1][0]]].shape == (3334, 4)


def test_a_model_that_converts_itself_to_its_own_dtype_is_captured() -> None:
    class Converting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            self.inner = self.inner.to(torch.float32)
            return self.inner(x)

    trace = capture(Converting(), torch.randn(2, 4), "fake")
    assert trace.failure is None
    assert [one.op for one in trace.recorded_ops.signatures] == ["aten.t.default", "aten.addmm.default"]


@pytest.mark.parametrize("model_type", ["dbrx", "jetmoe", "switch_transformers", "openai_privacy_filter"])
def test_at_tiny_size_the_assumed_counts_cost_what_a_run_with_values_costs(model_type: str) -> None:
    model, inputs = load(f"tiny:{model_type}", device="cpu")
    assumed, real = capture(model, inputs, "fake"), capture(model, inputs, "cpu")
    assert assumed.assumed
    assert price(assumed).totals == price(real).totals


def test_buffers_of_single_integers_keep_their_values_without_weights() -> None:
    model, inputs = load("tiny:mimi")
    trace = capture(model, inputs, "fake")
    assert (trace.failure, trace.assumed) == (None, ())


def _dbrx(folder: Path) -> Path:
    """The sizes of databricks/dbrx-base: 132 G parameters in 16 experts, 4 of which a token uses."""
    file = folder / "config.json"
    attention = {"kv_n_heads": 8, "clip_qkv": 8, "rope_theta": 500000}
    experts = {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4}
    sizes = {"d_model": 6144, "n_heads": 48, "n_layers": 40, "max_seq_len": 32768, "vocab_size": 100352}
    file.write_text(json.dumps({"model_type": "dbrx", **sizes, "attn_config": attention, "ffn_config": experts}))
    return file


@pytest.mark.parametrize(("batch", "length"), [(1, 128), (2, 33), (1, 1)])
def test_dbrx_at_full_size_costs_its_closed_form(tmp_path: Path, batch: int, length: int) -> None:
    model, inputs = load(str(_dbrx(tmp_path)), options=InputOptions(batch_size=batch, seq_len=length))
    width, layers, vocabulary, inner, head = 6144, 40, 100352, 10752, 128
    attention = width * (48 + 2 * 8) * head + width * width
    expert = 3 * width * inner
    total = layers * (attention + 16 * expert + 16 * width + 2 * width) + 2 * vocabulary * width + width
    assert sum(one.numel() for one in model.parameters()) == total == 131_596_523_520
    trace = capture(model, inputs)
    assert trace.failure is None
    assert trace.assumed == (
        f"aten.topk.default chooses 4 of 16 in each of {many(batch * length, 'row')}, spread evenly: "
        f"{batch * length * 4 / 16:,.4g} rows each",
    )
    tokens = batch * length
    scores = 2 * 2 * batch * length * length * width * layers
    active = layers * (attention + 4 * expert + 16 * width) + vocabulary * width
    assert price(trace).totals.matmul_flops == 2 * tokens * active + scores
