"""What a live model says of itself, for checks that must not trust the capture."""

from torch import nn

from torchstone.numerics.dtypes import dtype_name


def parameter_count(model: nn.Module) -> int:
    """Elements of all parameters, each distinct tensor once."""
    return sum(parameter.numel() for parameter in model.parameters())


def parameter_bytes(model: nn.Module) -> int:
    """Bytes of all parameters, each distinct tensor once."""
    return sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())


def held_shapes(model: nn.Module) -> dict[str, tuple[str, str]]:
    """Shape (as 2x3) and element type of every parameter and buffer by path; tied ones at each of their paths."""
    found: dict[str, tuple[str, str]] = {}
    for path, module in model.named_modules():
        for name, tensor in (
            *module.named_parameters(recurse=False, remove_duplicate=False),
            *module.named_buffers(recurse=False, remove_duplicate=False),
        ):
            shape = "x".join(map(str, tensor.shape)) or "scalar"
            found[f"{path}.{name}" if path else name] = (shape, dtype_name(tensor.dtype))
    return found


def module_paths(model: nn.Module) -> tuple[str, ...]:
    """The paths of all modules, each module once."""
    return tuple(path for path, _ in model.named_modules())
