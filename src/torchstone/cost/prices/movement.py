"""Ops that compute nothing: views, factories, copies, indexing and collectives; only bytes move."""

from itertools import zip_longest
from math import prod

from torchstone.cost.registry import (
    Price,
    bytes_for,
    bytes_of,
    flag,
    optional_tensor,
    output,
    price_of,
    reads_of,
    tensor,
    tensors,
    value_of,
    whole,
    writes_of,
)
from torchstone.record.cost import Kind
from torchstone.record.op import OpSignature
from torchstone.record.value import tensors_in

# Views, questions about a tensor and checks of it: nothing is computed and nothing moves.


VIEWS = (
    "_conj", "_indices", "_neg_view", "_nested_view_from_buffer", "_reshape_alias", "_unsafe_view", "_values",
    "alias", "as_strided", "as_strided_", "chunk", "conj", "contiguous", "crow_indices", "col_indices", "detach",
    "detach_", "diagonal", "expand", "expand_as", "flatten", "imag", "indices", "is_same_size", "lift", "lift_fresh",
    "movedim", "narrow", "permute", "real", "reshape", "select", "set_", "slice", "split", "split_with_sizes",
    "squeeze", "squeeze_", "sym_numel", "sym_size", "sym_storage_offset", "sym_stride", "t", "t_", "transpose",
    "transpose_", "unbind", "unflatten", "unfold", "unsafe_chunk", "unsafe_split", "unsafe_split_with_sizes",
    "unsqueeze", "unsqueeze_", "values", "view", "view_as", "view_as_complex", "view_as_real", "view_dtype",
    "resolve_conj", "resolve_neg", "_has_same_storage_numel", "_linalg_check_errors", "is_pinned", "_version",
    "record_stream", "_assert_async", "_assert_scalar", "_assert_tensor_metadata", "_functional_assert_async",
    "_functional_assert_scalar", "_functional_sym_constrain_range", "_functional_sym_constrain_range_for_size",
    "sym_constrain_range", "sym_constrain_range_for_size", "sym_is_contiguous", "_make_dep_token",
    "_fused_sdp_choice", "is_set_to", "dense_dim", "sparse_dim", "q_scale", "q_zero_point", "qscheme",
    "q_per_channel_axis", "q_per_channel_scales", "q_per_channel_zero_points", "_nnz", "is_coalesced", "_make_dual",
    "_fw_primal", "slice_inverse", "ccol_indices", "row_indices",
)  # fmt: skip


@price_of(*(f"aten.{name}" for name in VIEWS), kind=Kind.VIEW)
@price_of("higher_order.wrap_with_set_grad_enabled", "prim.device", "prim.layout",
          "profiler._record_function_enter_new", "profiler._record_function_enter", "profiler._record_function_exit",
          kind=Kind.VIEW)  # fmt: skip
def view(call: OpSignature) -> Price:
    """Nothing."""
    return Price(reads=(0,) * len(call.input_specs), writes=(0,) * len(call.output_specs))


# Tensors made of nothing: the result is written, nothing is read.


_FILLED = (
    "bartlett_window", "blackman_window", "eye", "full", "full_like", "hamming_window", "hann_window", "kaiser_window",
    "new_full", "new_ones", "new_zeros", "ones", "ones_like", "scalar_tensor", "zero", "zero_", "zeros", "zeros_like",
    "_efficientzerotensor", "fill_.Scalar", "vander",
)  # fmt: skip
_NOT_FILLED = (
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "_empty_affine_quantized",
)
_COUNTED = ("arange", "linspace", "logspace", "range")


@price_of(*(f"aten.{name}" for name in _FILLED), kind=Kind.FACTORY)
def filled(call: OpSignature) -> Price:
    """A like-argument gives only its shape."""
    return Price(reads=(0,) * len(call.input_specs))


@price_of("aten.fill", "aten.fill_", kind=Kind.FACTORY)
def fill(call: OpSignature) -> Price:
    """The value, one element, is read where it is a tensor."""
    specs = call.input_specs
    return Price(reads=(0, *(int(spec.size_bytes or 0) for spec in specs[1:])))


@price_of(*(f"aten.{name}" for name in _NOT_FILLED), kind=Kind.FACTORY)
def empty(call: OpSignature) -> Price:
    """Memory is set aside, not written."""
    return Price(reads=(0,) * len(call.input_specs), writes=(0,) * len(call.output_specs))


@price_of(*(f"aten.{name}" for name in _COUNTED), kind=Kind.FACTORY)
def counted(call: OpSignature) -> Price:
    """Start + i*step: a multiply-add per element."""
    made = sum(spec.elements for spec in call.output_specs)
    return Price(flops=2 * made, reads=(0,) * len(call.input_specs), writes=writes_of(call))


# Copies: nothing is computed, everything is read and written once.


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


# Indexing: what is picked is read, not the tensor it is picked from.


_MEAN = 1  # what torch numbers the mode of a bag that takes the mean; 0 is the sum, 2 the largest


@price_of(
    "aten.embedding", "aten.index", "aten._unsafe_index", "aten.index_select", "aten.gather", "aten.take",
    "aten.take_along_dim", "aten.masked_select",
    kind=Kind.INDEXING,
)  # fmt: skip
def pick(call: OpSignature) -> Price:
    """As many elements are read from the source as come out, and all of the indices."""
    source, made = call.input_specs[0], output(call)
    reads = list(reads_of(call))
    reads[0] = min(bytes_for(source, made.elements), reads[0]) if _is_table(call) else bytes_for(source, made.elements)
    return Price(reads=tuple(reads))


def _is_table(call: OpSignature) -> bool:
    """A small table that every row is picked from many times is read once."""
    return call.op.startswith("aten.embedding")


@price_of("aten.embedding_dense_backward", "aten._embedding_bag_dense_backward", kind=Kind.INDEXING)
def embedding_backward(call: OpSignature) -> Price:
    """Each row of the gradient is added to its row of the table, which starts as zeros."""
    return Price(flops=tensor(call, "grad_output", "grad").elements)


@price_of("aten._embedding_bag", "aten._embedding_bag_forward_only", kind=Kind.INDEXING)
def embedding_bag(call: OpSignature) -> Price:
    """Rows are picked and summed, or compared; weights scale them first, a mean divides each result."""
    table, indices = tensor(call, "weight"), tensor(call, "indices")
    picked = indices.elements * table.shape[-1]
    scaled = picked if optional_tensor(call, "per_sample_weights") is not None else 0
    divided = output(call).elements if value_of(call, "mode") == _MEAN else 0
    reads = list(reads_of(call))
    reads[0] = min(bytes_for(table, picked), reads[0])
    return Price(flops=picked + scaled + divided, reads=tuple(reads))


@price_of("aten._embedding_bag_backward", kind=Kind.INDEXING)
def embedding_bag_backward(call: OpSignature) -> Price:
    """The gradient of a bag is added to each row it was made of, scaled first by weights or for a mean."""
    gradient, indices = tensor(call, "grad"), tensor(call, "indices")
    added = indices.elements * gradient.shape[-1]
    scaled = optional_tensor(call, "per_sample_weights") is not None or value_of(call, "mode") == _MEAN
    return Price(flops=added * (1 + scaled))


@price_of("aten._embedding_bag_per_sample_weights_backward", kind=Kind.INDEXING)
def sample_weights_backward(call: OpSignature) -> Price:
    """A dot product of each row picked with the gradient of its bag."""
    picked = tensor(call, "indices").elements * tensor(call, "weight").shape[-1]
    reads = [
        min(bytes_for(tensor(call, "weight"), picked), bytes_of(spec)) if argument.name == "weight" else bytes_of(spec)
        for argument in call.arguments
        for spec in tensors_in(argument.value)
    ]
    return Price(flops=2 * picked, reads=tuple(reads))


@price_of("aten.embedding_renorm", "aten.embedding_renorm_", kind=Kind.INDEXING)
def embedding_renorm(call: OpSignature) -> Price:
    """The rows named are measured (power, sum) and scaled in place; at most all of the table."""
    table, indices = tensor(call, "self"), tensor(call, "indices")
    named = min(indices.elements * table.shape[-1], table.elements)
    moved = bytes_for(table, named)
    return Price(flops=3 * named, reads=(moved, bytes_of(indices)), writes=(moved,))


@price_of("aten.index_put", "aten.index_put_", "aten._index_put_impl", "aten._index_put_impl_",
          "aten._unsafe_index_put", kind=Kind.INDEXING)  # fmt: skip
def index_put(call: OpSignature) -> Price:
    """Values go to their places; with accumulate what is there is read and added to."""
    values, target = tensor(call, "values"), tensor(call, "self")
    places = _places(call)
    moved = bytes_for(target, places)
    return _scattered(call, moved=moved, flops=places if flag(call, "accumulate") else 0, source=bytes_of(values))


def _places(call: OpSignature) -> int:
    """Elements written: the indices broadcast, times the dimensions that are not indexed."""
    target, indices = tensor(call, "self"), tensors(call, "indices")
    if not indices:
        return target.elements
    if any(spec.dtype in ("bool", "uint8") for spec in indices):
        return max(tensor(call, "values").elements, 1)
    given = value_of(call, "indices")
    positions = [number for number, item in enumerate(getattr(given, "items", ())) if item is not None]
    named = prod(_broadcast_shape(*(spec.shape for spec in indices)))
    return named * prod(size for dim, size in enumerate(target.shape) if dim not in positions)


def _broadcast_shape(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The common shape, last dimension first: (3, 1) and (4) make (4, 3)."""
    aligned = zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1)
    return tuple(next((size for size in sizes if size != 1), 1) for sizes in aligned)


@price_of("aten.scatter", "aten.scatter_", "aten.index_copy", "aten.index_copy_", "aten.index_fill",
          "aten.put", "aten.put_", kind=Kind.INDEXING)  # fmt: skip
def scatter(call: OpSignature) -> Price:
    """Values go to the places that the index names; with `reduce` or `accumulate` what is there is combined."""
    elements = _named(call)
    combined = value_of(call, "reduce") is not None or flag(call, "accumulate")
    source = optional_tensor(call, "src", "source")
    moved = bytes_for(tensor(call, "self"), elements)
    return _scattered(call, moved=moved, flops=elements if combined else 0, source=0 if source is None else moved)


@price_of("aten.scatter_add", "aten.scatter_reduce", "aten.index_add", "aten.index_reduce", kind=Kind.INDEXING)
def scatter_add(call: OpSignature) -> Price:
    """As scatter, and each place is combined with what is there."""
    elements = _named(call)
    moved = bytes_for(tensor(call, "self"), elements)
    return _scattered(call, moved=moved, flops=elements, source=moved)


def _named(call: OpSignature) -> int:
    """Elements that an index names: of `index_` ops whole slices across the dimension, else one for each entry."""
    target, index = tensor(call, "self"), tensor(call, "index")
    if not call.op.startswith("aten.index_") or not target.shape:
        return index.elements
    dim = whole(call, "dim")
    return index.elements * prod(target.shape[:dim] + target.shape[dim:][1:])


def _scattered(call: OpSignature, *, moved: int, flops: int, source: int) -> Price:
    """In place only the places named are touched; otherwise the target is copied first."""
    target = bytes_of(tensor(call, "self"))
    in_place = call.op.split(".")[1].endswith("_")
    reads = []
    for argument in call.arguments:
        match argument.name:
            case "self":
                reads.append((moved if flops else 0) if in_place else target)
            case "values" | "src" | "source":
                reads.extend(source for _ in tensors_in(argument.value))
            case _:
                reads.extend(bytes_of(spec) for spec in tensors_in(argument.value))
    return Price(flops=flops, reads=tuple(reads), writes=(moved if in_place else target,))


@price_of("aten.nonzero", "aten.nonzero_static", "aten.argwhere", kind=Kind.INDEXING)
def nonzero(call: OpSignature) -> Price:
    """Each element is compared with zero."""
    return Price(flops=tensor(call, "self").elements)


@price_of("aten.one_hot", kind=Kind.INDEXING)
def one_hot(_call: OpSignature) -> Price:
    """Indices are read, the result is written."""
    return Price()


@price_of("aten.index_select_backward", "aten.gather_backward", kind=Kind.INDEXING)
def pick_backward(call: OpSignature) -> Price:
    """Each element of the gradient is added to its place."""
    return Price(flops=call.input_specs[0].elements)


# Exchanges between devices: what each device reads and writes of its own memory; the wire is not in it.


_REDUCING = ("all_reduce", "all_reduce_coalesced", "reduce_scatter_tensor", "reduce_scatter_tensor_coalesced")
_MOVING = (
    "all_gather_into_tensor", "all_gather_into_tensor_coalesced", "all_gather_into_tensor_out", "all_to_all_single",
    "broadcast",
)  # fmt: skip


@price_of(*(f"_c10d_functional.{name}" for name in _REDUCING), kind=Kind.COLLECTIVE)
def reducing(call: OpSignature) -> Price:
    """One addition per element that goes in."""
    return Price(flops=sum(spec.elements for spec in call.input_specs))


@price_of(*(f"_c10d_functional.{name}" for name in _MOVING), kind=Kind.COLLECTIVE)
def moving(_call: OpSignature) -> Price:
    """Read and written, nothing computed."""
    return Price()


@price_of("_c10d_functional.wait_tensor", kind=Kind.VIEW)
def wait(call: OpSignature) -> Price:
    """The result was written by the exchange."""
    return Price(reads=(0,) * len(call.input_specs), writes=(0,) * len(call.output_specs))
