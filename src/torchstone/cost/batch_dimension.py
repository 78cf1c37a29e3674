"""Whether a dimension of the inputs that a batch was looked for in is that of a sequence."""

from collections.abc import Iterator

from torchstone.cost.registry import numbers
from torchstone.record.op import OpSignature
from torchstone.record.trace import Trace

_SOFTMAX = ("aten._softmax.", "aten._safe_softmax.")
_ATTENTION = "aten._scaled_dot_product_"
_OVER_POSITIONS = ("aten.convolution.", "aten.avg_pool", "aten.max_pool", "aten._adaptive_avg_pool")
_RUNNING = ("aten.cumsum.", "aten.cumprod.", "aten.logcumsumexp.")
_FUSED_LAYERS = ("aten._transformer_encoder_layer_fwd.", "aten._native_multi_head_attention.")
_RECURRENT_LAYER = "aten.mkldnn_rnn_layer."
_RECURRENT_CLASSES = "torch.nn.modules.rnn."
_OPS_OF_A_STEP = 3  # at least: the products with input and state, and what makes one state of them


def runs_along(before: Trace, after: Trace, more: int) -> bool:
    """Whether attention, a convolution or a recurrence runs along the dimension in which two captures differ.

    There the inputs of the second one are larger by `more`.
    """
    if not set(_lengths(after)) <= set(_lengths(before)):
        return True
    has_steps = any(module.class_name.startswith(_RECURRENT_CLASSES) for module in before.modules)
    return has_steps and after.size.op - before.size.op >= _OPS_OF_A_STEP * more


def _lengths(trace: Trace) -> Iterator[tuple[str, int]]:
    """The sizes that ops which mix the tokens of a sequence work along."""
    for signature in trace.recorded_ops.signatures:
        shapes = [spec.shape for spec in signature.input_specs]
        if not shapes:
            continue
        if signature.op.startswith((*_SOFTMAX, *_RUNNING)):
            yield signature.op, _size_along(signature)
        elif signature.op.startswith(_OVER_POSITIONS):  # [batch, channels, positions]
            yield from ((signature.op, size) for size in shapes[0][2:])
        elif signature.op.startswith(_ATTENTION):
            yield from ((signature.op, shape[-2]) for shape in shapes[:3])
        elif signature.op.startswith(_FUSED_LAYERS):
            yield signature.op, shapes[0][1]
        elif signature.op.startswith(_RECURRENT_LAYER):
            yield signature.op, shapes[0][0]


def _size_along(signature: OpSignature) -> int:
    shape = signature.input_specs[0].shape
    dims = numbers(signature, "dim") or (-1,)
    return shape[dims[0]] if shape else 1
