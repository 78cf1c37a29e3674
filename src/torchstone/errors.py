"""The exceptions that torchstone raises, with the exit code of each.

    TorchstoneError              3  an internal error
    └── InputError               2  an argument, option or file cannot be used
        ├── ModelError           2  the model cannot be found, imported or built
        │   └── UnknownModelError   2  the model name is not a file, module or known configuration
        ├── ModelInputsError     2  the example inputs cannot be generated or do not fit the model
        ├── CaptureError         2  the requested capture is not possible for this model
        ├── FormulaError         2  a formula cannot be read, bound or evaluated
        │   ├── OutsideDomainError  2  a formula is not valid at the given parameters
        │   ├── ZeroDivisorError    2  a formula divides by zero at the given parameters
        │   └── UnknownFormulaError 2  no formula is known for the class
        ├── UnreadableFileError  2  a file is missing, damaged or of the wrong kind
        │   └── NewerSchemaError 2  a file was written by a newer torchstone
        ├── WorkerError          2  the worker process cannot be started
        └── MissingExtraError    2  an optional dependency is not installed

A message is one sentence that names the file or option and the way out. Findings (exit code 1) are results, not errors.
"""

from collections.abc import Sequence
from difflib import get_close_matches
from importlib.util import find_spec
from typing import ClassVar

EXIT_FINE = 0
EXIT_FINDINGS = 1
EXIT_BAD_INPUT = 2
EXIT_INTERNAL_ERROR = 3
EXIT_INTERRUPTED = 130
_NEAREST = 3
_LONGEST = 4_000  # characters of a message, whatever it quotes of a file

EXTRA_OF_PACKAGE = {
    "expecttest": "opinfo",
    "torch": "torch",
    "numpy": "torch",
    "safetensors": "torch",
    "transformers": "hf",
    "PIL": "image",
    "plotly": "report",
    "sympy": "formula",
    "sqlalchemy": "db",
    "alembic": "db",
    "psycopg": "postgres",
    "ray": "ray",
    "claude_agent_sdk": "agent",
    "onnx": "onnxruntime",
    "onnxruntime": "onnxruntime",
    "onnxscript": "onnxruntime",
    "openvino": "openvino",
    "jax": "stablehlo",
    "torchax": "stablehlo",
    "iree": "iree",
    "ml_dtypes": "iree",
}


class TorchstoneError(Exception):
    """The root of all errors; raised itself only for internal errors."""

    exit_code: ClassVar[int] = EXIT_INTERNAL_ERROR

    def __str__(self) -> str:
        text = super().__str__()
        return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


class InputError(TorchstoneError):
    """An argument, option or file cannot be used."""

    exit_code: ClassVar[int] = EXIT_BAD_INPUT


class ModelError(InputError):
    """The model cannot be found, imported or built."""


class UnknownModelError(ModelError):
    """The model name is not a file, an importable module or a known configuration."""


class ModelInputsError(InputError):
    """The example inputs cannot be generated, or do not fit the model."""


class CaptureError(InputError):
    """The requested capture is not possible for this model."""


class FormulaError(InputError):
    """A formula cannot be read, bound or evaluated."""


class OutsideDomainError(FormulaError):
    """A formula is not valid at the given parameters."""


class ZeroDivisorError(FormulaError):
    """A formula divides by zero at the given parameters."""


class UnknownFormulaError(FormulaError):
    """No formula is known for the class."""


class UnreadableFileError(InputError):
    """A file is missing, damaged or of the wrong kind."""


class NewerSchemaError(UnreadableFileError):
    """A file was written by a newer torchstone."""


class WorkerError(InputError):
    """The worker process cannot be started or set up."""


class MissingExtraError(InputError):
    """An optional dependency is not installed."""

    def __init__(self, *, needed_for: str, extra: str) -> None:
        super().__init__(f"{needed_for} requires an optional dependency: pip install 'torchstone[{extra}]'")


def refused_by_system(error: OSError | MemoryError) -> InputError:
    """The error for a full disk, a folder without permission, or no memory, descriptor or process left."""
    if isinstance(error, MemoryError):
        reason = f" ({error})" if str(error) else ""
        return InputError(f"there is not enough memory{reason}; free some, or give the command a smaller input")
    named = f"cannot use {error.filename}" if error.filename else "the system refused a file or process"
    return InputError(f"{named}: {error.strerror or error}; run it again once that is resolved")


def unknown_name(kind: str, name: str, known: Sequence[str], where: str) -> InputError:
    """The error for a name that `where` does not have, with the nearest ones that it has."""
    near = get_close_matches(name, known, n=_NEAREST, cutoff=0.4) or [one for one in known if name in one][:_NEAREST]
    meant = f"; did you mean {' or '.join(near)}?" if near else f"; {where} has none"
    return InputError(f"there is no {kind} {name!r} in {where}{meant if known else '; it is empty'}")


def require_package(package: str, *, needed_for: str) -> None:
    """Raise MissingExtraError where a package of an extra is not installed; it is not imported."""
    if find_spec(package) is None:
        raise MissingExtraError(needed_for=needed_for, extra=EXTRA_OF_PACKAGE[package])


def missing_extra(error: BaseException, *, needed_for: str) -> MissingExtraError | None:
    """The error to show for a failed import, where a package of an extra is what it did not find."""
    if not isinstance(error, ModuleNotFoundError):
        return None
    package = (error.name or "").partition(".")[0]
    # a submodule that is missing from an installed package is a wrong version: installing the extra would not help
    if package not in EXTRA_OF_PACKAGE or find_spec(package) is not None:
        return None
    return MissingExtraError(needed_for=needed_for, extra=EXTRA_OF_PACKAGE[package])
