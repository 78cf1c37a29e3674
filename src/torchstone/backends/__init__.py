"""module + inputs -> outputs, computed by something that is not plain PyTorch.

A backend author imports from here alone: the protocol, the ways to refuse, and helpers for programs of torch.export.

    from torchstone.backends import Availability, Unsupported, availability_of, exported_program

Every name is resolved when it is first used: neither `import torchstone.backends` nor the protocol imports torch. All
files but `registry` and `recorded` run in the backend's own environment: they need torch and the standard library, and
torch only once a method is called.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchstone.backends.export import Exported, converting, exported_program, import_exporter
    from torchstone.backends.failures import compiling
    from torchstone.backends.graphs import ReceivedGraph
    from torchstone.backends.lookup import open_backend
    from torchstone.backends.op_info import ops_called, ops_named_in, with_overloads
    from torchstone.backends.protocol import (
        Args,
        Availability,
        Backend,
        CompileFailed,
        Kwargs,
        NotRun,
        OpeningFailed,
        Run,
        Unsupported,
        availability_of,
        first_line,
        installed,
        without_gradients,
    )
    from torchstone.numerics.verdict import judge

__all__ = [
    "Args", "Availability", "Backend", "CompileFailed", "Exported", "Kwargs", "NotRun", "OpeningFailed",
    "ReceivedGraph", "Run", "Unsupported", "availability_of", "compiling", "converting", "exported_program",
    "first_line", "import_exporter", "installed", "judge", "open_backend", "ops_called", "ops_named_in",
    "with_overloads", "without_gradients",
]  # fmt: skip
_HOMES = {  # of the names that are not part of the protocol
    "Exported": "export", "converting": "export", "exported_program": "export", "import_exporter": "export",
    "compiling": "failures", "ReceivedGraph": "graphs", "open_backend": "lookup",
    "ops_called": "op_info", "ops_named_in": "op_info", "with_overloads": "op_info",
}  # fmt: skip


def __getattr__(name: str) -> object:
    """Import the module of a name when it is first asked for."""
    if name not in __all__:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    home = "torchstone.numerics.verdict" if name == "judge" else f"{__name__}.{_HOMES.get(name, 'protocol')}"
    found: object = getattr(import_module(home), name)
    return found
