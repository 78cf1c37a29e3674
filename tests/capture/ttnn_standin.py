"""A package called ttnn that is like the real one where torchstone looks: its tracer, its fast mode, its files."""

from pathlib import Path

_PACKAGE = """
import json, os
__version__ = "0.0.standin"

class CONFIG:
    enable_fast_runtime_mode = json.loads(os.environ.get("TTNN_CONFIG_OVERRIDES", "{}")).get(
        "enable_fast_runtime_mode", True)

class Tensor:
    def __init__(self, *shape):
        self.shape = shape

def _operation(name, result):
    def call(*args, **kwargs):
        value = result(*args)
        if not CONFIG.enable_fast_runtime_mode:
            from ttnn import operation_tracer
            operation_tracer.saw("ttnn." + name, args, kwargs, value)
        return value
    return call

add = _operation("add", lambda a, b: Tensor(*a.shape))
relu = _operation("relu", lambda a: Tensor(*a.shape))
"""
_TRACER = """
import json, os
from pathlib import Path

_ENABLE_TRACE = False
_OPERATION_COUNTER = 0

def enable_tracing(enable=True):
    global _ENABLE_TRACE
    _ENABLE_TRACE = enable

def _told(value):
    if not hasattr(value, "shape"):
        return value
    return {"type": "ttnn.Tensor", "original_shape": list(value.shape), "original_dtype": "DataType.BFLOAT16",
            "shape": list(value.shape), "dtype": "DataType.BFLOAT16", "layout": "Layout.TILE",
            "storage_type": "StorageType.DEVICE"}

def saw(name, args, kwargs, value):
    global _OPERATION_COUNTER
    if not _ENABLE_TRACE:
        return
    folder = Path(os.environ.get("TTNN_OPERATION_TRACE_DIR", "generated/ttnn/operation_parameters"))
    folder.mkdir(parents=True, exist_ok=True)
    _OPERATION_COUNTER += 1
    text = json.dumps({
        "operation_id": _OPERATION_COUNTER, "operation_name": name,
        "args": [{"position": place, "value": _told(one)} for place, one in enumerate(args)],
        "kwargs": {key: _told(one) for key, one in kwargs.items()}, "return_value": _told(value)}, indent=2)
    path = folder / f"{_OPERATION_COUNTER}_{name.replace('.', '_')}_20260101_000000_000000.json"
    path.write_text(text[:len(text) // 2] if os.environ.get("STANDIN_WRITES_HALF") else text)
"""


def write_ttnn(folder: Path, *, tracer: str = _TRACER, before: str = "") -> Path:
    """Write the package into a folder for the path; `before` is what it does first when it is imported."""
    package = folder / "ttnn"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(before + _PACKAGE, encoding="utf-8")
    if tracer:
        (package / "operation_tracer.py").write_text(tracer, encoding="utf-8")
    return folder
