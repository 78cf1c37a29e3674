"""Recurrent layers: per step the input and hidden matmuls of all gates, then the gates' pointwise work."""

from torchstone.cost.arguments import flag, output, tensor, tensors, value_of, whole
from torchstone.cost.prices.matmul import multiply_adds
from torchstone.cost.registry import NoPriceError, Price, price_of
from torchstone.record.cost import Kind
from torchstone.record.op import OpSignature
from torchstone.record.tensor import TensorSpec

_LSTM_POINTWISE = 3 * 4 + 2 + 4  # three sigmoids, two tanh, three products and a sum, per hidden element
_GRU_POINTWISE = 2 * 4 + 1 + 6
_RNN_POINTWISE = 1
_GATES = {4: _LSTM_POINTWISE, 3: _GRU_POINTWISE, 1: _RNN_POINTWISE}
_MATRIX = 2


def _layer(rows: int, weights: list[TensorSpec]) -> tuple[int, int]:
    """FLOPs of one layer over so many (step, batch) rows: all matmuls, and everything beside them.

    The weight of the hidden state is (gates*hidden, hidden), which tells the gates.
    """
    matrices = [spec for spec in weights if len(spec.shape) == _MATRIX]
    if len(matrices) < _MATRIX:
        msg = "a recurrent layer needs an input and a hidden weight"
        raise NoPriceError(msg)
    hidden = matrices[1].shape[1]
    gates = matrices[1].shape[0] // hidden
    matmul = sum(multiply_adds(rows * spec.elements, spec) for spec in matrices)
    biases = sum(spec.elements for spec in weights if len(spec.shape) == 1)
    return matmul, rows * (biases + gates * hidden + _GATES.get(gates, gates) * hidden)


@price_of("aten.mkldnn_rnn_layer", kind=Kind.RECURRENT)
def one_layer(call: OpSignature) -> Price:
    """(S, B, input) through one layer in one direction."""
    given = tensor(call, "input")
    matmul, rest = _layer(given.shape[0] * given.shape[1], [tensor(call, f"weight{number}") for number in range(4)])
    return Price(flops=matmul + rest, matmul_flops=matmul)


@price_of("aten.lstm", "aten.gru", "aten.rnn_tanh", "aten.rnn_relu", "aten._cudnn_rnn", "aten.miopen_rnn",
          kind=Kind.RECURRENT)  # fmt: skip
def whole_network(call: OpSignature) -> Price:
    """All layers and directions: the weights come in groups, one for each layer and direction."""
    given = tensor(call, "input")
    rows = given.shape[0] * given.shape[1]
    weights = list(tensors(call, "params") or tensors(call, "weight"))
    per_group = 4 if flag(call, "has_biases") or value_of(call, "weight_stride0") == 4 else _MATRIX  # noqa: PLR2004 - two matrices and two biases
    groups = [weights[start : start + per_group] for start in range(0, len(weights), per_group)]
    costs = [_layer(rows, group) for group in groups]
    matmul = sum(cost[0] for cost in costs)
    return Price(flops=matmul + sum(cost[1] for cost in costs), matmul_flops=matmul)


@price_of("aten.mkldnn_rnn_layer_backward", kind=Kind.RECURRENT)
def one_layer_backward(call: OpSignature) -> Price:
    """Gradients of input and of weights: twice the forward."""
    given = tensor(call, "input")
    names = ("weight1", "weight2", "weight3", "weight4")
    matmul, rest = _layer(given.shape[0] * given.shape[1], [tensor(call, name) for name in names])
    return Price(flops=2 * (matmul + rest), matmul_flops=2 * matmul)


@price_of("aten._thnn_fused_lstm_cell", "aten._thnn_fused_gru_cell", kind=Kind.RECURRENT)
def fused_cell(call: OpSignature) -> Price:
    """The gates' pointwise work alone; the matmuls are ops of their own."""
    made = output(call)
    return Price(flops=(_LSTM_POINTWISE if "lstm" in call.op else _GRU_POINTWISE) * made.elements)


@price_of("aten.quantized_lstm", "aten.quantized_gru", kind=Kind.RECURRENT)
def packed_network(call: OpSignature) -> Price:
    """The weights are packed objects that are not looked into."""
    msg = f"the packed weights of {call.op} are not looked into ({whole(call, 'num_layers')} layers)"
    raise NoPriceError(msg)
