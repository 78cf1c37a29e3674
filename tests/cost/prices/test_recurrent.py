from collections.abc import Callable

import pytest
import torch
from torch import nn

from tests.cost.calls import cost_of, meta, priced, several, signature, spec
from torchstone.cost.price_trace import price_signature
from torchstone.record.value import Value


def test_a_long_short_term_memory_multiplies_four_gates_by_input_and_state() -> None:
    (given,) = meta((7, 2, 5))
    layer = nn.LSTM(5, 6).to("meta")
    totals = cost_of(layer, given, mode="fake").totals
    assert totals.matmul_flops == 2 * 7 * 2 * (24 * 5 + 24 * 6)


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")  # torch's word on the fallback
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("network", "gates", "projected"), [(nn.LSTM, 4, 0), (nn.LSTM, 4, 3), (nn.GRU, 3, 0), (nn.RNN, 1, 0)]
)
def test_every_form_of_a_recurrent_network_multiplies_its_matrices_once_a_step(
    network: Callable[..., nn.Module], gates: int, projected: int, *, bias: bool, bidirectional: bool, layers: int
) -> None:
    width, steps, batch = 6, 7, 2
    options = {"proj_size": projected} if projected else {}
    model = network(5, width, num_layers=layers, bias=bias, bidirectional=bidirectional, **options)
    directions, state = (2 if bidirectional else 1), projected or width
    multiply_adds = sum(
        directions * (gates * width * ((state * directions if layer else 5) + state) + projected * width)
        for layer in range(layers)
    )
    totals = cost_of(model.eval(), torch.ones(steps, batch, 5)).totals
    assert totals.matmul_flops == 2 * steps * batch * multiply_adds


@pytest.mark.parametrize(("op", "gates"), [("lstm", 4), ("gru", 3), ("rnn_tanh", 1)])
def test_all_layers_and_directions_count(op: str, gates: int) -> None:
    group = [spec(gates * 6, 5), spec(gates * 6, 6), spec(gates * 6), spec(gates * 6)]
    found = priced(
        f"aten.{op}.input",
        several(spec(7, 2, 12)),
        input=spec(7, 2, 5),
        params=several(*group, *group),
        has_biases=True,
        num_layers=1,
        bidirectional=True,
    )
    assert found.matmul_flops == 2 * 2 * 14 * gates * 6 * 11
    assert found.flops > found.matmul_flops


@pytest.mark.parametrize("bias", [False, True])
def test_a_fused_gru_costs_what_it_does_written_out(*, bias: bool) -> None:
    steps, batch, width, size = 7, 2, 5, 6
    (given,) = meta((steps, batch, width))
    written_out = cost_of(nn.GRU(width, size, bias=bias).to("meta"), given, mode="fake").totals
    biases = [spec(3 * size), spec(3 * size)] if bias else []
    fused = priced(
        "aten.gru.input",
        several(spec(steps, batch, size)),
        input=spec(steps, batch, width),
        params=several(spec(3 * size, width), spec(3 * size, size), *biases),
        has_biases=bias,
        num_layers=1,
        bidirectional=False,
    )
    assert fused.matmul_flops == written_out.matmul_flops
    assert fused.flops == written_out.flops


def test_a_backward_layer_costs_twice_the_forward() -> None:
    weights = {f"weight{number}": value for number, value in enumerate((spec(24, 5), spec(24, 6), spec(24), spec(24)))}
    back = {f"weight{number + 1}": value for number, value in enumerate(weights.values())}
    result = several(spec(7, 2, 6))
    forward = priced("aten.mkldnn_rnn_layer.default", result, input=spec(7, 2, 5), has_biases=True, **weights)
    backward = priced("aten.mkldnn_rnn_layer_backward.default", result, input=spec(7, 2, 5), has_biases=True, **back)
    assert (backward.flops, backward.matmul_flops) == (2 * forward.flops, 2 * forward.matmul_flops)


def test_a_fused_cell_has_no_matmul() -> None:
    found = priced("aten._thnn_fused_lstm_cell.default", several(spec(2, 6)), input_gates=spec(2, 24))
    assert (found.flops, found.matmul_flops) == (48 + 18 * 12, 0)
    assert cost_of(nn.GRUCell(5, 6), torch.ones(2, 5)).totals.matmul_flops == 2 * 2 * 18 * 11


def test_weights_that_cannot_be_looked_into_have_no_price_but_a_reason() -> None:
    _, found = price_signature(signature("aten.quantized_lstm.input", spec(2, 6), num_layers=2))
    assert found == "the packed weights of aten.quantized_lstm.input are not looked into (2 layers)"


def test_a_projected_state_is_multiplied_in_its_smaller_size() -> None:
    group = [spec(24, 5), spec(24, 3), spec(24), spec(24), spec(3, 6)]
    found = priced(
        "aten.lstm.data",
        several(spec(14, 6)),
        data=spec(14, 5),
        params=several(*group, *group),
        has_biases=True,
        num_layers=1,
        bidirectional=True,
    )
    assert found.matmul_flops == 2 * 2 * 14 * (24 * 5 + 24 * 3 + 3 * 6)
    assert found.flops - found.matmul_flops == 2 * 14 * (48 + 24 + 18 * 6)


def test_a_network_backward_costs_twice_the_forward() -> None:
    group = several(spec(24, 5), spec(24, 6), spec(24), spec(24))
    sizes: dict[str, Value] = {"input": spec(7, 2, 5), "weight": group, "num_layers": 1}
    forward = priced("aten._cudnn_rnn.default", several(spec(7, 2, 6)), **sizes)
    backward = priced("aten._cudnn_rnn_backward.default", several(spec(7, 2, 5)), **sizes)
    assert (backward.flops, backward.matmul_flops) == (2 * forward.flops, 2 * forward.matmul_flops)


def test_a_fused_cell_adds_biases_and_its_gradient_is_twice_its_gates() -> None:
    gates = {"input_gates": spec(2, 18), "input_bias": spec(18), "hidden_bias": spec(18)}
    assert priced("aten._thnn_fused_gru_cell.default", several(spec(2, 6)), **gates).flops == 3 * 36 + 13 * 12
    assert priced("aten._thnn_fused_gru_cell_backward.default", several(spec(2, 18)), grad_hy=spec(2, 6)).flops == 312
