"""Views, questions about a tensor and checks of it: nothing is computed and nothing moves."""

from torchstone.cost.registry import Price, price_of
from torchstone.record.cost import Kind
from torchstone.record.op import OpSignature

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
