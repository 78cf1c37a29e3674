"""What the TARGET of a trace is: a pytest node, a script or a model."""

import ast
from difflib import get_close_matches
from pathlib import Path

from torchstone.errors import InputError
from torchstone.record.op_log import TargetKind

_MODEL_NAMES = ("load_model", "ModelLoader")


def kind_of(target: str, arguments: tuple[str, ...]) -> TargetKind:
    """Tell a target by its name, and a lone file by whether it defines a model."""
    path, colons, name = target.partition("::")
    file = Path(path)
    _require(file)
    if colons:
        is_test = _is_test_file(file) or name.startswith(("test", "Test"))
        return TargetKind.PYTEST if is_test else TargetKind.MODEL
    if file.is_dir() and not (file / "trace.json").exists() and not (file / "config.json").exists():
        return TargetKind.PYTEST
    if file.suffix != ".py":
        return TargetKind.MODEL
    if _is_test_file(file):
        return TargetKind.PYTEST
    return TargetKind.MODEL if not arguments and _defines_a_model(file) else TargetKind.SCRIPT


def _require(file: Path) -> None:
    """What is named like a file of Python must be one: said at once, with the way out."""
    if file.suffix != ".py" or file.is_file():
        return
    if file.is_dir():
        msg = f"{file} is a folder; give a file in it"
        raise InputError(msg)
    beside = [path.name for path in file.parent.glob("*.py")] if file.parent.is_dir() else []
    near = get_close_matches(file.name, beside, n=3)
    meant = f"did you mean {' or '.join(str(file.parent / name) for name in near)}?" if near else "check the path."
    msg = f"there is no file {file}; {meant} A target is a test, a script or a model: see `torchstone trace --help`"
    raise InputError(msg)


def _is_test_file(file: Path) -> bool:
    return file.suffix == ".py" and (file.stem.startswith("test_") or file.stem.endswith("_test"))


def _defines_a_model(file: Path) -> bool:
    try:
        tree = ast.parse(file.read_bytes(), filename=str(file))
    except OSError as error:
        msg = f"cannot read {file}: {error.strerror or error}; check its permissions"
        raise InputError(msg) from error
    except (SyntaxError, ValueError) as error:
        msg = f"{file} is not readable Python: {error}; mend it, or give another file"
        raise InputError(msg) from error
    defined = (ast.FunctionDef, ast.ClassDef)
    return any(isinstance(node, defined) and node.name in _MODEL_NAMES for node in tree.body)
