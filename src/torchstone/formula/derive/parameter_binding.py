"""A module call -> the parameters of its formula: sizes under the names that the class gives them, and switches."""

from collections.abc import Callable, Iterator, Mapping
from math import prod

from torchstone.record.base import Record
from torchstone.record.module import Module, ModuleCall
from torchstone.record.tensor import TensorSpec, element_bits
from torchstone.record.trace import Trace
from torchstone.record.value import Entries, Fields, Items, Value, tensors_in

BATCH, LENGTH, TOKENS = "B", "S", "tokens"
ENCODER_LENGTH, DECODER_LENGTH = "S_encoder", "S_decoder"
CACHE_LENGTH = "cache_len"  # tokens that are in the cache before the call
LENGTHS_AROUND = frozenset({ENCODER_LENGTH, DECODER_LENGTH})  # of a whole model, beside the S of one call
DTYPE_BYTES = "dtype_bytes"
CONFIGURED = "configured"  # the rule of classes whose sizes come from the model's configuration
CACHES = ("past_key_values", "past_key_value", "layer_past", "cache_params")  # arguments that are a KV cache
_PICTURE, _VIDEO = 4, 5
_WORDS = "input_ids"
_SEQUENCES = 3
_MATRIX = 2
_QUERY_KEY_VALUE = 3
_GELU = 2  # as TransformerEncoderLayer numbers activations; 0 is any other function
_BITS = 8
_UNBOUND = (AssertionError, ValueError, KeyError, TypeError, IndexError, ZeroDivisionError)


class CallParameters(Record, frozen=True, kw_only=True):
    """The parameters of one module call: sizes, switches and element size."""

    sizes: dict[str, int]
    facts: dict[
        str, bool
    ] = {}  # switches: attributes, arguments and parts that are present or not, and may select a code path
    dtype_bytes: int = 4
    mixed: bool = False  # floating-point arguments and parameters have elements of different sizes
    rule: str = ""  # the rule by which the parameters were bound
    flat: tuple[int, ...] = ()  # leading sizes of the input that count only by their product

    def value(self, name: str) -> int:
        """A parameter by name: a size, the bytes of an element, or a fact as 1 or 0."""
        if name == DTYPE_BYTES:
            return self.dtype_bytes
        return self.sizes[name] if name in self.sizes else int(self.facts.get(name, False))

    def knows(self, name: str) -> bool:
        """Whether the call tells the value of a parameter."""
        return name == DTYPE_BYTES or name in self.sizes or name in self.facts


Rule = Callable[[Trace, Module, ModuleCall], dict[str, int]]


def bind_parameters(
    trace: Trace, call: ModuleCall, known: Mapping[str, int], given: Mapping[str, int] | None = None
) -> CallParameters:
    """The parameters of one call; `known` are those of the model's configuration, `given` replace all others."""
    module = trace.modules[call.module]
    name, rule = (CONFIGURED, None) if given else _rule_of(trace, call.module)
    sizes = dict(given or {})
    if not given:
        try:
            sizes = rule(trace, module, call) if rule is not None else _configured(module, call, known)
        except _UNBOUND:  # a call that the rule does not cover, such as a convolution with padding="same"
            name, sizes = CONFIGURED, _configured(module, call, known)
    return CallParameters(
        sizes=sizes,
        facts=_facts(trace, call),
        dtype_bytes=_dtype_bytes(trace, module, call),
        mixed=len(_floating_bits(trace, module, call)) > 1,
        rule=name,
        flat=_flat(name, sizes, call),
    )


def _flat(rule: str, sizes: Mapping[str, int], call: ModuleCall) -> tuple[int, ...]:
    """The leading sizes whose product is the first parameter of the rule: all of them, those of 1 included."""
    if rule not in _FLATTENED:
        return ()
    shape, count = _given(call).shape, next(iter(sizes.values()))
    longest = len(shape) - (1 if "hidden_size" in sizes else 0)  # a norm keeps what it is over, also a width of 1
    return next((shape[:end] for end in range(longest, -1, -1) if prod(shape[:end]) == count), ())


def _rule_of(trace: Trace, index: int) -> tuple[str, Rule | None]:
    module = trace.modules[index]
    short = short_class(module)
    if module.class_name.startswith("torch.nn.") or short in _EVERYWHERE:
        rule = RULES.get(short)
        if rule is not None:
            return short, rule
    shapes = [trace.tensors[parameter.tensor].spec.shape for parameter in module.parameters]
    alone = next(trace.children(index), None) is None
    if alone and shapes and all(len(shape) == 1 and shape == shapes[0] for shape in shapes):
        return "norm", _norm
    if alone and not shapes and not module.buffers:
        return "pointwise", _pointwise
    return CONFIGURED, None


def _inside(module: Module) -> str:
    return f"{module.path}." if module.path else ""


def _configured(module: Module, call: ModuleCall, known: Mapping[str, int]) -> dict[str, int]:
    """Batch and length from the first tensor; the rest from the module itself, or the configuration."""
    attributes = dict(module.attributes)
    sizes = {**_batch_sizes(call), **known}
    for name in known:
        own = attributes.get(name)
        if isinstance(own, int) and not isinstance(own, bool):
            sizes[name] = own
    return {**sizes, **_batch_sizes(call)}


def _batch_sizes(call: ModuleCall) -> dict[str, int]:
    first = _token_ids(call) or first_tensor(call)
    if first is None or not first.shape:
        return {}
    floating = first.dtype.startswith(("float", "bfloat"))
    if len(first.shape) == _PICTURE and floating:
        return {BATCH: first.shape[0], "num_channels": first.shape[1], "image_size": first.shape[2]}
    if len(first.shape) == _VIDEO and floating:
        return dict(zip((BATCH, "num_frames", "num_channels", "image_size"), first.shape, strict=False))
    if len(first.shape) == _SEQUENCES or (len(first.shape) == _MATRIX and not floating):
        return {BATCH: first.shape[0], LENGTH: first.shape[1]}
    return {TOKENS: prod(first.shape[:-1]) if len(first.shape) > 1 else first.shape[0]}


def _token_ids(call: ModuleCall) -> TensorSpec | None:
    """The tokens of a call that is also given pictures: patches of all pictures say neither batch nor length."""
    given = next((one.value for one in call.signature.arguments if one.name == _WORDS), None)
    return next((spec for spec in tensors_in(given) if len(spec.shape) == _MATRIX), None)


def first_tensor(call: ModuleCall) -> TensorSpec | None:
    """The first tensor among the arguments."""
    return next((spec for argument in call.signature.arguments for spec in tensors_in(argument.value)), None)


def _given(call: ModuleCall) -> TensorSpec:
    found = first_tensor(call)
    return found if found is not None else TensorSpec(shape=(), dtype="float32")


def _facts(trace: Trace, call: ModuleCall) -> dict[str, bool]:
    """Switches of the module, parameters and parts it has, and arguments it was given."""
    module = trace.modules[call.module]
    parts = {f"has_{short_class(trace.modules[child])}": True for child in trace.children(call.module)}
    switches = {name: value for name, value in module.attributes if isinstance(value, bool)}
    optional = {name: any(parameter.name == name for parameter in module.parameters) for name in ("bias", "weight")}
    given = {f"has_{argument.name}": _is_given(argument.value) for argument in call.signature.arguments}
    weights = {name: _given_as(call, name) is not False for name in _YES_BY_DEFAULT if f"has_{name}" in given}
    if short_class(module) == "MultiheadAttention":
        weights.setdefault("need_weights", True)
    optional |= _facts_of_class(trace, module, call)
    own = {**parts, **given, **switches, **optional, **weights}
    return {**own, **{name: value for name, value in _switches_inside(trace, call.module) if name not in own}}


def _facts_of_class(trace: Trace, module: Module, call: ModuleCall) -> dict[str, bool]:
    """Switches that classes of torch.nn do not keep as attributes."""
    attributes = dict(module.attributes)
    names = [parameter.name for parameter in module.parameters]
    match short_class(module):
        case "MultiheadAttention":
            return {
                "bias": "in_proj_bias" in names,
                "self_attention": len(set(call.inputs[:_QUERY_KEY_VALUE])) == 1,
            }
        case "TransformerEncoderLayer":
            inside = [one.name for child in trace.children(call.module) for one in trace.modules[child].parameters]
            activation = attributes.get("activation_relu_or_gelu")
            return {"bias": "bias" in inside, "gelu": activation == _GELU, "relu_or_gelu": activation != 0}
        case "GELU":
            return {"tanh": attributes.get("approximate") == "tanh"}
        case _:
            return {}


def _switches_inside(trace: Trace, module: int) -> Iterator[tuple[str, bool]]:
    """The switches of direct parts: they decide for the whole, too, where it has none of that name."""
    for child in trace.children(module):
        for name, value in trace.modules[child].attributes:
            if isinstance(value, bool):
                yield name, value


def _given_as(call: ModuleCall, name: str) -> Value:
    return next((argument.value for argument in call.signature.arguments if argument.name == name), None)


def short_class(module: Module) -> str:
    """The name of a class without its Python module."""
    return module.class_name.rpartition(".")[2]


def _is_given(value: Value) -> bool:
    return value is not None and value is not False


def _dtype_bytes(trace: Trace, module: Module, call: ModuleCall) -> int:
    own = [trace.tensors[parameter.tensor].spec for parameter in module.parameters]
    passed = [spec for argument in call.signature.arguments for spec in tensors_in(argument.value)]
    made = list(tensors_in(call.signature.output))
    for spec in (*own, *passed, *made):
        bits = element_bits(spec.dtype)
        if spec.dtype.startswith(("float", "bfloat")) and bits:
            return bits // _BITS
    return next((bits // _BITS for spec in passed if (bits := element_bits(spec.dtype))), 0)


def _floating_bits(trace: Trace, module: Module, call: ModuleCall) -> set[int | None]:
    own = [trace.tensors[parameter.tensor].spec for parameter in module.parameters]
    passed = [spec for argument in call.signature.arguments for spec in tensors_in(argument.value)]
    return {element_bits(one.dtype) for one in (*own, *passed) if one.dtype.startswith(("float", "bfloat"))}


# --- Rules per class ---


def _norm(trace: Trace, module: Module, call: ModuleCall) -> dict[str, int]:
    own = [trace.tensors[parameter.tensor].spec.elements for parameter in module.parameters]
    given = _given(call)
    width = own[0] if own else given.shape[-1]
    return {"batch_elements": given.elements // width, "hidden_size": width}


def _layer_norm(_trace: Trace, module: Module, call: ModuleCall) -> dict[str, int]:
    width = prod(_numbers(dict(module.attributes)["normalized_shape"]))
    return {"batch_elements": _given(call).elements // width, "hidden_size": width}


def _pointwise(_trace: Trace, _module: Module, call: ModuleCall) -> dict[str, int]:
    return {"elements": _given(call).elements}


def _linear(_trace: Trace, module: Module, call: ModuleCall) -> dict[str, int]:
    attributes = dict(module.attributes)
    return {
        "batch_elements": prod(_given(call).shape[:-1]),
        "input_features": _whole(attributes["in_features"]),
        "output_features": _whole(attributes["out_features"]),
    }


def _conv1d_of_gpt(_trace: Trace, module: Module, call: ModuleCall) -> dict[str, int]:
    attributes = dict(module.attributes)
    return {
        "batch_elements": prod(_given(call).shape[:-1]),
        "input_features": _whole(attributes["nx"]),
        "output_features": _whole(attributes["nf"]),
    }


def _embedding(_trace: Trace, module: Module, call: ModuleCall) -> dict[str, int]:
    attributes = dict(module.attributes)
    given = _given(call)
    assert given.dtype == "int64"  # noqa: S101 - the formula counts eight bytes for each token
    strides = given.stride or (1,) * len(given.shape)
    return {
        "tokens": given.elements,
        "distinct_tokens": prod(size for size, stride in zip(given.shape, strides, strict=True) if stride),
        "num_embeddings": _whole(attributes["num_embeddings"]),
        "embedding_dim": _whole(attributes["embedding_dim"]),
    }


def _convolution(_trace: Trace, module: Module, call: ModuleCall) -> dict[str, int]:
    attributes = dict(module.attributes)
    shape = _given(call).shape
    sides = ("length",) if len(shape) == _SEQUENCES else ("height", "width")
    sizes = {
        BATCH: shape[0],
        "in_channels": shape[1],
        "out_channels": _whole(attributes["out_channels"]),
        "groups": _whole(attributes["groups"]),
        **dict(zip(sides, shape[2:], strict=True)),
    }
    for name in ("kernel_size", "stride", "padding", "dilation"):
        numbers = _numbers(attributes[name])
        if len(sides) == 1:
            sizes[name] = numbers[0]
        else:
            sizes.update({f"{name}_{side}": number for side, number in zip(sides, numbers, strict=True)})
    return sizes


def _batch_norm(_trace: Trace, module: Module, call: ModuleCall) -> dict[str, int]:
    batch, channels, *sides = _given(call).shape
    del module
    return {BATCH: batch, "num_features": channels, **dict(zip(("height", "width"), sides, strict=False))}


def _multi_head(_trace: Trace, module: Module, call: ModuleCall) -> dict[str, int]:
    attributes = dict(module.attributes)
    first, second, width = _given(call).shape
    batch, length = (first, second) if attributes.get("batch_first") else (second, first)
    return {BATCH: batch, LENGTH: length, "embed_dim": width, "num_heads": _whole(attributes["num_heads"])}


def _encoder_layer(trace: Trace, module: Module, call: ModuleCall) -> dict[str, int]:
    prefix = _inside(module)
    inner = {other.path.removeprefix(prefix): dict(other.attributes) for other in trace.modules}
    attention = inner["self_attn"]
    first, second, width = _given(call).shape
    batch, length = (first, second) if attention.get("batch_first") else (second, first)
    return {
        BATCH: batch,
        LENGTH: length,
        "d_model": width,
        "nhead": _whole(attention["num_heads"]),
        "dim_feedforward": _whole(inner["linear1"]["out_features"]),
    }


def _whole(value: Value) -> int:
    assert isinstance(value, int)  # noqa: S101 - the class says so
    return value


def _numbers(value: Value) -> list[int]:
    if isinstance(value, Items):
        return [_whole(item) for item in value.items]
    return [_whole(value)]


RULES: Mapping[str, Rule] = {
    "Linear": _linear,
    "NonDynamicallyQuantizableLinear": _linear,
    "Embedding": _embedding,
    "LayerNorm": _layer_norm,
    "RMSNorm": _layer_norm,
    "Conv1d": _convolution,
    "Conv2d": _convolution,
    "BatchNorm2d": _batch_norm,
    "MultiheadAttention": _multi_head,
    "TransformerEncoderLayer": _encoder_layer,
    "Conv1D": _conv1d_of_gpt,
}
_EVERYWHERE = ("Conv1D",)
_YES_BY_DEFAULT = ("need_weights",)
_FLATTENED = frozenset({"Embedding", "LayerNorm", "RMSNorm", "norm", "pointwise"})


# --- Sequence and cache lengths of a call of a whole model ---


_ENCODED = ("input_ids", "encoder_outputs")
_DECODED = "decoder_input_ids"
_COUNTED = "cumulative_length"  # of a cache that forgets: its tensors are shorter
_KEYS = "keys"
_LENGTH_AXIS = -2


def lengths_of(call: ModuleCall) -> dict[str, int]:
    """By parameter: the encoder's and the decoder's sequence where there are two, and the tokens in a filled cache."""
    given = {argument.name: argument.value for argument in call.signature.arguments}
    lengths: dict[str, int] = {}
    if _DECODED in given:
        encoded = next((given[name] for name in _ENCODED if given.get(name) is not None), None)
        for name, value in ((ENCODER_LENGTH, encoded), (DECODER_LENGTH, given[_DECODED])):
            shapes = [spec.shape for spec in tensors_in(value)]
            if shapes:
                lengths[name] = shapes[0][1]
    cached = next((given[name] for name in CACHES if given.get(name) is not None), None)
    tokens = next(_tokens_in(cached), None)
    return lengths if tokens is None else {**lengths, CACHE_LENGTH: tokens}


def _tokens_in(value: Value) -> Iterator[int]:
    """The tokens in each layer of a cache, the first layer first."""
    match value:
        case Fields(fields=fields):
            parts = dict(fields)
            counted, keys = parts.get(_COUNTED), list(tensors_in(parts.get(_KEYS)))
            if isinstance(counted, int):
                yield counted
            elif keys:
                yield keys[0].shape[_LENGTH_AXIS]
            else:
                for part in parts.values():
                    yield from _tokens_in(part)
        case Items(items=items):
            for item in items:
                yield from _tokens_in(item)
        case Entries(entries=entries):
            for _, item in entries:
                yield from _tokens_in(item)
        case _:
            return
