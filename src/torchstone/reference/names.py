"""The names of golden tensors: inputs/..., outputs/..., modules/PATH/inputs/... and modules/PATH/outputs/..."""

INPUTS = "inputs"
OUTPUTS = "outputs"
MODULES = "modules"
ROOT = "(root)"


def module_name(path: str, call: int) -> str:
    """The name that a module's tensors begin with; calls after the first are counted: modules/norm#2."""
    again = f"#{call + 1}" if call else ""
    return f"{MODULES}/{path or ROOT}{again}"
