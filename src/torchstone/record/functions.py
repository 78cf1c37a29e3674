"""The torch functions that the code of a model calls, as its author wrote them."""

from torchstone.record.base import Record


class FunctionUse(Record, frozen=True, kw_only=True, omit_defaults=False):
    """A function with one set of arguments, and where it is called."""

    function: str  # torch.nn.functional.linear, torch.Tensor.view
    arguments: str
    output: str
    calls: int
    modules: tuple[str, ...]  # the paths of the modules whose code calls it; "" is the model itself
