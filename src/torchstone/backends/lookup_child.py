"""The child side of `registry`: describes the backends of this environment; started by its file's path.

`python lookup_child.py FD REQUEST` writes one JSON document to the file descriptor. REQUEST is JSON: {"specs": null}
for all, or {"specs": [...], "options": {...}}.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

_OLDEST = (3, 10)


def main(arguments: list[str]) -> None:
    """Answer one request."""
    descriptor, request = int(arguments[0]), json.loads(arguments[1])
    about: dict[str, object] = {"python": sys.executable, "python_version": platform.python_version()}
    if sys.version_info < _OLDEST:
        answer = {**about, "error": f"it is Python {platform.python_version()}; backends need 3.10 or newer"}
    else:
        register_package()
        answer = {**about, "backends": _describe(request.get("specs"), request.get("options") or {})}
    with os.fdopen(descriptor, "wb") as pipe:
        pipe.write(json.dumps(answer).encode())


def register_package() -> None:
    """Make `import torchstone...` find this very source tree, whatever is installed here."""
    folder = Path(__file__).resolve().parent.parent
    spec = spec_from_file_location("torchstone", folder / "__init__.py", submodule_search_locations=[str(folder)])
    assert spec is not None  # noqa: S101 - the file is ours
    assert spec.loader is not None  # noqa: S101 - the file is ours
    package = module_from_spec(spec)
    sys.modules["torchstone"] = package
    spec.loader.exec_module(package)


def _describe(specs: list[str] | None, options: dict[str, object]) -> list[dict[str, object]]:
    from torchstone.backends.lookup import BUILT_IN, describe_backend, entry_point_backends

    named = [*BUILT_IN, *(name for name in entry_point_backends() if name not in BUILT_IN)]
    return [describe_backend(spec, options, with_digest=specs is not None)[0] for spec in (specs or named)]


if __name__ == "__main__":
    sys.path.pop(0)  # this file's own folder, whose names would hide other modules
    main(sys.argv[1:])
