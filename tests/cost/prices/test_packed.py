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


def test_products_of_quantization_libraries_are_those_of_their_matrices() -> None:
    """Their arguments: bitsandbytes 0.50.2, _ops.py; optimum-quanto 0.2.7, library/qbytes_mm.py."""
    x, absmax = spec(2, 3, 130), spec(7)
    packed = spec(195, 1, dtype="uint8")  # 3 x 130 values
    found = priced("bitsandbytes.gemm_4bit.default", spec(2, 3, 3), A=x, B=packed, absmax=absmax, bias=spec(3))
    assert (found.matmul_flops, found.flops) == (2 * 6 * 130 * 3, 2 * 6 * 130 * 3 + 18)
    assert found.reads == (2 * 3 * 130 * 4, 195, 7 * 4, 3 * 4)
    one = priced("bitsandbytes.gemv_4bit.default", spec(1, 1, 3), A=spec(1, 1, 130), B=packed, absmax=absmax)
    assert (one.matmul_flops, one.flops) == (2 * 130 * 3, 2 * 130 * 3)
    bytes_mm = priced("quanto.qbytes_mm.default", spec(2, 3, 3), A=x, B=spec(3, 130, dtype="int8"), scales=spec(3, 1))
    assert (bytes_mm.matmul_flops, bytes_mm.reads) == (2 * 6 * 130 * 3, (2 * 3 * 130 * 4, 390, 12))
    given = {"A": packed, "absmax": absmax}
    table = priced("bitsandbytes.dequantize_4bit.default", spec(3, 130), **given)
    assert (table.flops, table.reads, table.writes) == (390, (195, 28), (3 * 130 * 4,))
    assert priced("quanto.unpack.default", spec(8, 4, dtype="uint8"), self=spec(4, 4, dtype="uint8")).flops == 64


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
