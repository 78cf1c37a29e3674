"""Models and inputs that torch treats specially: handled with a note, or refused in one sentence."""

from collections.abc import Iterator, MutableMapping
from typing import Any

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


class _NestsInside(nn.Module):
    def __init__(self, layout: torch.layout) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.layout = layout

    def forward(self, x: Tensor) -> Tensor:
        rows = torch.nested.nested_tensor([x[:1], x[1:]], layout=self.layout)
        return torch.nested.to_padded_tensor(self.linear(rows), 0.0)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
@pytest.mark.parametrize("layout", [torch.jagged, torch.strided])
def test_a_model_that_nests_tensors_inside_is_refused_with_the_way_out(layout: torch.layout) -> None:
    with pytest.raises(CaptureError, match=r"the model makes a nested tensor.*padded tensors and a mask"):
        capture(_NestsInside(layout), torch.ones(3, 2))


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")
def test_a_sparse_buffer_is_captured_on_real_tensors_too() -> None:
    model = SparseProduct()
    table = price(capture(model, torch.ones(16, 4), "cpu"))

    assert table.unpriced == {"aten.mm.default": 1}
    assert torch.equal(model.matrix.to_dense(), torch.eye(16))


@pytest.mark.filterwarnings("ignore:.*torch.jit.* is deprecated")
@pytest.mark.parametrize("inner", [False, True])
def test_a_compiled_module_costs_what_the_module_inside_does(*, inner: bool) -> None:
    plain = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4)).eval()
    compiled: nn.Module = torch.compile(plain)  # type: ignore[assignment]
    compiled = nn.Sequential(compiled).eval() if inner else compiled
    trace = capture(compiled, torch.ones(2, 8))

    assert trace.failure is None
    assert price(trace).totals.flops == price(capture(plain, torch.ones(2, 8))).totals.flops
    assert not any(module.training for module in trace.modules)


class _Noted(nn.Module):
    """The handle of a profiler's record is an object of torch's C++ side, as packed weights are."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        with torch.profiler.record_function("linear"):
            return self.linear(x)


def test_the_handle_of_a_profiler_has_no_size_that_counts() -> None:
    table = price(capture(_Noted(), torch.ones(2, 8)))

    assert table.peak.unsized == 0
    assert not any("unknown size" in note for note in table.notes)


@pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated")
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_packed_weights_of_a_list_are_of_unknown_size() -> None:
    quantized = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.LSTM(8, 8, 2)), {nn.LSTM}, dtype=torch.qint8)
    table = price(capture(quantized, torch.ones(3, 1, 8)))

    assert set(table.unpriced) == {"aten.quantized_lstm.input"}
    assert table.peak.unsized == 2  # layers


class Fetching(MutableMapping[str, Any]):
    """Parameters or buffers that are fetched when they are asked for, as compressed-tensors and others have them."""

    def __init__(self, held: dict[str, Any]) -> None:
        self.held = dict(held)

    def __getitem__(self, name: str) -> Any:
        found = self.held[name]
        return found.detach() if isinstance(found, Tensor) else found

    def __setitem__(self, name: str, value: Any) -> None:
        self.held[name] = value

    def __delitem__(self, name: str) -> None:
        del self.held[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.held)

    def __len__(self) -> int:
        return len(self.held)


def _offload(module: nn.Module) -> None:
    for name in ("_parameters", "_buffers"):
        vars(module)[name] = Fetching(vars(module)[name])


class Offloads(nn.Module):
    """A layer that is packed until its first call, and offloaded then."""

    def __init__(self, width: int, *, before: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.register_buffer("shift", torch.ones(width))
        self.pending = not before
        if before:
            _offload(self)
            _offload(self.linear)

    def forward(self, x: Tensor) -> Tensor:
        if self.pending:
            self.pending = False
            _offload(self)
        return self.linear(x) + self.shift


@pytest.mark.parametrize("mode", ["auto", "fake", "cpu"])
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("layers", [1, 4])
def test_parameters_and_buffers_in_other_mappings_are_counted(layers: int, mode: str, *, before: bool) -> None:
    model = nn.Sequential(*(Offloads(8, before=before) for _ in range(layers)))
    holders = [vars(module)["_buffers"] for module in model.modules()]
    trace = capture(model, torch.zeros(3, 8), mode)
    assert trace.failure is None
    table = price(trace)
    assert table.totals.parameter_bytes == layers * (8 * 8 + 8) * 4
    assert table.peak.weights_bytes == layers * (8 * 8 + 8 + 8) * 4
    assert table.totals.matmul_flops == layers * 2 * 3 * 8 * 8
    assert all(vars(module)["_buffers"] is held for module, held in zip(model.modules(), holders, strict=True))


def test_generated_code_without_modules_is_captured() -> None:
    class Doubled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(x) * 2

    graph = torch.fx.symbolic_trace(Doubled())
    trace = capture(nn.Sequential(graph), torch.ones(2, 3))

    assert trace.failure is None
    assert [call.op for call in trace.ops] == ["aten.relu.default", "aten.mul.Tensor"]


class _Hook:
    """What accelerate 1.15.0 hangs on an offloaded module: hooks.py, AlignDevicesHook and SequentialHook."""

    def __init__(self, *hooks: "_Hook", offload: bool) -> None:
        self.hooks, self.offload = hooks, offload


@pytest.mark.parametrize("hook", [_Hook(offload=True), _Hook(_Hook(offload=False), _Hook(offload=True), offload=False)])
def test_a_model_that_is_offloaded_is_refused_with_a_way_out(hook: _Hook) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4, device="meta"))
    vars(model[1])["_hf_hook"] = hook
    with pytest.raises(CaptureError, match=r"^1 is offloaded by accelerate, .*remove_hook_from_submodules\(model\)$"):
        capture(model, torch.ones(2, 4))


def test_hooks_that_only_move_inputs_are_no_offloading() -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    vars(model[0])["_hf_hook"] = _Hook(_Hook(offload=False), offload=False)
    assert capture(model, torch.ones(2, 4)).failure is None
