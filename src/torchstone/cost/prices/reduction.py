"""Reductions, scans, sorting, normalisation, softmax and losses: a number of FLOPs per input element."""

from collections.abc import Mapping

from torchstone.cost.prices.matmul import multiply_adds
from torchstone.cost.registry import (
    Price,
    bytes_for,
    flag,
    numbers,
    optional_tensor,
    output,
    price_of,
    reads_of,
    tensor,
    tensors,
    value_of,
    whole,
)
from torchstone.record.cost import Kind
from torchstone.record.op import OpSignature
from torchstone.record.tensor import TensorSpec

# Reductions: a number of FLOPs per input element.


FLOPS_PER_INPUT: Mapping[str, int] = {
    "sum": 1,
    "nansum": 1,
    "mean": 1,  # the division per result is left out: one in many
    "prod": 1,
    "max": 1,
    "min": 1,
    "amax": 1,
    "amin": 1,
    "aminmax": 2,
    "argmax": 1,
    "argmin": 1,
    "any": 1,
    "all": 1,
    "_is_all_true": 1,
    "_is_any_true": 1,
    "count_nonzero": 1,
    "var": 4,  # mean, subtract, square, sum
    "std": 4,
    "var_mean": 4,
    "std_mean": 4,
    "norm": 2,  # power, sum
    "linalg_vector_norm": 2,
    "_foreach_norm": 2,
    "logsumexp": 4,  # max, subtract, exp, sum
    "histc": 2,  # scale, count
    "bincount": 1,
    "histogram": 2,
    "trace": 1,
    "equal": 1,
    "dist": 3,
    "_foreach_powsum": 2,
    "_foreach_max": 1,
    "linalg__powsum": 2,
    "_aminmax": 2,
    "_histogramdd_from_bin_cts": 2,  # scale, count
    "segment_reduce": 1,
    "hash_tensor": 1,
}


@price_of(*(f"aten.{name}" for name in FLOPS_PER_INPUT), kind=Kind.REDUCTION)
def reduction(call: OpSignature) -> Price:
    """The function's price, times the elements of the input, or of all tensors of a list."""
    name = call.op.split(".")[1]
    name = name if name in FLOPS_PER_INPUT else name.removesuffix("_")
    reduced = tensors(call, "self") or call.input_specs[:1]
    return Price(flops=FLOPS_PER_INPUT[name] * sum(_steps_of(name, spec) for spec in reduced))


def _steps_of(name: str, spec: TensorSpec) -> int:
    """Elements, a complex one as two; as six where it is multiplied."""
    multiplied = 6 if name in ("prod", "cumprod") else 2
    return spec.elements * (multiplied if spec.dtype.startswith("complex") else 1)


@price_of("aten._segment_reduce_backward", kind=Kind.REDUCTION)
def segment_reduce_backward(call: OpSignature) -> Price:
    """The gradient of a segment goes to each of its elements."""
    return Price(flops=tensor(call, "data").elements)


@price_of("aten.max.other", "aten.min.other", kind=Kind.POINTWISE)
def larger_or_smaller(call: OpSignature) -> Price:
    """max(a, b) element by element."""
    return Price(flops=call.output_specs[0].elements)


@price_of("aten._local_scalar_dense", "aten.item", "aten.is_nonzero", kind=Kind.REDUCTION)
def read_back(call: OpSignature) -> Price:
    """One element goes to Python."""
    return Price(reads=(int(tensor(call, "self").size_bytes or 0),))


@price_of("aten.cross", "aten.linalg_cross", kind=Kind.POINTWISE)
def cross(call: OpSignature) -> Price:
    """Two products and a difference per element."""
    return Price(flops=3 * call.output_specs[0].elements)


# Running sums and the like: each element is combined once with what came before.


FLOPS_PER_ELEMENT: Mapping[str, int] = {
    "cumsum": 1,
    "cumprod": 1,
    "cummax": 1,
    "cummin": 1,
    "_cummax_helper": 1,
    "_cummin_helper": 1,
    "logcumsumexp": 5,  # max, difference, exp, log1p, add
}


@price_of(*(f"aten.{name}" for name in FLOPS_PER_ELEMENT), kind=Kind.SCAN)
def scan(call: OpSignature) -> Price:
    """The price of one step, times the elements."""
    name = call.op.split(".")[1]
    name = name if name in FLOPS_PER_ELEMENT else name.removesuffix("_")
    return Price(flops=FLOPS_PER_ELEMENT[name] * _steps_of(name, call.input_specs[0]))


@price_of("higher_order.associative_scan", kind=Kind.SCAN)
def associative_scan(call: OpSignature) -> Price:
    """One combination per element, of one multiply-add: what state-space models do; the function is not looked into."""
    return Price(flops=2 * sum(spec.elements for spec in call.output_specs))


# Sorting and searching: comparisons by the usual method, one FLOP each.


def _steps(count: int) -> int:
    """The binary logarithm, rounded up."""
    return (count - 1).bit_length() if count > 1 else 0


@price_of("aten.sort", "aten.argsort", "aten.msort", kind=Kind.SORTING)
def sort(call: OpSignature) -> Price:
    """N * log2(n) comparisons along the dimension."""
    given = tensor(call, "self")
    dim = whole(call, "dim") if any(argument.name == "dim" for argument in call.arguments) else 0
    length = given.shape[dim] if given.shape else 1
    return Price(flops=given.elements * _steps(length))


@price_of("aten.topk", kind=Kind.SORTING)
def topk(call: OpSignature) -> Price:
    """A heap of k: log2(k) + 1 comparisons per element."""
    return Price(flops=tensor(call, "self").elements * (_steps(whole(call, "k")) + 1))


@price_of("aten.kthvalue", "aten.median", "aten.nanmedian", "aten.mode", kind=Kind.SORTING)
def select(call: OpSignature) -> Price:
    """Quickselect: about two comparisons per element."""
    return Price(flops=2 * tensor(call, "self").elements)


@price_of("aten.unique_consecutive", "aten.unique_dim_consecutive", kind=Kind.SORTING)
def unique_consecutive(call: OpSignature) -> Price:
    """Each element against the one before."""
    return Price(flops=tensor(call, "self").elements)


@price_of("aten._unique2", "aten._unique", "aten.unique_dim", kind=Kind.SORTING)
def unique(call: OpSignature) -> Price:
    """Sort, then compare neighbours."""
    count = tensor(call, "self").elements
    return Price(flops=count * (_steps(count) + 1))


@price_of("aten.bucketize", "aten.searchsorted", kind=Kind.SORTING)
def search(call: OpSignature) -> Price:
    """A binary search in the boundaries for each element."""
    table = tensor(call, "boundaries", "sorted_sequence")
    searched = output(call).elements
    return Price(flops=searched * (_steps(table.shape[-1] if table.shape else 1) + 1))


# Normalisations and softmax, priced as the sum of their steps.


_STATISTICS = 4  # sum for the mean; subtract, square, sum for the variance
_NORMALISE = 1  # multiply by the reciprocal deviation; the difference is kept
_SOFTMAX = 5  # max, subtract, exp, sum, divide


def _affine(call: OpSignature) -> int:
    return sum(optional_tensor(call, name) is not None for name in ("weight", "bias"))


@price_of("aten.native_layer_norm", "aten.layer_norm", "aten.native_group_norm", "aten.group_norm",
          kind=Kind.NORMALISATION)  # fmt: skip
def layer_norm(call: OpSignature) -> Price:
    """Mean and variance (4), normalise (1), scale and shift (1 each, where given)."""
    return Price(flops=(_STATISTICS + _NORMALISE + _affine(call)) * tensor(call, "input").elements)


@price_of("aten.native_layer_norm_backward", "aten.native_group_norm_backward", kind=Kind.NORMALISATION)
def layer_norm_backward(call: OpSignature) -> Price:
    """Normalised input again (2), two sums (4), gradient of the input (5), of weight and bias (3)."""
    return Price(flops=14 * tensor(call, "grad_out").elements)


@price_of("aten._fused_rms_norm", "aten.rms_norm", kind=Kind.NORMALISATION)
def rms_norm(call: OpSignature) -> Price:
    """Square, sum, multiply by the reciprocal root; scale where given."""
    return Price(flops=(3 + _affine(call)) * tensor(call, "input").elements)


@price_of("aten._fused_rms_norm_backward", kind=Kind.NORMALISATION)
def rms_norm_backward(call: OpSignature) -> Price:
    """Normalised input again (1), one sum (2), gradient of the input (4), of the weight (2)."""
    return Price(flops=9 * tensor(call, "grad_out").elements)


@price_of(
    "aten.native_batch_norm", "aten._native_batch_norm_legit", "aten._native_batch_norm_legit_functional",
    "aten._native_batch_norm_legit_no_training", "aten._batch_norm_with_update", "aten._batch_norm_no_update",
    "aten.cudnn_batch_norm", "aten.miopen_batch_norm", "aten.batch_norm", "aten._batch_norm_with_update_functional",
    kind=Kind.NORMALISATION,
)  # fmt: skip
def batch_norm(call: OpSignature) -> Price:
    """With running statistics: subtract, multiply, scale, shift. In training the statistics come on top (4)."""
    training = flag(call, "training") or flag(call, "train") or "with_update" in call.op
    steps = (_STATISTICS + _NORMALISE if training else 2) + _affine(call)
    return Price(flops=steps * tensor(call, "input").elements)


@price_of("aten.native_batch_norm_backward", "aten.cudnn_batch_norm_backward", "aten.batch_norm_backward",
          kind=Kind.NORMALISATION)  # fmt: skip
def batch_norm_backward(call: OpSignature) -> Price:
    """As layer_norm_backward; with running statistics the gradient of the input is one product."""
    training = flag(call, "train") or flag(call, "training") or flag(call, "update")
    return Price(flops=(14 if training else 6) * tensor(call, "grad_out", "grad_output").elements)


@price_of("aten._softmax", "aten._safe_softmax", "aten._log_softmax", "aten.softmax", "aten.log_softmax",
          "aten._masked_softmax", kind=Kind.NORMALISATION)  # fmt: skip
def softmax(call: OpSignature) -> Price:
    """Max, subtract, exp, sum, divide (for the logarithm: log and subtract)."""
    return Price(flops=_SOFTMAX * output(call).elements)


@price_of("aten._softmax_backward_data", "aten._log_softmax_backward_data", "aten._masked_softmax_backward",
          kind=Kind.NORMALISATION)  # fmt: skip
def softmax_backward(call: OpSignature) -> Price:
    """Y * (g - sum(g * y)): multiply, sum, subtract, multiply."""
    return Price(flops=4 * output(call).elements)


@price_of("aten._weight_norm_interface", kind=Kind.NORMALISATION)
def weight_norm(call: OpSignature) -> Price:
    """V * (g / |v|): square and sum, then scale."""
    return Price(flops=3 * tensor(call, "v").elements)


@price_of("aten._weight_norm_interface_backward", kind=Kind.NORMALISATION)
def weight_norm_backward(call: OpSignature) -> Price:
    """Product and sum, then two scaled terms: six per element."""
    return Price(flops=6 * tensor(call, "saved_v").elements)


@price_of("aten.renorm", kind=Kind.NORMALISATION)
def renorm(call: OpSignature) -> Price:
    """Power, sum, scale."""
    return Price(flops=3 * tensor(call, "self").elements)


# Losses: pointwise work and a sum.


_SQUARED = 2
_LINEAR = ("linear_weight", "linear_bias")
_FLOPS_PER_ELEMENT: Mapping[str, int] = {
    "mse_loss": 3,  # subtract, square, sum
    "l1_loss": 3,
    "smooth_l1_loss": 5,
    "huber_loss": 5,
    "binary_cross_entropy": 7,
    "binary_cross_entropy_with_logits": 8,
    "kl_div": 4,
    "soft_margin_loss": 5,
    "mse_loss_backward": 3,
    "smooth_l1_loss_backward": 4,
    "huber_loss_backward": 4,
    "binary_cross_entropy_backward": 5,
    "soft_margin_loss_backward": 6,  # multiply, exp, multiply, add 1, divide, scale
}


@price_of(*(f"aten.{name}" for name in _FLOPS_PER_ELEMENT), kind=Kind.REDUCTION)
def pointwise_loss(call: OpSignature) -> Price:
    """The function's price, times the elements."""
    elements = max(spec.elements for spec in call.input_specs)
    return Price(flops=_FLOPS_PER_ELEMENT[call.op.split(".")[1]] * elements)


@price_of("aten.nll_loss_forward", "aten.nll_loss2d_forward", "aten.nll_loss", kind=Kind.REDUCTION)
def nll_loss(call: OpSignature) -> Price:
    """One log-probability is picked and added for each target."""
    given, target = tensor(call, "self"), tensor(call, "target")
    reads = list(reads_of(call))
    reads[0] = bytes_for(given, max(target.elements, 1))
    return Price(flops=2 * max(target.elements, 1), reads=tuple(reads))


@price_of("aten.nll_loss_backward", "aten.nll_loss2d_backward", kind=Kind.REDUCTION)
def nll_loss_backward(call: OpSignature) -> Price:
    """One value for each target in a tensor of zeros; the forward input gives only its shape."""
    reads = list(reads_of(call))
    reads[1] = 0
    return Price(flops=max(tensor(call, "target").elements, 1), reads=tuple(reads))


@price_of("aten.multi_margin_loss", "aten.multi_margin_loss_backward", kind=Kind.REDUCTION)
def multi_margin_loss(call: OpSignature) -> Price:
    """Each class against the right one: add the margin, subtract, compare, sum; one more for a square and a weight."""
    squared = value_of(call, "p") == _SQUARED
    weighted = optional_tensor(call, "weight") is not None
    return Price(flops=(4 + squared + weighted) * tensor(call, "self").elements)


@price_of("aten.multilabel_margin_loss_forward", "aten.multilabel_margin_loss_backward", kind=Kind.REDUCTION)
def multilabel_margin_loss(call: OpSignature) -> Price:
    """As multi_margin_loss for each right class; how many are right the values say, so all are counted."""
    given = tensor(call, "self")
    return Price(flops=4 * given.elements * given.shape[-1] if given.shape else 4)


@price_of("aten._ctc_loss_backward", kind=Kind.REDUCTION)
def ctc_loss_backward(call: OpSignature) -> Price:
    """The forward sums the other way round, and one term for each probability."""
    return Price(flops=_state_sums(call) + 4 * tensor(call, "log_probs").elements)


@price_of("aten._ctc_loss", kind=Kind.REDUCTION)
def ctc_loss(call: OpSignature) -> Price:
    """For each step and each of 2*L + 1 states: three log-additions."""
    return Price(flops=_state_sums(call))


def _state_sums(call: OpSignature) -> int:
    """L is the longest target; targets laid one after the other tell it only where the lengths are numbers."""
    log_probabilities, targets = tensor(call, "log_probs"), tensor(call, "targets")
    steps, batch = log_probabilities.shape[0], log_probabilities.shape[1]
    lengths = numbers(call, "target_lengths")
    longest = max(lengths) if lengths else targets.shape[-1]
    return 15 * steps * batch * (2 * longest + 1)


@price_of(
    "torch_nn._linear_cross_entropy_batch_chunked",
    "torch_nn._linear_cross_entropy_batch_chunked_no_reduction",
    kind=Kind.MATMUL,
)
def linear_cross_entropy(call: OpSignature) -> Price:
    """Logits (rows, k) @ (classes, k)^T, log-softmax (5), a pick; gradients made on the way are products as large.

    A gradient starts as softmax minus target, scaled (2 per logit); that of the bias sums it (1).
    """
    given, weight = tensor(call, "input"), tensor(call, "linear_weight")
    logits = given.elements // max(given.shape[-1], 1) * weight.shape[0]
    of_input, of_weight, of_bias = (flag(call, f"compute_{name}_grad") for name in ("input", *_LINEAR))
    matmul = multiply_adds(logits * given.shape[-1], given) * (1 + of_input + of_weight)
    biased = optional_tensor(call, "linear_bias") is not None
    gradient = 2 * (of_input or of_weight or of_bias) + of_bias
    rest = (5 + biased + gradient) * logits + 2 * tensor(call, "target").elements
    return Price(flops=matmul + rest, matmul_flops=matmul)
