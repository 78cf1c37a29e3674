"""Models and inputs that torch treats specially: handled with a note, or refused in one sentence."""

import pytest
import torch
from torch import Tensor, nn

from torchstone.capture import capture
from torchstone.cost import price
from torchstone.errors import CaptureError


class PaddedEncoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        out: Tensor = self.encoder(x, src_key_padding_mask=padding)
        return out


class SparseProduct(nn.Module):
    matrix: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("matrix", torch.eye(16).to_sparse_csr())

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.matrix @ x)


@pytest.mark.parametrize("mode", ["auto", "cpu"])
def test_an_encoder_with_a_padding_mask_is_captured_op_by_op_and_says_so(mode: str) -> None:
    batch, length, width = 3, 7, 32
    padding = torch.zeros(batch, length, dtype=torch.bool)
    padding[1, 5:] = True

    trace = capture(PaddedEncoder().eval(), (torch.ones(batch, length, width), padding), mode)

    assert trace.failure is None
    assert any("nn.TransformerEncoder ran op by op" in note for note in trace.notes)
    assert torch.backends.mha.get_fastpath_enabled()
    tokens = batch * length
    linear = 2 * tokens * (width * 3 * width + width * width + 2 * width * 64)
    scores = 2 * 2 * batch * length * length * width
    assert price(trace).totals.matmul_flops == 2 * (linear + scores)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")
def test_an_op_on_a_sparse_tensor_is_unpriced_and_its_size_unknown() -> None:
    table = price(capture(SparseProduct(), torch.ones(16, 4)))

    assert table.unpriced == {"aten.mm.default": 1}
    assert any("unknown size" in note for note in table.notes)
    assert table.totals.flops == 16 * 4  # the relu alone


@pytest.mark.filterwarnings("ignore:.*torch.jit.* is deprecated")
def test_a_torchscript_module_is_refused_with_the_way_out() -> None:
    scripted = torch.jit.trace(nn.Linear(2, 2), torch.ones(1, 2))

    with pytest.raises(CaptureError, match=r"the model is a TorchScript module.*\.pt2"):
        capture(scripted, torch.ones(1, 2))
    with pytest.raises(CaptureError, match=r"^0 is a TorchScript module"):
        capture(nn.Sequential(scripted), torch.ones(1, 2))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
@pytest.mark.parametrize("layout", [torch.jagged, torch.strided])
def test_a_nested_input_is_refused_with_the_way_out(layout: torch.layout) -> None:
    nested = torch.nested.nested_tensor([torch.ones(3, 2), torch.ones(5, 2)], layout=layout)

    with pytest.raises(CaptureError, match=r"nested tensor.*pad it"):
        capture(nn.Linear(2, 2), nested)
