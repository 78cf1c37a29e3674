"""Recurrent layers: per step the input and hidden matmuls of all gates, then the gates' pointwise work."""

from math import prod

from torchstone.cost.prices.matmul import multiply_adds
from torchstone.cost.registry import (
    NoPriceError,
    Price,
    flag,
    optional_tensor,
    output,
    price_of,
    tensor,
    tensors,
    whole,
)
from torchstone.record.cost import Kind
from torchstone.record.op import OpSignature
from torchstone.record.tensor import TensorSpec

_LSTM_POINTWISE = 3 * 4 + 2 + 4  # three sigmoids, two tanh, three products and a sum, per hidden element
_GRU_POINTWISE = 2 * 4 + 1 + 4  # two sigmoids, a tanh; r * h, h - n, z * that, + n
_RNN_POINTWISE = 1
_GATES = {4: _LSTM_POINTWISE, 3: _GRU_POINTWISE, 1: _RNN_POINTWISE}
_MATRIX = 2


def _layer(rows: int, weights: list[TensorSpec]) -> tuple[int, int]:
    """FLOPs of one layer over a number of (step, batch) rows: all matmuls, and everything beside them.

    The weight of the hidden state is (gates*hidden, hidden), which tells the gates; with a projection it is
    (gates*hidden, projected), and a third matrix (projected, hidden) makes the state smaller.
    """
    matrices = [spec for spec in weights if len(spec.shape) == _MATRIX]
    if len(matrices) < _MATRIX:
        msg = "a recurrent layer needs an input and a hidden weight"
        raise NoPriceError(msg)
    hidden = matrices[-1].shape[1]
    gates = matrices[1].shape[0] // max(hidden, 1)
    matmul = sum(multiply_adds(rows * spec.elements, spec) for spec in matrices)
    biases = sum(spec.elements for spec in weights if len(spec.shape) == 1)
    return matmul, rows * (biases + gates * hidden + _GATES.get(gates, gates) * hidden)


@price_of("aten.mkldnn_rnn_layer", kind=Kind.RECURRENT)
def one_layer(call: OpSignature) -> Price:
    """(S, B, input) through one layer in one direction."""
    given = tensor(call, "input")
    matmul, rest = _layer(given.shape[0] * given.shape[1], _layer_weights(call, first=0))
    return Price(flops=matmul + rest, matmul_flops=matmul)


def _layer_weights(call: OpSignature, *, first: int) -> list[TensorSpec]:
    """The weights of a oneDNN layer: two matrices, and two biases only where it has some.

    Without biases torch passes zeros in the shapes of the two matrices in their place: they are not multiplied.
    """
    count = _MATRIX * (2 if flag(call, "has_biases") else 1)
    return [tensor(call, f"weight{number}") for number in range(first, first + count)]


@price_of("aten.lstm", "aten.gru", "aten.rnn_tanh", "aten.rnn_relu", "aten._cudnn_rnn", "aten.miopen_rnn",
          kind=Kind.RECURRENT)  # fmt: skip
def whole_network(call: OpSignature) -> Price:
    """All layers and directions: the weights come in groups, one for each layer and direction."""
    matmul, rest = _network(call)
    return Price(flops=matmul + rest, matmul_flops=matmul)


@price_of("aten._cudnn_rnn_backward", "aten.miopen_rnn_backward", kind=Kind.RECURRENT)
def whole_network_backward(call: OpSignature) -> Price:
    """Gradients of input and of weights: twice the forward."""
    matmul, rest = _network(call)
    return Price(flops=2 * (matmul + rest), matmul_flops=2 * matmul)


def _network(call: OpSignature) -> tuple[int, int]:
    """FLOPs of all matmuls, and everything beside them; rows of packed sequences lie one after the other."""
    given = optional_tensor(call, "input")
    rows = tensor(call, "data").shape[0] if given is None else prod(given.shape[:-1])
    weights = list(tensors(call, "params") or tensors(call, "weight"))
    groups = whole(call, "num_layers") * (2 if flag(call, "bidirectional") else 1)
    size = len(weights) // max(groups, 1)
    costs = [_layer(rows, weights[start * size : (start + 1) * size]) for start in range(groups)]
    return sum(cost[0] for cost in costs), sum(cost[1] for cost in costs)


@price_of("aten.mkldnn_rnn_layer_backward", kind=Kind.RECURRENT)
def one_layer_backward(call: OpSignature) -> Price:
    """Gradients of input and of weights: twice the forward."""
    given = tensor(call, "input")
    matmul, rest = _layer(given.shape[0] * given.shape[1], _layer_weights(call, first=1))
    return Price(flops=2 * (matmul + rest), matmul_flops=2 * matmul)


@price_of("aten._thnn_fused_lstm_cell", "aten._thnn_fused_gru_cell", kind=Kind.RECURRENT)
def fused_cell(call: OpSignature) -> Price:
    """The gates' pointwise work: products and biases added up, then the gates; the matmuls are ops of their own."""
    gates = tensor(call, "input_gates").elements
    biases = sum(optional_tensor(call, name) is not None for name in ("input_bias", "hidden_bias"))
    per_state = _LSTM_POINTWISE if "lstm" in call.op else _GRU_POINTWISE
    return Price(flops=(1 + biases) * gates + per_state * output(call).elements)


@price_of("aten._thnn_fused_lstm_cell_backward_impl", "aten._thnn_fused_gru_cell_backward", kind=Kind.RECURRENT)
def fused_cell_backward(call: OpSignature) -> Price:
    """Twice the gates' work of the forward."""
    lstm = "lstm" in call.op
    state = tensor(call, "cx", "grad_hy").elements
    return Price(flops=2 * (_LSTM_POINTWISE if lstm else _GRU_POINTWISE) * state)


@price_of("aten.quantized_lstm", "aten.quantized_gru", kind=Kind.RECURRENT)
def packed_network(call: OpSignature) -> Price:
    """The weights are packed objects that are not looked into."""
    msg = f"the packed weights of {call.op} are not looked into ({whole(call, 'num_layers')} layers)"
    raise NoPriceError(msg)
