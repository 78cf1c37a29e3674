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
    from torchstone.backends.lookup import BUILT_IN, entry_point_backends

    brought = {name: where for name, where in entry_point_backends().items() if name not in BUILT_IN}
    rows = []
    for spec in [*BUILT_IN, *brought] if specs is None else specs:
        origin = "built in" if spec in BUILT_IN else "entry point" if spec in brought else "file"
        location = {**BUILT_IN, **brought}.get(spec, spec)
        rows.append(
            {
                "name": spec,
                "origin": origin,
                "location": location,
                **_facts(spec, options, with_digest=specs is not None),
            }
        )
    return rows


def _facts(spec: str, options: dict[str, object], *, with_digest: bool) -> dict[str, object]:
    from torchstone.backends.lookup import open_backend, option_names
    from torchstone.backends.protocol import OpeningFailed
    from torchstone.backends.source_digest import backend_digest

    try:
        backend = open_backend(spec, options)
        found = backend.availability()
    except OpeningFailed as error:
        return {"usable": False, "opened": False, "reason": str(error)}
    except Exception as error:  # noqa: BLE001 - a process border: a stranger's code may raise anything
        return {"usable": False, "reason": f"{type(error).__name__}: {error}"}
    summary = (type(backend).__doc__ or "").strip().partition("\n")[0]
    return {
        "summary": summary,
        "forks": bool(backend.forks),
        "gradients": bool(getattr(backend, "gradients", False)),
        "variants": {name: dict(given) for name, given in getattr(backend, "variants", {}).items()},
        "options": option_names(type(backend)) or [],
        "usable": found.usable,
        "reason": found.reason,
        "version": found.version,
        "digest": backend_digest(type(backend)) if found.usable and with_digest else "",
        "needs": found.needs,
    }


if __name__ == "__main__":
    sys.path.pop(0)  # this file's own folder, whose names would hide other modules
    main(sys.argv[1:])
