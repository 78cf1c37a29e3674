"""Every rule computes what its ATen op computes: both run on the CPU, on the same values."""

from typing import Any

import pytest
import torch

from tests.mapping.rules.torch_facade import Handle, TorchFacade
from torchstone.mapping.load import all_mappings
from torchstone.mapping.table import NotMappedError, find_mapping

ATEN = torch.ops.aten


def r(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def p(*shape: int) -> torch.Tensor:
    return r(*shape).abs() * 0.8 + 0.1


def b(*shape: int) -> torch.Tensor:
    return r(*shape) > 0


I = torch.tensor([[0, 2, 1], [3, 3, 0]])
UNARY = [
    "relu", "silu", "sigmoid", "tanh", "exp", "neg", "abs", "cos", "sin", "erf", "erfc", "floor", "ceil", "expm1",
    "sign", "square", "round", "trunc", "tan", "atan", "sinh", "cosh", "exp2", "isnan", "isinf", "isfinite",
    "hardswish", "hardsigmoid", "mish", "relu6", "asinh", "log_sigmoid_forward",
]  # fmt: skip
POSITIVE = ["log", "sqrt", "rsqrt", "reciprocal", "log1p", "log2", "log10", "asin", "acos", "erfinv", "atanh", "digamma", "lgamma"]  # fmt: skip
CASES: list[tuple[str, dict[str, Any]]] = [
    *((f"aten.{name}.default", {"self": r(3, 5)}) for name in UNARY),
    *((f"aten.{name}.default", {"self": p(3, 5)}) for name in POSITIVE),
    ("aten.selu.default", {"self": r(4)}),
    ("aten.acosh.default", {"self": p(4) + 1}),
    ("aten.logical_not.default", {"self": b(3, 4)}),
    ("aten.gelu.default", {"self": r(3, 5)}),
    ("aten.gelu.default", {"self": r(3, 5), "approximate": "tanh"}),
    ("aten.leaky_relu.default", {"self": r(3, 5), "negative_slope": 0.2}),
    ("aten.elu.default", {"self": r(3, 5), "alpha": 1.5}),
    ("aten.softplus.default", {"self": r(3, 5)}),
    ("aten.hardtanh.default", {"self": r(3, 5), "min_val": -0.5, "max_val": 0.5}),
    ("aten.clamp.default", {"self": r(3, 5), "min": -0.5, "max": None}),
    ("aten.clamp.Tensor", {"self": r(3, 5), "min": r(5), "max": r(5) + 1}),
    ("aten.glu.default", {"self": r(3, 6), "dim": -1}),
    ("aten.add.Tensor", {"self": r(3, 5), "other": r(5), "alpha": 2}),
    ("aten.add.Scalar", {"self": r(3, 5), "other": 3, "alpha": 2}),
    ("aten.sub.Tensor", {"self": r(3, 5), "other": r(3, 1), "alpha": 1}),
    ("aten.rsub.Scalar", {"self": r(3, 5), "other": 2, "alpha": 3}),
    ("aten.mul.Tensor", {"self": r(3, 5), "other": r(5)}),
    ("aten.div.Tensor", {"self": r(3, 5), "other": p(5)}),
    ("aten.div.Scalar", {"self": r(3, 5), "other": 7}),
    ("aten.div.Tensor_mode", {"self": r(3, 5), "other": p(5), "rounding_mode": "floor"}),
    ("aten.div.Tensor_mode", {"self": r(3, 5), "other": p(5), "rounding_mode": "trunc"}),
    ("aten.floor_divide.default", {"self": r(3, 5), "other": p(5)}),
    *(("aten.pow.Tensor_Scalar", {"self": p(3, 5), "exponent": exponent}) for exponent in (2, 3, 0.5, -0.5, -1, 1.7)),
    ("aten.pow.Scalar", {"self": 10000.0, "exponent": r(5)}),
    ("aten.pow.Tensor_Tensor", {"self": p(3, 5), "exponent": r(5)}),
    *((f"aten.{name}.Tensor", {"self": r(3, 5).round(), "other": r(5).round()}) for name in ("eq", "ne", "lt", "ge")),
    ("aten.gt.Scalar", {"self": r(3, 5), "other": 0.1}),
    ("aten.minimum.default", {"self": r(3, 5), "other": r(5)}),
    ("aten.remainder.Scalar", {"self": r(3, 5), "other": 0.3}),
    ("aten.bitwise_and.Tensor", {"self": b(3, 5), "other": b(5)}),
    ("aten.bitwise_not.default", {"self": b(3, 5)}),
    ("aten.where.self", {"condition": b(3, 5), "self": r(3, 5), "other": r(5)}),
    ("aten.masked_fill.Scalar", {"self": r(3, 5), "mask": b(5), "value": -9.0}),
    ("aten.addcmul.default", {"self": r(5), "tensor1": r(5), "tensor2": r(5), "value": 2}),
    ("aten.addcdiv.default", {"self": r(5), "tensor1": r(5), "tensor2": p(5), "value": 2}),
    ("aten.lerp.Scalar", {"self": r(5), "end": r(5), "weight": 0.3}),
    ("aten.threshold.default", {"self": r(5), "threshold": 0.1, "value": 7.0}),
    ("aten.mm.default", {"self": r(3, 5), "mat2": r(5, 7)}),
    ("aten.bmm.default", {"self": r(2, 3, 5), "mat2": r(2, 5, 7)}),
    ("aten.mv.default", {"self": r(3, 5), "vec": r(5)}),
    ("aten.dot.default", {"self": r(5), "tensor": r(5)}),
    ("aten.addmm.default", {"self": r(7), "mat1": r(3, 5), "mat2": r(5, 7)}),
    ("aten.addmm.default", {"self": r(3, 7), "mat1": r(3, 5), "mat2": r(5, 7), "beta": 2, "alpha": 3}),
    ("aten.baddbmm.default", {"self": r(2, 3, 7), "batch1": r(2, 3, 5), "batch2": r(2, 5, 7), "alpha": 0.5}),
    ("aten.linear.default", {"input": r(2, 3, 5), "weight": r(7, 5), "bias": r(7)}),
    ("aten.view.default", {"self": r(3, 4), "size": [2, -1]}),
    ("aten.unsqueeze.default", {"self": r(3, 4), "dim": -1}),
    ("aten.squeeze.dim", {"self": r(3, 1, 4), "dim": 1}),
    ("aten.squeeze.default", {"self": r(1, 3, 1)}),
    ("aten.expand.default", {"self": r(3, 1), "size": [2, -1, 4]}),
    ("aten.permute.default", {"self": r(2, 3, 4), "dims": [2, 0, -2]}),
    ("aten.transpose.int", {"self": r(2, 3, 4), "dim0": -1, "dim1": 0}),
    ("aten.t.default", {"self": r(2, 3)}),
    ("aten.select.int", {"self": r(2, 3, 4), "dim": 1, "index": -1}),
    ("aten.slice.Tensor", {"self": r(2, 9), "dim": 1, "start": -7, "end": (1 << 63) - 1, "step": 2}),
    ("aten.split.Tensor", {"self": r(2, 7), "split_size": 3, "dim": 1}),
    ("aten.split_with_sizes.default", {"self": r(2, 7), "split_sizes": [1, 6], "dim": -1}),
    ("aten.unbind.int", {"self": r(2, 3), "dim": 1}),
    ("aten.unfold.default", {"self": r(2, 9), "dimension": 1, "size": 4, "step": 2}),
    ("aten.cat.default", {"tensors": [r(2, 3), r(2, 4)], "dim": -1}),
    ("aten.stack.default", {"tensors": [r(2, 3), r(2, 3, seed=1)], "dim": -1}),
    ("aten.repeat.default", {"self": r(2, 3), "repeats": [2, 1, 3]}),
    ("aten.flip.default", {"self": r(3, 4), "dims": [0, -1]}),
    ("aten.roll.default", {"self": r(3, 4), "shifts": [1, -1], "dims": [0, 1]}),
    ("aten.constant_pad_nd.default", {"self": r(2, 3, 4), "pad": [1, 2, 0, 3], "value": 7.0}),
    ("aten.constant_pad_nd.default", {"self": r(3, 4), "pad": [-1, 1], "value": 0.0}),
    *(("aten.mean.dim", {"self": r(2, 3, 4), "dim": dim, "keepdim": keep}) for dim in ([1], [0, -1]) for keep in (True, False)),
    ("aten.sum.default", {"self": r(2, 3)}),
    ("aten.amax.default", {"self": r(2, 3), "dim": [1]}),
    ("aten.max.dim", {"self": r(2, 3, 4), "dim": 1}),
    ("aten.min.dim", {"self": r(2, 3, 4), "dim": 0, "keepdim": True}),
    ("aten.max.default", {"self": r(2, 3)}),
    ("aten.argmax.default", {"self": r(2, 3, 4), "dim": 1}),
    ("aten.argmax.default", {"self": r(2, 3)}),
    ("aten.argmin.default", {"self": r(2, 3), "dim": -1, "keepdim": True}),
    ("aten.all.default", {"self": b(2, 3)}),
    ("aten.any.dim", {"self": b(2, 3), "dim": 1}),
    ("aten.var.correction", {"self": r(2, 5), "dim": [1], "correction": 0, "keepdim": True}),
    ("aten.std.correction", {"self": r(2, 5), "dim": [1]}),
    ("aten.var_mean.correction", {"self": r(2, 5), "dim": [1], "correction": 1}),
    ("aten.linalg_vector_norm.default", {"self": r(2, 5), "ord": 2, "dim": [1], "keepdim": True}),
    ("aten.prod.dim_int", {"self": r(2, 5), "dim": 1}),
    ("aten.logsumexp.default", {"self": r(2, 5), "dim": [1]}),
    ("aten.cumsum.default", {"self": r(2, 5), "dim": -1}),
    ("aten.topk.default", {"self": r(2, 5), "k": 2}),
    ("aten.sort.default", {"self": r(2, 5), "dim": -1, "descending": True}),
    ("aten.embedding.default", {"weight": r(5, 4), "indices": I}),
    ("aten.embedding.default", {"weight": r(5, 4), "indices": I[0]}),
    ("aten.index_select.default", {"self": r(2, 5, 3), "dim": 1, "index": I[0]}),
    ("aten.index.Tensor", {"self": r(5, 4), "indices": [I[0]]}),
    ("aten.index.Tensor", {"self": r(5, 4, 3), "indices": [I, I]}),
    ("aten.gather.default", {"self": r(2, 5), "dim": 1, "index": I}),
    ("aten.scatter.src", {"self": r(2, 5), "dim": 1, "index": torch.tensor([[0, 2], [4, 1]]), "src": r(2, 2)}),
    ("aten.slice_scatter.default", {"self": r(2, 5), "src": r(2, 2), "dim": 1, "start": 1, "end": 3}),
    ("aten.select_scatter.default", {"self": r(2, 5), "src": r(2), "dim": 1, "index": -1}),
    ("aten.tril.default", {"self": r(4, 4), "diagonal": 1}),
    ("aten.triu.default", {"self": r(4, 4), "diagonal": -1}),
    ("aten._softmax.default", {"self": r(2, 5), "dim": -1, "half_to_float": False}),
    ("aten._log_softmax.default", {"self": r(2, 5), "dim": 1, "half_to_float": False}),
    ("aten.native_layer_norm.default", {"input": r(2, 3, 4), "normalized_shape": [4], "weight": r(4), "bias": r(4), "eps": 1e-5}),
    ("aten.native_layer_norm.default", {"input": r(2, 3, 4), "normalized_shape": [3, 4], "weight": r(3, 4), "bias": None, "eps": 1e-5}),
    ("aten.native_group_norm.default", {"input": r(2, 6, 3, 3), "weight": r(6), "bias": r(6), "N": 2, "C": 6, "HxW": 9, "group": 3, "eps": 1e-5}),
    ("aten.native_batch_norm.default", {"input": r(2, 6, 3, 3), "weight": r(6), "bias": r(6), "running_mean": r(6), "running_var": p(6), "training": False, "momentum": 0.1, "eps": 1e-3}),
    *(("aten.convolution.default", {
        "input": r(2, 4, 7, 6), "weight": r(6, 4 // groups, 3, 2), "bias": bias, "stride": [2, 1], "padding": [1, 0],
        "dilation": [1, 2], "transposed": False, "output_padding": [0, 0], "groups": groups,
    }) for groups in (1, 2) for bias in (None, r(6))),
    ("aten.convolution.default", {
        "input": r(2, 4, 9), "weight": r(6, 4, 3), "bias": r(6), "stride": [2], "padding": [1], "dilation": [1],
        "transposed": False, "output_padding": [0], "groups": 1,
    }),
    ("aten.convolution.default", {
        "input": r(2, 4, 5, 6), "weight": r(4, 3, 3, 3), "bias": r(3), "stride": [2, 2], "padding": [1, 1],
        "dilation": [1, 1], "transposed": True, "output_padding": [1, 0], "groups": 1,
    }),
    ("aten.max_pool2d_with_indices.default", {"self": r(2, 3, 7, 6), "kernel_size": [3, 2], "stride": [2, 2], "padding": [1, 0]}),
    ("aten.avg_pool2d.default", {"self": r(2, 3, 8, 6), "kernel_size": [2, 3]}),
    ("aten.avg_pool2d.default", {"self": r(2, 3, 5, 5), "kernel_size": [9, 9], "stride": [9, 9], "padding": [0, 0], "ceil_mode": True}),
    ("aten.upsample_nearest2d.default", {"self": r(1, 2, 8, 12), "output_size": [2, 3]}),
    ("aten.index_put.default", {"self": r(5, 2), "indices": [torch.tensor([3, 0])], "values": r(2, 2)}),
    ("aten.index_put.default", {"self": r(5), "indices": [torch.tensor([3, 0])], "values": r(2)}),
    ("aten._adaptive_avg_pool2d.default", {"self": r(2, 3, 8, 6), "output_size": [1, 1]}),
    ("aten._adaptive_avg_pool2d.default", {"self": r(2, 3, 8, 6), "output_size": [4, 2]}),
    ("aten.upsample_nearest2d.default", {"self": r(1, 2, 3, 4), "output_size": [6, 8]}),
    *(("aten.upsample_bilinear2d.default", {"self": r(1, 2, 3, 4), "output_size": size, "align_corners": corners})
      for size in ([6, 8], [5, 3], [2, 9], [1, 1]) for corners in (False, True)),
    *(("aten.upsample_linear1d.default", {"self": r(1, 2, 5), "output_size": [size], "align_corners": corners})
      for size in (1, 3, 5, 8, 10) for corners in (False, True)),
    ("aten.upsample_linear1d.default", {"self": r(1, 2, 5), "output_size": [12], "align_corners": False, "scales": 2.5}),
    ("aten.upsample_bicubic2d.default", {"self": r(1, 2, 3, 4), "output_size": [3, 4], "align_corners": False}),
    *(("aten.histc.default", {"self": torch.tensor(values, dtype=torch.float64), "bins": bins, "min": low, "max": high})
      for values, bins, low, high in (
          ([0, 3, 3, 7, 5, 1], 8, 0, 7), ([0, 9, -1, 4.5, 4.4], 2, 0, 9), ([255, 254, 0, 128], 256, 0, 255),
          ([1.0], 1, 0, 1), ([-3, 4, 2], 5, -3, 5))),
    ("aten._weight_norm_interface.default", {"v": r(3, 4, 5), "g": r(1, 1, 5), "dim": 2}),
    ("aten._weight_norm_interface.default", {"v": r(3, 4, 5), "g": r(3, 1, 1), "dim": 0}),
    ("aten.xlogy.Tensor", {"self": torch.tensor([0.0, 1.0, 2.0]), "other": torch.tensor([0.0, 0.5, 3.0])}),
    ("aten.xlogy.Scalar_Other", {"self": r(4), "other": 2.0}),
    ("aten.xlogy.Scalar_Self", {"self": 0.0, "other": p(4)}),
    ("aten._is_all_true.default", {"self": b(2, 3)}),
    ("aten._is_any_true.default", {"self": b(2, 3)}),
    ("aten.polar.default", {"abs": p(2, 3), "angle": r(2, 3)}),
    ("aten.view_as_complex.default", {"self": r(2, 3, 2)}),
    ("aten.view_as_real.default", {"self": torch.complex(r(2, 3), r(2, 3, seed=1))}),
    ("aten.mul.Tensor", {"self": torch.complex(r(2, 3), r(2, 3, seed=1)), "other": torch.complex(r(3), r(3, seed=1))}),
    ("aten.mul.Scalar", {"self": torch.complex(r(2, 3), r(2, 3, seed=1)), "other": 0.5}),
    ("aten.as_strided.default", {"self": r(1, 5, 1), "size": [1, 5, 1], "stride": [5, 1, 9]}),
    ("aten.slice.Tensor", {"self": r(2, 5), "dim": 1, "start": 5, "end": 9}),
    ("aten.slice.Tensor", {"self": r(2, 5), "dim": 0, "start": 1, "end": 1}),
    ("aten.cat.default", {"tensors": [torch.tensor([[1, 2]]), r(1, 3)], "dim": 1}),
    ("aten.cat.default", {"tensors": [r(1, 3), r(0)], "dim": 1}),
    ("aten.amin.default", {"self": r(2, 3), "dim": [0], "keepdim": True}),
    ("aten.argsort.default", {"self": r(2, 5), "dim": -1, "descending": False}),
    *((f"aten.{name}.Tensor", {"self": b(3, 5), "other": b(5)}) for name in ("bitwise_or", "bitwise_xor", "__or__")),
    *((f"aten.{name}.default", {"self": b(3, 5), "other": b(5)}) for name in ("logical_and", "logical_or", "logical_xor")),
    *((f"aten.{name}.default", {"self": r(3, 5), "other": r(5)}) for name in ("maximum", "atan2")),
    ("aten.le.Scalar", {"self": r(3, 5), "other": 0.1}),
    ("aten.fmod.Scalar", {"self": r(3, 5), "other": 0.3}),
    ("aten._fused_rms_norm.default", {"input": r(2, 4), "normalized_shape": [4], "weight": r(4), "eps": 1e-5}),
    ("aten._to_copy.default", {"self": r(2, 3), "dtype": torch.float32}),
    ("aten._to_copy.default", {"self": r(2, 3)}),
    *((f"aten.{name}.default", {"self": r(2, 3)}) for name in ("alias", "clone", "detach", "zeros_like", "zero")),
    ("aten.ones_like.default", {"self": r(2, 3)}),
    ("aten.full_like.default", {"self": r(2, 3), "fill_value": 4.0}),
    ("aten.copy.default", {"self": r(2, 3), "src": r(3)}),
    ("aten.fill.Scalar", {"self": r(2, 3), "value": 2.0}),
    ("aten.fill.Tensor", {"self": r(2, 3), "value": torch.tensor(3.0, dtype=torch.float64)}),
    ("aten.movedim.intlist", {"self": r(2, 3, 4), "source": [0, 1], "destination": [2, 0]}),
    ("aten.narrow.default", {"self": r(2, 5), "dim": 1, "start": 1, "length": 3}),
    ("aten.native_dropout.default", {"input": r(2, 3), "p": 0.5, "train": False}),
    *((f"aten.{name}.default", {"size": [2, 3], "dtype": torch.float32}) for name in ("zeros", "ones")),
    ("aten.scalar_tensor.default", {"s": 2.5, "dtype": torch.float64}),
    ("aten.full.default", {"size": [2], "fill_value": 3.0, "dtype": torch.float64}),
]  # fmt: skip
ELSEWHERE = {
    "attention", "grouped_mm", "arange", "linspace", "rand",
    "local_scalar",  # reads a value on the host
}  # fmt: skip


def handles(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, torch.Tensor):
        return Handle(value.clone())
    return [handles(one) for one in value] if isinstance(value, list) else value


def tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, Handle):
        return [value.raw]
    if isinstance(value, torch.Tensor):
        return [value]
    return [one for part in value for one in tensors(part)] if isinstance(value, list | tuple) else []


def by_rule(op: str, arguments: dict[str, Any]) -> tuple[list[torch.Tensor], TorchFacade]:
    mapping = find_mapping(op)
    assert mapping is not None
    assert mapping.rule is not None
    facade = TorchFacade()
    return tensors(mapping.rule(facade, **{name: handles(value) for name, value in arguments.items()})), facade


@pytest.mark.parametrize(("op", "arguments"), CASES, ids=[f"{number}-{op}" for number, (op, _) in enumerate(CASES)])
def test_a_rule_computes_what_its_op_computes(op: str, arguments: dict[str, Any]) -> None:
    all_mappings()
    _, packet, overload = op.split(".")
    expected = tensors(getattr(getattr(ATEN, packet), overload)(**arguments))
    found, _ = by_rule(op, arguments)

    assert found
    for one, wanted in zip(found, expected, strict=False):  # later results serve the backward pass
        assert tuple(one.shape) == tuple(wanted.shape)
        if wanted.is_complex():
            one, wanted = torch.view_as_real(one), torch.view_as_real(wanted)  # noqa: PLW2901 - compared by their parts
        assert torch.allclose(one.double(), wanted.double(), atol=1e-6, rtol=1e-6, equal_nan=True)
        if op == "aten.log_sigmoid_forward.default":
            break


@pytest.mark.parametrize("size", [16, 32])
@pytest.mark.parametrize("heads", [4, 2])
@pytest.mark.parametrize("how", ["plain", "causal", "mask", "booleans"])
def test_attention_fused_or_not_computes_what_torch_does(size: int, heads: int, how: str) -> None:
    all_mappings()
    q, k, v = r(1, 4, 32, size), r(1, heads, 32, size, seed=1), r(1, heads, 32, size, seed=2)
    mask = {"mask": r(1, 1, 32, 32), "booleans": b(1, 1, 32, 32) | torch.eye(32, dtype=torch.bool)}.get(how)
    named: dict[str, Any] = {"attn_mask": mask, "is_causal": how == "causal"}
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, **named, enable_gqa=heads != 4)
    found, facade = by_rule("aten.scaled_dot_product_attention.default", {"query": q, "key": k, "value": v, **named})

    assert torch.allclose(found[0], expected, atol=1e-6)
    assert ("scaled_dot_product_attention" in facade.called) is (size == 32)


def test_grouped_products_are_those_of_each_expert() -> None:
    all_mappings()
    rows, weights, ends = r(7, 4), r(3, 4, 5), torch.tensor([2, 2, 7])
    found, _ = by_rule("aten._grouped_mm.default", {"self": rows, "mat2": weights, "offs": ends})

    expected = torch.cat([rows[:2] @ weights[0], rows[2:7] @ weights[2]])
    assert torch.allclose(found[0], expected)


def test_tensors_that_are_made_have_the_values_that_torch_gives() -> None:
    all_mappings()
    made, _ = by_rule("aten.arange.start_step", {"start": 2, "end": 9, "step": 3})
    line, _ = by_rule("aten.linspace.default", {"start": -1.0, "end": 1.0, "steps": 5})
    full, _ = by_rule("aten.full.default", {"size": [2, 3], "fill_value": 7.0})

    assert made[0].tolist() == [2, 5, 8]
    assert torch.allclose(line[0], torch.linspace(-1, 1, 5))
    assert full[0].tolist() == [[7.0] * 3] * 2


def test_a_rule_says_which_calls_it_does_not_cover() -> None:
    all_mappings()
    for op, arguments in (
        ("aten.where.default", {"condition": b(3)}),
        ("aten.index.Tensor", {"self": r(3), "indices": [b(3)]}),
        ("aten.native_batch_norm.default", {"input": r(2, 3), "training": True}),
    ):
        with pytest.raises(NotMappedError):
            by_rule(op, arguments)


def test_random_numbers_have_the_shape_and_the_limits_of_the_op() -> None:
    all_mappings()
    (found,), _ = by_rule("aten.rand.default", {"size": [3, 5]})

    assert found.shape == (3, 5)
    assert 0 <= float(found.min()) <= float(found.max()) < 1


def test_grouped_products_in_parts_are_those_of_each_expert(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchstone.mapping.rules import matmul

    all_mappings()
    monkeypatch.setattr(matmul, "_LARGEST", 1)
    rows, weights, ends = r(9, 4), r(5, 4, 3), torch.tensor([2, 2, 7, 8, 9])
    found, facade = by_rule("aten._grouped_mm.default", {"self": rows, "mat2": weights, "offs": ends})

    spans = zip([0, 2, 2, 7, 8], ends.tolist(), weights, strict=True)
    assert torch.allclose(found[0], torch.cat([rows[first:last] @ weight for first, last, weight in spans]))
    assert facade.called.count("matmul") == 5


def test_every_rule_was_compared_with_its_op() -> None:
    covered = {".".join(op.split(".")[:2]) for op, _ in CASES}
    rules = {mapping.rule: op for op, mapping in all_mappings().items() if mapping.rule is not None}
    tested = {mapping.rule for op in covered if (mapping := find_mapping(op)) is not None}

    assert {op for rule, op in rules.items() if rule not in tested and rule.__name__ not in ELSEWHERE} == set()
