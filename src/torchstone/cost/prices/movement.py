"""Copies: nothing is computed, everything is read and written once."""

from torchstone.cost.arguments import output, tensor
from torchstone.cost.registry import Price, price_of
from torchstone.cost.traffic import bytes_for, bytes_of, reads_of
from torchstone.record.cost import Kind
from torchstone.record.op import OpSignature

_COPIES = (
    "_to_copy", "_to_cpu", "as_strided_copy", "block_diag", "cat", "channel_shuffle", "clone", "concat",
    "constant_pad_nd", "contiguous_copy", "detach_copy", "diag_embed", "dstack", "expand_copy", "flip", "hstack",
    "im2col", "lift_fresh_copy", "native_channel_shuffle", "permute_copy", "pixel_shuffle", "pixel_unshuffle",
    "reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "repeat", "replication_pad1d", "replication_pad2d",
    "replication_pad3d", "roll", "rot90", "select_copy", "slice_copy", "split_copy", "split_with_sizes_copy",
    "squeeze_copy", "stack", "t_copy", "tile", "to", "transpose_copy", "tril", "triu", "unbind_copy", "unfold_copy",
    "unsqueeze_copy", "view_copy", "vstack", "_copy_from", "_copy_from_and_resize", "_pin_memory", "pin_memory",
    "_reshape_copy", "_chunk_cat", "_pad_enum", "_foreach_copy", "diagonal_copy", "_unsafe_masked_index",
    "_conj_copy", "_neg_view_copy", "view_as_complex_copy", "view_as_real_copy", "diag", "kron_copy", "alias_copy",
    "select_scatter", "slice_scatter", "diagonal_scatter", "as_strided_scatter", "masked_scatter",
    "_nested_tensor_from_mask", "to_padded_tensor", "_jagged_to_padded_dense_forward", "to_sparse", "to_dense",
    "_to_dense", "to_mkldnn", "_pack_padded_sequence", "_stack", "narrow_copy", "max_unpool2d", "max_unpool3d",
    "_convert_weight_to_int4pack", "_convert_weight_to_int4pack_for_cpu", "_dyn_quant_pack_4bit_weight", "_lazy_clone",
    "_reshape_alias_copy", "_values_copy", "_indices_copy", "values_copy", "indices_copy", "lu_unpack", "int_repr",
    "_padded_dense_to_jagged_forward", "_coalesce",
)  # fmt: skip


@price_of(*(f"aten.{name}" for name in _COPIES), kind=Kind.COPY)
def copy(_call: OpSignature) -> Price:
    """Every input is read, every output written."""
    return Price()


@price_of("aten.copy", "aten.copy_", "aten._foreach_copy_", kind=Kind.COPY)
def copy_into(call: OpSignature) -> Price:
    """The source is read; what lay in the target is not."""
    reads = list(reads_of(call))
    reads[: len(reads) // 2] = [0] * (len(reads) // 2)
    return Price(reads=tuple(reads))


@price_of("aten.repeat_interleave", kind=Kind.COPY)
def repeat_interleave(_call: OpSignature) -> Price:
    """Counts, or a tensor and counts, are read; the result is written."""
    return Price()


@price_of("aten.repeat_interleave.Tensor", kind=Kind.SCAN)
def repeat_indices(call: OpSignature) -> Price:
    """A running sum over the counts, then one index per result."""
    return Price(flops=tensor(call, "repeats").elements)


@price_of("aten.select_backward", "aten.slice_backward", "aten.unfold_backward", "aten.diagonal_backward",
          "aten.pixel_shuffle_backward", "aten.masked_scatter_backward", kind=Kind.COPY)  # fmt: skip
def view_backward(_call: OpSignature) -> Price:
    """The gradient is copied into zeros."""
    return Price()


@price_of("aten.reflection_pad1d_backward", "aten.reflection_pad2d_backward", "aten.replication_pad1d_backward",
          "aten.replication_pad2d_backward", "aten.replication_pad3d_backward", "aten.reflection_pad3d_backward",
          kind=Kind.COPY)  # fmt: skip
def pad_backward(call: OpSignature) -> Price:
    """What was repeated is added up; the forward input gives only its shape."""
    gradient = tensor(call, "grad_output")
    return Price(flops=gradient.elements, reads=(bytes_of(gradient), 0))


@price_of("aten.col2im", "aten.fold", kind=Kind.COPY)
def col2im(call: OpSignature) -> Price:
    """Overlapping patches are added up."""
    return Price(flops=tensor(call, "self").elements)


@price_of("aten.resize", "aten.resize_", "aten.resize_as_", "aten._resize_output_", kind=Kind.COPY)
def resize(call: OpSignature) -> Price:
    """What is there is kept: read and written once."""
    size = min(bytes_of(tensor(call, "self")), bytes_of(output(call)))
    return Price(reads=(size,) + (0,) * (len(call.input_specs) - 1), writes=(size,))


@price_of("aten.tril_indices", "aten.triu_indices", kind=Kind.FACTORY)
def triangle_indices(call: OpSignature) -> Price:
    """Written, nothing read."""
    made = output(call)
    return Price(writes=(bytes_for(made, made.elements),))
