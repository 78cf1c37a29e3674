"""The name of a backend -> the backend, in the environment where it shall run."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

from torchstone.backends.protocol import Backend, OpeningFailed
from torchstone.backends.source_digest import backend_digest
from torchstone.foreign import foreign_code

GROUP = "torchstone.backends"  # the entry-point group of backends that other packages bring
BUILT_IN = {
    "eager": "torchstone.backends.eager:Eager",
    "aot_eager": "torchstone.backends.torch_compile:AotEager",
    "inductor": "torchstone.backends.torch_compile:Inductor",
    "onnxruntime": "torchstone.backends.onnx_runtime:OnnxRuntime",
    "openvino": "torchstone.backends.openvino:OpenVino",
    "stablehlo": "torchstone.backends.stablehlo:StableHlo",
    "iree": "torchstone.backends.iree:Iree",
    "xla": "torchstone.backends.xla:Xla",
    "tt": "torchstone.backends.tt:TT",
    "ttnn": "torchstone.backends.ttnn.backend:Ttnn",
    "faulty": "torchstone.backends.faulty:Faulty",
    "command": "torchstone.backends.command:Command",
}


def open_backend(spec: str, options: Mapping[str, object] | None = None) -> Backend:
    """Open a backend: a built-in name, one of an installed package, `file.py::Class` or `package.module:Class`."""
    options = dict(options or {})
    backend_class = _class_of(spec)
    taken = option_names(backend_class)
    unknown = [] if taken is None else sorted(set(options) - set(taken))
    if unknown:
        offer = f"it takes {', '.join(taken)}" if taken else "it takes none"
        msg = f"backend {spec} has no option {unknown[0]!r}; {offer}"
        raise OpeningFailed(msg)
    try:
        backend: Backend = backend_class(**options)
    except (TypeError, ValueError) as error:
        msg = f"backend {spec} does not take these options: {error}"
        raise OpeningFailed(msg) from error
    missing = [name for name in _PARTS if not hasattr(backend, name)]
    if missing:
        msg = f"backend {spec} is not complete: it has no {', '.join(missing)}"
        raise OpeningFailed(msg)
    return backend


_PARTS = ("name", "forks", "availability", "warm_up", "export", "compile", "reset")


def describe_backend(
    spec: str, options: Mapping[str, object], *, with_digest: bool
) -> tuple[dict[str, object], Backend | None]:
    """What a backend says of itself, as the fields of `BackendFacts`, and the backend; None where it is not usable."""
    brought = {name: where for name, where in entry_point_backends().items() if name not in BUILT_IN}
    origin = "built in" if spec in BUILT_IN else "entry point" if spec in brought else "file"
    about: dict[str, object] = {"name": spec, "origin": origin, "location": {**BUILT_IN, **brought}.get(spec, spec)}
    with foreign_code() as ran:  # a process border: a stranger's code may raise anything
        backend = open_backend(spec, options)
        found = backend.availability()
    if isinstance(ran.error, OpeningFailed):
        return {**about, "usable": False, "opened": False, "reason": str(ran.error)}, None
    if ran.error is not None:
        return {**about, "usable": False, "reason": f"{type(ran.error).__name__}: {ran.error}"}, None
    facts = {
        "summary": (type(backend).__doc__ or "").strip().partition("\n")[0],
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
    return {**about, **facts}, backend if found.usable else None


def entry_point_backends() -> dict[str, str]:
    """The backends of other packages installed here: name -> `module:Class`."""
    return {entry.name: entry.value for entry in entry_points(group=GROUP)}


def _class_of(spec: str) -> Any:
    if "::" in spec:
        file, _, name = spec.partition("::")
        return _named(_module_in(Path(file)), name, spec)
    where = BUILT_IN.get(spec) or entry_point_backends().get(spec) or spec
    module, colon, name = where.partition(":")
    if not colon:
        known = [*BUILT_IN, *entry_point_backends()]
        near = get_close_matches(spec, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}, or give file.py::Class"
        msg = f"there is no backend {spec!r}; {hint}"
        raise OpeningFailed(msg)
    try:
        return _named(import_module(module), name, spec)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        msg = f"backend {spec} cannot be opened: there is no module {error.name}"
        raise OpeningFailed(msg) from error


def _module_in(file: Path) -> object:
    found = spec_from_file_location(file.stem, file) if file.is_file() else None
    if found is None or found.loader is None:
        msg = f"{file} is not a Python file with a backend"
        raise OpeningFailed(msg)
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return module


def _named(module: Any, name: str, spec: str) -> Any:
    backend_class = getattr(module, name, None)
    if not callable(backend_class):
        msg = f"backend {spec} cannot be opened: {module.__name__} has no class {name}"
        raise OpeningFailed(msg)
    return backend_class


def option_names(backend_class: Any) -> list[str] | None:
    """The names that its constructor takes; None when it takes any."""
    parameters = signature(backend_class).parameters.values()
    if any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return [parameter.name for parameter in parameters if parameter.kind is not Parameter.VAR_POSITIONAL]
