"""A sweep module: `parameters`, `run`, and what else it may have; imported once, its vectors run in copies.

parameters = {"suite": {"name": [values], "a,b": [(1, 2), (3, 4)]}}
def run(name, a, b, *, device) -> (passed, message), or [(passed, message), nanoseconds]
def invalidate_vector(vector) -> (is_invalid, reason)       # optional
def mesh_device_fixture(): yield (device, label)            # optional
TIMEOUT = 30                                                # optional, seconds
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import itertools
import json
import math
import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchstone.backends.ttnn_trace_text import is_unreadable
from torchstone.foreign import foreign_code
from torchstone.sweep import master_config_loader
from torchstone.sweep.child.answers import answer_of, first_line

ABSENT = "__ABSENT__"  # a parameter that the traced call was not given; None is a value
_SAYS_NOTHING = ("traced_source", "traced_machine_info")  # where a vector was seen does not make it another one
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
MOST_COMBINATIONS = 200_000  # of a suite; this many take about ten seconds
_SECONDS = 1e-9
_PAIR = 2


@dataclass
class _Loaded:
    """The module of this process, and the device once a vector needed it."""

    module: Any = None
    vectors: dict[str, tuple[str, dict[str, object]]] = field(default_factory=dict)  # id -> suite, parameters
    notes: list[str] = field(default_factory=list)  # what the loader of traced configurations had to say
    device: object = None
    device_is_open: bool = False
    opener: Any = None  # keeps the device open


_loaded = _Loaded()


def set_up(payload: Mapping[str, Any]) -> None:
    """Import the module and name its vectors."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", master_config_loader.TracedConfigWarning)
        _loaded.module = _import(Path(payload["path"]))
    _loaded.notes = [str(one.message) for one in caught if one.category is master_config_loader.TracedConfigWarning]
    _loaded.vectors = {}
    for suite, vector in _vectors(_loaded.module):
        _loaded.vectors.setdefault(identity_of(vector), (suite, vector))


def describe(_payload: Mapping[str, object]) -> dict[str, Any]:
    """All vectors of the module: id, suite, parameters as JSON, whether it says that they are not valid."""
    refuse = getattr(_loaded.module, "invalidate_vector", None)
    found = []
    for identity, (suite, vector) in _loaded.vectors.items():
        lost = next((name for name, value in vector.items() if is_unreadable(value)), "")
        invalid, reason = (False, None) if refuse is None else refuse({**vector, "suite_name": suite})
        if lost:
            invalid, reason = True, f"{lost} could not be read from the trace"
        found.append(
            {
                "id": identity,
                "suite": suite,
                "parameters": {name: readable_value(value) for name, value in vector.items()},
                "reason": str(reason or "its module says so") if invalid else "",
            }
        )
    timeout = getattr(_loaded.module, "TIMEOUT", None)
    seconds = None if timeout is None else float(timeout)
    return {"vectors": found, "timeout_s": seconds, "notes": list(dict.fromkeys(_loaded.notes))}


def run_vector(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Run one vector of the module."""
    known = _loaded.vectors.get(payload["vector"])
    if known is None:
        return answer_of("not run", "its module has no such vector any more; generate the vectors again")
    if payload.get("only_reference"):
        return answer_of("passed", "")
    with foreign_code() as ran:  # a sweep module may raise anything, and that is the result
        result = _call(_loaded.module.run, known[1])
    if isinstance(ran.error, AssertionError):
        return answer_of("wrong", first_line(ran.error), error=ran.error)
    if isinstance(ran.error, NotImplementedError):
        return answer_of("unsupported", first_line(ran.error), error=ran.error)
    if ran.error is not None:
        kind = "out of memory" if isinstance(ran.error, MemoryError) or "Out of Memory" in str(ran.error) else "raised"
        return answer_of(kind, first_line(ran.error), error=ran.error)
    return _read_result(result)


def _vectors(module: Any) -> Iterator[tuple[str, dict[str, object]]]:
    for suite, parameters in module.parameters.items():
        count = math.prod(len(values) for values in parameters.values())
        if count > MOST_COMBINATIONS:
            _loaded.notes.append(
                f"suite {suite} has {count:,} combinations, more than {MOST_COMBINATIONS:,}: no vectors are made of "
                "it; give fewer values, or names joined by commas that vary together (all_cases=False does)"
            )
            continue
        for vector in permutations(parameters):
            yield suite, vector


def permutations(parameters: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, object]]:
    """Every combination; the right-most name varies fastest, and names joined by commas vary together."""
    names = list(parameters)
    for values in itertools.product(*(parameters[name] for name in names)):
        vector: dict[str, object] = {}
        for name, value in zip(names, values, strict=True):
            parts = [part.strip() for part in name.split(",")]
            if len(parts) == 1:
                vector[name] = value
            else:
                vector.update(zip(parts, value, strict=True))
        yield vector


def identity_of(vector: Mapping[str, object]) -> str:
    """The name of a vector: that of its traced configuration, or else a digest of its parameters."""
    traced = vector.get("config_hash")
    if isinstance(traced, str) and traced and traced != ABSENT:
        return traced
    shown = {name: readable_value(value) for name, value in vector.items() if name not in _SAYS_NOTHING}
    text = json.dumps(shown, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha224(text.encode("utf-8", "backslashreplace")).hexdigest()


def readable_value(value: object) -> object:
    """A parameter as JSON; what JSON has no word for as text, the same in every process."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if isinstance(value, list | tuple):
        return [readable_value(part) for part in value]
    if isinstance(value, Mapping):
        return {str(name): readable_value(part) for name, part in value.items()}
    return _ADDRESS.sub("", str(value))


def _call(function: Any, vector: Mapping[str, object]) -> object:
    """Call run(): absent parameters become None, and are named where it wants to know."""
    names = inspect.signature(function).parameters
    takes_any = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in names.values())
    absent = [name for name, value in vector.items() if isinstance(value, str) and value == ABSENT]
    given = {name: None if name in absent else value for name, value in vector.items()}
    if "__absent_keys__" in names or takes_any:
        given["__absent_keys__"] = absent
    if "device" in names or takes_any:
        given["device"] = _device()
    return function(**given)


def _device() -> object:
    """The device that the module opens, once in this process; the CPU where it opens none."""
    if not _loaded.device_is_open:
        fixture = getattr(_loaded.module, "mesh_device_fixture", None)
        if fixture is None:
            import torch

            _loaded.device = torch.device("cpu")
        else:
            _loaded.opener = fixture()
            _loaded.device, _ = next(_loaded.opener)
        _loaded.device_is_open = True
    return _loaded.device


def _read_result(result: Any) -> dict[str, object]:
    """(passed, message), or [(passed, message), nanoseconds]."""
    try:
        timed = len(result) == _PAIR and isinstance(result[0], list | tuple)
        (passed, message), nanoseconds = result if timed else (result, None)
    except (TypeError, ValueError):
        return answer_of("raised", f"run() gave {result!r:.200}, not (passed, message)")
    answer = answer_of("passed" if passed else "wrong", "" if passed else str(message))
    answer["verdict"] = {"passed": bool(passed), "reason": "" if passed else str(message), "message": str(message)}
    if nanoseconds is not None:
        answer["timing"] = {"median_s": float(nanoseconds) * _SECONDS, "mad_s": 0.0, "runs": 1}
    return answer


_LOADERS = ("tests.sweep_framework.master_config_loader", "tests.sweep_framework.master_config_loader_v2")


def _import(path: Path) -> object:
    for name in _LOADERS:  # a module of tt-metal gets its parameters from torchstone's loader, without any change
        sys.modules[name] = master_config_loader
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        msg = f"{path} is not a Python file"
        raise ImportError(msg)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    for name in ("parameters", "run"):
        if not hasattr(module, name):
            msg = f"{path} is not a sweep module: it has no {name!r}"
            raise AttributeError(msg)
    return module
