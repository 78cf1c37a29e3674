"""Arguments of an op call by name, as the type a price needs; anything else has no price."""

from torchstone.cost.registry import NoPriceError
from torchstone.record.op import OpSignature
from torchstone.record.tensor import TensorSpec
from torchstone.record.value import Items, Value, show_value


def tensor(call: OpSignature, *names: str) -> TensorSpec:
    """The tensor under the first of these names that the op has."""
    found = optional_tensor(call, *names)
    if found is None:
        msg = f"{call.op} has no tensor {' or '.join(names)}"
        raise NoPriceError(msg)
    return found


def optional_tensor(call: OpSignature, *names: str) -> TensorSpec | None:
    """The tensor under the first of these names that the op has, None where none was given."""
    for name in names:
        value = value_of(call, name)
        if isinstance(value, TensorSpec):
            return value
    return None


def tensors(call: OpSignature, name: str) -> tuple[TensorSpec, ...]:
    """The tensors of a list argument."""
    value = value_of(call, name)
    return tuple(item for item in value.items if isinstance(item, TensorSpec)) if isinstance(value, Items) else ()


def value_of(call: OpSignature, name: str) -> Value:
    """An argument's value, None where the op has no such argument."""
    for argument in call.arguments:
        if argument.name == name:
            return argument.value
    return None


def flag(call: OpSignature, name: str) -> bool:
    """Whether a switch is on."""
    return value_of(call, name) is True


def whole(call: OpSignature, name: str) -> int:
    """A whole number."""
    value = value_of(call, name)
    if not isinstance(value, int):
        msg = f"{call.op} got {name}={show_value(value)}, where a number is wanted"
        raise NoPriceError(msg)
    return value


def numbers(call: OpSignature, name: str) -> tuple[int, ...] | None:
    """A list of whole numbers, None where none was given."""
    value = value_of(call, name)
    if isinstance(value, int):
        return (value,)
    return tuple(item for item in value.items if isinstance(item, int)) if isinstance(value, Items) else None


def output(call: OpSignature, index: int = 0) -> TensorSpec:
    """One tensor of the result."""
    specs = call.output_specs
    if index >= len(specs):
        msg = f"{call.op} gave no tensor"
        raise NoPriceError(msg)
    return specs[index]
