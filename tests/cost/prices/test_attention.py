import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from tests.cost.calls import cost_of, counted_by_torch, meta, priced, several, spec
from torchstone.cost import price
from torchstone.record.cost import Causal, Conventions
from torchstone.record.value import Value

small = st.integers(1, 9)
_FUSED = ("flash_attention", "efficient_attention", "cudnn_attention")


def attention_arguments(b: int, h: int, sq: int, skv: int, d: int, dv: int) -> dict[str, Value]:
    return {"query": spec(b, h, sq, d), "key": spec(b, h, skv, d), "value": spec(b, h, skv, dv)}


@settings(max_examples=25, deadline=None)
@given(b=small, h=small, sq=small, skv=small, d=small, dv=small)
def test_attention_costs_two_products_however_it_is_spelled(b: int, h: int, sq: int, skv: int, d: int, dv: int) -> None:
    arguments = attention_arguments(b, h, sq, skv, d, dv)
    result = several(spec(b, h, sq, dv))
    expected = 2 * b * h * sq * skv * (d + dv)
    for kernel in _FUSED:
        found = priced(f"aten._scaled_dot_product_{kernel}.default", result, **arguments)
        assert found.matmul_flops == expected
        assert found.flops == expected + 6 * b * h * sq * skv
    flex = {str(number): value for number, value in enumerate(arguments.values())}
    assert priced("higher_order.flex_attention", result, **flex).matmul_flops == expected


def test_written_out_and_fused_attention_have_the_same_matmul_flops() -> None:
    query, key, value = (torch.ones(2, 4, 16, 8) for _ in range(3))

    def written_out(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return torch.softmax(query @ key.transpose(-1, -2) * 0.5, dim=-1) @ value

    fused = cost_of(scaled_dot_product_attention, query, key, value).totals
    written = cost_of(written_out, query, key, value).totals
    assert fused.matmul_flops == written.matmul_flops == counted_by_torch(written_out, query, key, value)
    assert fused.flops == written.flops


def test_grouped_heads_share_their_keys_but_each_query_head_works() -> None:
    query, key = torch.ones(1, 8, 16, 4), torch.ones(1, 2, 16, 4)

    def grouped(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return scaled_dot_product_attention(query, key, value, enable_gqa=True)

    assert cost_of(grouped, query, key, key).totals.matmul_flops == 2 * 8 * 16 * 16 * 8


def test_a_mask_costs_one_more_per_score() -> None:
    arguments = attention_arguments(1, 2, 4, 8, 3, 3)
    name, result = "aten._scaled_dot_product_flash_attention_for_cpu.default", several(spec(1, 2, 4, 3))
    free = priced(name, result, **arguments)
    masked = priced(name, result, **arguments, attn_mask=spec(4, 8))
    assert masked.flops - free.flops == 2 * 4 * 8


def test_causal_half_halves_the_products_of_kernels_that_are_causal() -> None:
    from tests.cost.calls import trace_of

    query = torch.ones(1, 2, 16, 4)
    causal = trace_of(lambda one: scaled_dot_product_attention(one, one, one, is_causal=True), query)
    free = trace_of(lambda one: scaled_dot_product_attention(one, one, one), query)
    half = Conventions(causal=Causal.HALF)
    assert 2 * price(causal, half).totals.matmul_flops == price(causal).totals.matmul_flops
    assert price(free, half).totals == price(free).totals
    assert price(causal, half).notes == ()
    assert "changes nothing" in price(free, half).notes[0]


def test_backward_kernels_do_five_products() -> None:
    arguments = attention_arguments(2, 3, 5, 7, 4, 4)
    found = priced(
        "aten._scaled_dot_product_flash_attention_backward.default",
        several(spec(2, 3, 5, 4), spec(2, 3, 7, 4), spec(2, 3, 7, 4)),
        grad_out=spec(2, 3, 5, 4),
        **arguments,
    )
    assert found.matmul_flops == 5 * 2 * 2 * 3 * 5 * 7 * 4


def test_backward_of_the_cpu_kernel_costs_two_and_a_half_times_the_forward() -> None:
    tensors = [torch.ones(1, 2, 16, 4, requires_grad=True) for _ in range(3)]
    forward = cost_of(scaled_dot_product_attention, *tensors).totals.matmul_flops
    both = cost_of(scaled_dot_product_attention, *tensors, backward=True).totals.matmul_flops
    assert 2 * both == 7 * forward


def test_packed_sequences_are_taken_as_the_longest() -> None:
    found = priced(
        "aten._flash_attention_forward.default",
        several(spec(20, 3, 4)),
        query=spec(20, 3, 4),
        key=spec(20, 3, 4),
        value=spec(20, 3, 4),
        cum_seq_q=spec(3, dtype="int32"),
        cum_seq_k=spec(3, dtype="int32"),
        max_q=12,
        max_k=12,
        is_causal=False,
    )
    assert found.matmul_flops == 2 * 2 * 3 * 12 * 12 * 8


def test_sequence_first_kernels_find_the_heads_in_the_third_place() -> None:
    arguments = {"query": spec(2, 16, 3, 4), "key": spec(2, 8, 3, 4), "value": spec(2, 8, 3, 4)}
    found = priced("aten._efficient_attention_forward.default", several(spec(2, 16, 3, 4)), **arguments)
    assert found.matmul_flops == 2 * 2 * 3 * 16 * 8 * 8
    back = priced("aten._efficient_attention_backward.default", several(spec(2, 16, 3, 4)), **arguments)
    assert 2 * back.matmul_flops == 5 * found.matmul_flops


def test_the_encoder_fast_path_has_the_matmul_flops_of_the_slow_one() -> None:
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()
    (source,) = meta((2, 8, 16))
    slow = counted_by_torch(layer.to("meta").train(), source)
    fast = priced(
        "aten._transformer_encoder_layer_fwd.default",
        spec(2, 8, 16),
        src=spec(2, 8, 16),
        num_heads=4,
        use_gelu=False,
        ffn_weight_1=spec(32, 16),
        mask=None,
    )
    assert fast.matmul_flops == slow


def test_multi_head_attention_projects_queries_keys_values_and_results() -> None:
    found = priced(
        "aten._native_multi_head_attention.default",
        several(spec(2, 8, 16)),
        query=spec(2, 8, 16),
        key=spec(2, 8, 16),
        value=spec(2, 8, 16),
        num_head=4,
        mask=None,
    )
    assert found.matmul_flops == 4 * 2 * 16 * 16 * 16 + 2 * 2 * 4 * 8 * 8 * 8


def test_dropout_inside_the_kernel_costs_two_a_score() -> None:
    op = "aten._scaled_dot_product_flash_attention.default"
    tensors = {"query": spec(1, 2, 8, 4), "key": spec(1, 2, 8, 4), "value": spec(1, 2, 8, 4)}
    plain, dropped = (priced(op, several(spec(1, 2, 8, 4)), **tensors, dropout_p=p) for p in (0.0, 0.1))
    assert dropped.flops - plain.flops == 2 * 2 * 64
