"""Views: another way to look at the same memory; nothing is computed and nothing moves."""

from torchstone.cost.registry import Price, price_of
from torchstone.record.cost import Kind
from torchstone.record.op import OpSignature

VIEWS = (
    "_conj", "_indices", "_neg_view", "_nested_view_from_buffer", "_reshape_alias", "_unsafe_view", "_values", "alias",
    "as_strided", "as_strided_", "chunk", "conj", "contiguous", "crow_indices", "col_indices", "detach", "detach_",
    "diagonal", "expand", "expand_as", "flatten", "imag", "indices", "is_same_size", "lift", "lift_fresh", "movedim",
    "narrow", "permute", "real", "reshape", "select", "set_", "slice", "split", "split_with_sizes", "squeeze",
    "squeeze_", "sym_numel", "sym_size", "sym_storage_offset", "sym_stride", "t", "t_", "transpose", "transpose_",
    "unbind", "unflatten", "unfold", "unsafe_chunk", "unsafe_split", "unsafe_split_with_sizes", "unsqueeze",
    "unsqueeze_", "values", "view", "view_as", "view_as_complex", "view_as_real", "view_dtype", "resolve_conj",
    "resolve_neg", "_has_same_storage_numel", "_linalg_check_errors", "is_pinned", "_version", "record_stream",
)  # fmt: skip


@price_of(*(f"aten.{name}" for name in VIEWS), kind=Kind.VIEW)
@price_of("higher_order.wrap_with_set_grad_enabled", "prim.device", "prim.layout", kind=Kind.VIEW)
def view(call: OpSignature) -> Price:
    """Nothing."""
    return Price(reads=(0,) * len(call.input_specs), writes=(0,) * len(call.output_specs))
