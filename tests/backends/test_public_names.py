"""What backend authors import: `torchstone.backends` alone, and the old module paths for one release."""

import importlib
import subprocess
import sys

import pytest

from torchstone import backends

MOVED = {
    "packages": "availability_of",
    "exporting": "exported_program",
    "running": "first_line",
    "op_names": "ops_named_in",
    "opening": "open_backend",
    "verdict": "judge",
}


@pytest.mark.parametrize("name", backends.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(backends, name) is not None


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        _ = backends.no_such_name


def test_the_protocol_is_imported_without_torch() -> None:
    program = (
        "import sys; from torchstone.backends import Backend, NotRun, Unsupported, availability_of, open_backend; "
        "sys.exit('torch' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize(("module", "name"), MOVED.items())
def test_an_old_module_path_works_and_names_the_new_import(module: str, name: str) -> None:
    path = f"torchstone.backends.{module}"
    sys.modules.pop(path, None)

    with pytest.warns(DeprecationWarning, match=rf"{path} .*from torchstone.backends import .*{name}") as found:
        old = importlib.import_module(path)

    assert getattr(old, name) is getattr(backends, name)
    assert all(getattr(old, other) is getattr(backends, other) for other in old.__all__)
    assert [str(one.category.__name__) for one in found] == ["DeprecationWarning"]
