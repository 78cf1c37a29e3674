"""Vectors of tt-metal's files -> calls of torch's ops, where an op of ttnn has one that takes the same parameters."""

import ast
import re
from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from torchstone.record.config import Configuration
from torchstone.record.tensor import TensorSpec
from torchstone.record.value import Argument, Items, Value
from torchstone.record.vector import Validity, Vector
from torchstone.units import many

# A vector keeps its id, parameters and module, so that results go back to tt-metal under the same names. One that no
# rule fits stays, is not valid, and says which parameter is in the way: nothing is left out of a call.

_ABSENT = "__ABSENT__"
_DTYPES = {
    "BFLOAT16": "bfloat16",
    "FLOAT32": "float32",
    "INT32": "int32",
    "UINT8": "uint8",
    "BFLOAT8_B": "bfloat16",
    "BFLOAT4_B": "bfloat16",
}
_BLOCK_FORMATS = ("BFLOAT8_B", "BFLOAT4_B")  # torch has none: the values are bfloat16
_UNARY = {
    name: f"aten.{name}.default"
    for name in ("relu", "exp", "log", "sqrt", "rsqrt", "sigmoid", "tanh", "silu", "neg", "abs", "reciprocal", "sin",
                 "cos", "floor", "ceil", "sign", "log1p", "expm1", "erf", "square", "log2", "log10", "relu6")
}  # fmt: skip
_BINARY = {
    "add": "add", "subtract": "sub", "sub": "sub", "multiply": "mul", "mul": "mul", "divide": "div", "div": "div",
    "eq": "eq", "ne": "ne", "gt": "gt", "lt": "lt", "ge": "ge", "le": "le",
}  # fmt: skip
_TENSORS_ONLY = {"maximum": "aten.maximum.default", "minimum": "aten.minimum.default", "matmul": "aten.matmul.default"}
_TAKES_ALPHA = ("add", "sub")
_ABOUT = re.compile(  # the tensors, where they lie, and where the call was seen
    r"input_(?:[a-h]_)?(?:shape|dtype|layout|memory_config|tensor_placement|storage_type)|storage_type|layout"
    r"|(?:output_)?memory_config|config_hash|config_id|traced_\w+"
)


class NotTranslatedError(Exception):
    """Why a vector has no call of torch."""


def as_torch_call(vector: Vector) -> Vector:
    """The same vector with the call that torch has for it; not valid, with the reason, where there is none."""
    if vector.validity is Validity.INVALID:
        return vector
    try:
        configuration, note = _call_of(vector)
    except NotTranslatedError as error:
        return replace(vector, validity=Validity.INVALID, reason=f"no call of torch: {error}")
    return replace(vector, configuration=configuration, change=note, role="compute", cluster=configuration.op)


def op_of(module: str) -> str:
    """The op of a sweep module: add, of model_traced.add_model_traced or eltwise.binary.add.add."""
    return module.rpartition(".")[2].removesuffix("_model_traced")


def _call_of(vector: Vector) -> tuple[Configuration, str]:
    tensors, note = _tensors_of(vector.parameters)
    rest = _rest_of(vector.parameters)
    op = op_of(vector.module)
    rule = _rule_of(op)
    if rule is None:
        msg = f"torchstone has no rule for {op}"
        raise NotTranslatedError(msg)
    name, arguments = rule(tensors, rest)
    if rest:
        msg = f"{op} has the parameter {next(iter(rest))}, which its rule does not take"
        raise NotTranslatedError(msg)
    given = tuple(Argument(name=argument, value=value) for argument, value in arguments.items())
    return Configuration(op=name, arguments=given), note


# --- Parameters ---


def _tensors_of(parameters: Mapping[str, object]) -> tuple[list[TensorSpec], str]:
    shapes = _shapes_of(parameters)
    if not shapes:
        msg = "its parameters name no shape"
        raise NotTranslatedError(msg)
    tensors, blocks = [], []
    for letter, shape in zip("abcdefgh", shapes, strict=False):
        text = str(parameters.get(f"input_{letter}_dtype") or parameters.get("input_a_dtype") or "")
        name = text.rpartition(".")[2].upper()
        if name not in _DTYPES:
            msg = f"torch has no element type {text or 'for a tensor without one'}"
            raise NotTranslatedError(msg)
        blocks += [name] if name in _BLOCK_FORMATS else []
        steps = [1]
        for size in reversed(shape[1:]):
            steps.insert(0, steps[0] * max(size, 1))
        tensors.append(TensorSpec(shape=tuple(shape), dtype=_DTYPES[name], stride=tuple(steps[: len(shape)])))
    return tensors, f"{blocks[0]} as bfloat16" if blocks else ""


def _shapes_of(parameters: Mapping[str, object]) -> list[list[int]]:
    whole = _read(parameters.get("input_shape", _ABSENT))
    if isinstance(whole, dict):  # two tensors: {"self": [...], "other": [...]}
        return [_sizes(one) for one in whole.values()]
    found = [] if whole is None else [_sizes(whole)]
    for letter in "abcdefgh":
        given = _read(parameters.get(f"input_{letter}_shape", _ABSENT))
        if given is not None:
            found.append(_sizes(given))
    return found


def _sizes(value: object) -> list[int]:
    if isinstance(value, list | tuple) and all(type(one) is int and one >= 0 for one in value):
        return [one for one in value if isinstance(one, int)]
    msg = f"{value!r} is not a shape"
    raise NotTranslatedError(msg)


def _rest_of(parameters: Mapping[str, object]) -> dict[str, object]:
    """What is not about the tensors or where they lie; absent parameters do not count."""
    rest = {}
    for name, value in parameters.items():
        given = _read(value)
        if _ABOUT.fullmatch(name) is None and given is not None:
            rest[name] = given
    return rest


def _read(value: object) -> object:
    """A parameter as tt-metal's reader has it: the text of a tuple or number is that."""
    if value == _ABSENT:
        return None
    if isinstance(value, str):
        try:
            return ast.literal_eval(value)
        except (ValueError, SyntaxError):
            return value
    return value


# --- Rules: tensors and the remaining parameters -> the op of torch and its arguments ---


_Rule = Callable[[Sequence[TensorSpec], dict[str, object]], tuple[str, dict[str, Value]]]


def _rule_of(op: str) -> _Rule | None:
    if op in _UNARY:
        return lambda tensors, _rest: (_UNARY[op], {"self": _only(tensors)})
    if op in _BINARY:
        return lambda tensors, rest: _binary(_BINARY[op], tensors, rest)
    if op in _TENSORS_ONLY:
        return lambda tensors, _rest: (_TENSORS_ONLY[op], dict(zip(("self", "other"), _two(tensors), strict=True)))
    return _RULES.get(op)


def _binary(op: str, tensors: Sequence[TensorSpec], rest: dict[str, object]) -> tuple[str, dict[str, Value]]:
    alpha: dict[str, Value] = {"alpha": 1} if op in _TAKES_ALPHA else {}
    if len(tensors) == 1:
        return f"aten.{op}.Scalar", {"self": tensors[0], "other": _number(rest, "arg1", "scalar", "value"), **alpha}
    first, second = _two(tensors)
    return f"aten.{op}.Tensor", {"self": first, "other": second, **alpha}


def _softmax(tensors: Sequence[TensorSpec], rest: dict[str, object]) -> tuple[str, dict[str, Value]]:
    rest.pop("numeric_stable", None)  # torch's always is
    dim = _number(rest, "dim", "arg1")
    return "aten._softmax.default", {"self": _only(tensors), "dim": dim, "half_to_float": False}


def _permute(tensors: Sequence[TensorSpec], rest: dict[str, object]) -> tuple[str, dict[str, Value]]:
    return "aten.permute.default", {"self": _only(tensors), "dims": _list(rest, "dims", "arg1")}


def _transpose(tensors: Sequence[TensorSpec], rest: dict[str, object]) -> tuple[str, dict[str, Value]]:
    first, second = _number(rest, "dim0", "dim1", "arg1"), _number(rest, "dim1", "dim2", "arg2")
    return "aten.transpose.int", {"self": _only(tensors), "dim0": first, "dim1": second}


def _reshape(tensors: Sequence[TensorSpec], rest: dict[str, object]) -> tuple[str, dict[str, Value]]:
    return "aten.view.default", {
        "self": _only(tensors),
        "size": _list(rest, "target_shape", "end_shape", "shape", "arg1"),
    }


def _gelu(tensors: Sequence[TensorSpec], rest: dict[str, object]) -> tuple[str, dict[str, Value]]:
    if rest.get("fast_and_approximate_mode") is False or rest.get("arg1") is False:
        rest.pop("fast_and_approximate_mode", None)
        rest.pop("arg1", None)
    return "aten.gelu.default", {"self": _only(tensors), "approximate": "none"}


_RULES: dict[str, _Rule] = {
    "softmax": _softmax,
    "permute": _permute,
    "transpose": _transpose,
    "reshape": _reshape,
    "gelu": _gelu,
}


def _only(tensors: Sequence[TensorSpec]) -> TensorSpec:
    if len(tensors) != 1:
        msg = f"it has {many(len(tensors), 'tensor')}, and the op takes one"
        raise NotTranslatedError(msg)
    return tensors[0]


def _two(tensors: Sequence[TensorSpec]) -> Sequence[TensorSpec]:
    if len(tensors) != 2:  # noqa: PLR2004 - as the name says
        msg = f"it has {many(len(tensors), 'tensor')}, and the op takes two"
        raise NotTranslatedError(msg)
    return tensors


def _number(rest: dict[str, object], *names: str) -> Value:
    value = _taken(rest, names)
    if isinstance(value, int | float):
        return value
    msg = f"{value!r} is not a number"
    raise NotTranslatedError(msg)


def _list(rest: dict[str, object], *names: str) -> Value:
    value = _taken(rest, names)
    if isinstance(value, list | tuple) and all(type(one) is int for one in value):
        return Items(kind="list", items=tuple(value))
    msg = f"{value!r} is not a list of numbers"
    raise NotTranslatedError(msg)


def _taken(rest: dict[str, object], names: Sequence[str]) -> object:
    name = next((one for one in names if one in rest), None)
    if name is None:
        msg = f"it has no parameter {' or '.join(names)}"
        raise NotTranslatedError(msg)
    return rest.pop(name)
