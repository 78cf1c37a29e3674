import torch

from tests.cost.calls import flops_of, priced, several, spec


def test_four_bit_weights_are_read_as_they_lie() -> None:
    packed = spec(8, 4, 32, 4, dtype="int32")  # 8 values in each
    found = priced(
        "aten._weight_int4pack_mm.default",
        spec(16, 64, dtype="bfloat16"),
        self=spec(16, 512, dtype="bfloat16"),
        mat2=packed,
        qGroupSize=128,
        qScaleAndZeros=spec(4, 64, 2, dtype="bfloat16"),
    )
    assert found.matmul_flops == 2 * 16 * 512 * 64
    assert found.reads == (16 * 512 * 2, 64 * 512 // 2, 4 * 64 * 2 * 2)


def test_quantising_costs_five_and_the_way_back_two() -> None:
    there = priced("quantized_decomposed.quantize_per_tensor.default", spec(4, 8, dtype="int8"), input=spec(4, 8))
    back = priced("quantized_decomposed.dequantize_per_tensor.default", spec(4, 8), input=spec(4, 8, dtype="int8"))
    assert (there.flops, back.flops) == (160, 64)
    assert (back.reads, back.writes) == ((32,), (128,))


def test_quantising_the_input_on_the_fly_comes_on_top() -> None:
    found = priced(
        "aten._dyn_quant_matmul_4bit.default", spec(2, 6), inp=spec(2, 4), packed_weights=spec(50, dtype="uint8")
    )
    assert (found.matmul_flops, found.flops) == (2 * 2 * 4 * 6, 2 * 2 * 4 * 6 + 16)


def test_a_scale_is_chosen_from_smallest_and_largest() -> None:
    assert priced("quantized_decomposed.choose_qparams.tensor", several(spec(1)), input=spec(4, 8)).flops == 64


def test_pretended_quantisation_goes_there_and_back() -> None:
    given = torch.ones(4, 8)
    assert flops_of(lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127), given) == 7 * 32
    found = priced("aten._fused_moving_avg_obs_fq_helper.default", several(spec(4, 8), spec(4, 8)), self=spec(4, 8))
    assert found.flops == 9 * 32
