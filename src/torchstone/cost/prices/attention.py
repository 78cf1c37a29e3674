"""Fused attention: scores = q @ k^T, softmax, scores @ v, whatever kernel spells it.

Matmul FLOPs are 2*B*H*Sq*Skv*(D + Dv), with the heads of the query (keys and values of grouped heads are shared).
Softmax costs five a score, the scale one, a mask one more, dropout two: as when the model writes attention out.
Backward kernels do not keep the scores: they compute them again, which makes five matmuls.
"""

from torchstone.cost.prices.matmul import multiply_adds
from torchstone.cost.registry import Price, flag, optional_tensor, price_of, tensor, value_of, whole
from torchstone.record.base import Record
from torchstone.record.cost import Kind
from torchstone.record.op import OpSignature
from torchstone.record.tensor import TensorSpec

_SOFTMAX = 5  # max, subtract, exp, sum, divide
_SCALE = 1
_DROPOUT = 2  # compare, scale
_SOFTMAX_BACKWARD = 4  # multiply, sum, subtract, multiply


class _Attention(Record, frozen=True, kw_only=True):
    """The sizes of one attention."""

    query: TensorSpec
    scores: int  # B*H*Sq*Skv
    head: int  # D
    value_head: int  # Dv
    masked: bool
    causal: bool
    dropped: bool = False

    @property
    def beside_matmuls(self) -> int:
        """FLOPs of a score that are no matmul."""
        return _SOFTMAX + _SCALE + self.masked + _DROPOUT * self.dropped

    def forward(self) -> Price:
        flops = multiply_adds(self.scores * (self.head + self.value_head), self.query)
        rest = self.beside_matmuls * self.scores
        return Price(flops=flops + rest, matmul_flops=flops, causal_flops=flops if self.causal else 0)

    def backward(self) -> Price:
        """Scores again, gradients of scores and values with Dv, of query and key with D: 3*D + 2*Dv a score."""
        flops = multiply_adds(self.scores * (3 * self.head + 2 * self.value_head), self.query)
        rest = (self.beside_matmuls + _SOFTMAX_BACKWARD) * self.scores
        return Price(flops=flops + rest, matmul_flops=flops, causal_flops=flops if self.causal else 0)


_MASKS = ("attn_mask", "attn_bias", "bias")


def _heads_first(call: OpSignature) -> _Attention:
    """(B, H, S, D), as scaled_dot_product_attention has it."""
    query, key, value = tensor(call, "query", "0"), tensor(call, "key", "1"), tensor(call, "value", "2")
    *batch, sq, head = query.shape
    scores = sq * key.shape[-2]
    for size in batch:
        scores *= size
    return _Attention(
        query=query,
        scores=scores,
        head=head,
        value_head=value.shape[-1],
        masked=optional_tensor(call, *_MASKS) is not None,
        causal=flag(call, "is_causal"),
        dropped=_drops(call),
    )


def _sequence_first(call: OpSignature) -> _Attention:
    """(B, S, H, D), or (tokens, H, D) with sequences packed one after the other, each taken as the longest."""
    query, key, value = tensor(call, "query"), tensor(call, "key"), tensor(call, "value")
    offsets = optional_tensor(call, "cum_seq_q", "cu_seqlens_q")
    if offsets is None:
        batch, sq, heads, head = query.shape
        skv = key.shape[1]
    else:
        heads, head = query.shape[-2:]
        batch = offsets.shape[0] - 1
        sq, skv = (whole(call, names[0] if value_of(call, names[0]) is not None else names[1]) for names in _LONGEST)
    return _Attention(
        query=query,
        scores=batch * heads * sq * skv,
        head=head,
        value_head=value.shape[-1],
        masked=optional_tensor(call, *_MASKS) is not None,
        causal=flag(call, "is_causal") or value_of(call, "custom_mask_type") in (1, 2),
        dropped=_drops(call),
    )


def _drops(call: OpSignature) -> bool:
    return bool(value_of(call, "dropout_p"))


_LONGEST = (("max_q", "max_seqlen_q"), ("max_k", "max_seqlen_k"))


@price_of(
    "aten._scaled_dot_product_flash_attention_for_cpu",
    "aten._scaled_dot_product_flash_attention",
    "aten._scaled_dot_product_efficient_attention",
    "aten._scaled_dot_product_cudnn_attention",
    "aten._scaled_dot_product_fused_attention_overrideable",
    "aten._scaled_dot_product_attention_math",
    "aten._scaled_dot_product_attention_math_for_mps",
    "aten.scaled_dot_product_attention",
    "higher_order.flex_attention",
    kind=Kind.ATTENTION,
)
def attention(call: OpSignature) -> Price:
    """Forward, heads first; the block mask of flex attention is not looked into."""
    return _heads_first(call).forward()


@price_of(
    "aten._scaled_dot_product_flash_attention_for_cpu_backward",
    "aten._scaled_dot_product_flash_attention_backward",
    "aten._scaled_dot_product_efficient_attention_backward",
    "aten._scaled_dot_product_cudnn_attention_backward",
    "aten._scaled_dot_product_fused_attention_overrideable_backward",
    "higher_order.flex_attention_backward",
    kind=Kind.ATTENTION,
)
def attention_backward(call: OpSignature) -> Price:
    """Backward, heads first."""
    return _heads_first(call).backward()


@price_of(
    "aten._flash_attention_forward", "aten._efficient_attention_forward", "aten._cudnn_attention_forward",
    kind=Kind.ATTENTION,
)  # fmt: skip
def sequence_first_attention(call: OpSignature) -> Price:
    """Forward, sequence first."""
    return _sequence_first(call).forward()


@price_of(
    "aten._flash_attention_backward", "aten._efficient_attention_backward", "aten._cudnn_attention_backward",
    kind=Kind.ATTENTION,
)  # fmt: skip
def sequence_first_attention_backward(call: OpSignature) -> Price:
    """Backward, sequence first."""
    return _sequence_first(call).backward()


@price_of("aten._native_multi_head_attention", kind=Kind.ATTENTION)
def multi_head_attention(call: OpSignature) -> Price:
    """Input projections (B, S, E) x (E, 3E), attention over all heads, output projection (E, E)."""
    query, key = tensor(call, "query"), tensor(call, "key")
    return _multi_head(query, key.shape[1], whole(call, "num_head"), masked=optional_tensor(call, "mask") is not None)


def _multi_head(query: TensorSpec, skv: int, heads: int, *, masked: bool) -> Price:
    batch, sq, width = query.shape
    projections = multiply_adds(batch * width * width * (2 * sq + 2 * skv), query)
    inner = _Attention(
        query=query, scores=batch * heads * sq * skv, head=width // heads, value_head=width // heads,
        masked=masked, causal=False,
    ).forward()  # fmt: skip
    biases = batch * width * (2 * sq + 2 * skv)
    return Price(flops=projections + biases + inner.flops, matmul_flops=projections + inner.matmul_flops)


@price_of("aten._transformer_encoder_layer_fwd", kind=Kind.ATTENTION)
def encoder_layer(call: OpSignature) -> Price:
    """Multi-head attention, two linear layers with an activation, two residual additions, two layer norms."""
    given, hidden = tensor(call, "src"), tensor(call, "ffn_weight_1").shape[0]
    batch, length, width = given.shape
    inner = _multi_head(given, length, whole(call, "num_heads"), masked=optional_tensor(call, "mask") is not None)
    tokens = batch * length
    linears = multiply_adds(2 * tokens * width * hidden, given)
    activation = (5 if flag(call, "use_gelu") else 1) * tokens * hidden
    rest = tokens * (hidden + width) + 2 * tokens * width + 2 * 7 * tokens * width
    return Price(flops=inner.flops + linears + activation + rest, matmul_flops=inner.matmul_flops + linears)
