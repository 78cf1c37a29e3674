"""torchstone: bring PyTorch models up on new accelerators.

`analyze` answers every question about a model at once, `show` displays its report in a notebook, `diff` compares two
folders of results.

`trace` captures a model once; what follows works on that record: `price` computes its cost, `check_model` finds which
parts run on a backend, `make_reference` writes golden data and `compare` a port with it, `read_memory_log` reads device
memory from a runtime log, `compute_flops` and `compute_memory` evaluate the formula of a module class.

Importing this package imports no torch: each function is loaded when it is first used.
"""

TYPE_CHECKING = False  # type checkers take this name for true; importing `typing` would double the time of this import
if TYPE_CHECKING:
    from torchstone.formula.database.compute import compute_flops, compute_memory
    from torchstone.models.load_model import load as load_model
    from torchstone.workflows.api import analyze, check_model, compare, diff, price, read_memory_log, show, trace
    from torchstone.workflows.reference import make_reference

__version__ = "0.1.0"

__all__ = [
    "analyze", "check_model", "compare", "compute_flops", "compute_memory", "diff", "load_model", "make_reference",
    "price", "read_memory_log", "show", "trace",
]  # fmt: skip

_HOMES = {
    "analyze": ("torchstone.workflows.api", "analyze"),
    "check_model": ("torchstone.workflows.api", "check_model"),
    "compare": ("torchstone.workflows.api", "compare"),
    "compute_flops": ("torchstone.formula.database.compute", "compute_flops"),
    "compute_memory": ("torchstone.formula.database.compute", "compute_memory"),
    "diff": ("torchstone.workflows.api", "diff"),
    "load_model": ("torchstone.models.load_model", "load"),
    "make_reference": ("torchstone.workflows.reference", "make_reference"),
    "price": ("torchstone.workflows.api", "price"),
    "read_memory_log": ("torchstone.workflows.api", "read_memory_log"),
    "show": ("torchstone.workflows.api", "show"),
    "trace": ("torchstone.workflows.api", "trace"),
}


def __getattr__(name: str) -> object:
    """Load a public function when it is first used."""
    if name not in _HOMES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    from importlib import import_module

    module, attribute = _HOMES[name]
    found: object = getattr(import_module(module), attribute)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """The public names and the version."""
    return sorted([*__all__, "__version__"])
