"""Check that a .pt2 file can be loaded without running code that was planted in it.

torch.export.load trusts its file. It unpickles weights, constants and sample inputs, evaluates symbolic sizes as
Python, looks up ops by dotted names (`torch.os.system` is one), imports modules that a tree specification names, and
compiles Python text made from the names of nodes. So everything that reaches one of these places is checked first, and
a file with anything that torch.export.save does not write for plain tensors is refused.

The file is read here by the reader that torch itself uses: with another one, a crafted zip file could show this check
other members than those that torch loads.
"""

import io
import json
import math
import operator
import re
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import torch

from torchstone.errors import UnreadableFileError
from torchstone.foreign import acts_outside, foreign_code
from torchstone.models.size_expressions import is_arithmetic
from torchstone.numerics.pickle_names import names_too_long

_PROGRAM = "models/model.json"
_CONFIGS = ("data/weights/model_weights_config.json", "data/constants/model_constants_config.json")
_TENSORS = re.compile(r"data/(weights|constants|sample_inputs)/model\.pt")
_HARMLESS = re.compile(
    r"data/weights/weight_\d+|data/constants/tensor_\d+|archive_format|archive_version|byteorder|version|\.data/\w+"
    r"|\.format_version|\.storage_alignment|extra/.*"
)
_PAYLOAD = re.compile(r"(weight|tensor)_\d+")

_SHOWN_CHARACTERS = 80
_PLAIN = re.compile(r"[\w.:<>@+-]*")  # no quote, bracket, space or line end: cannot leave its place in Python text
_TEXT = re.compile(r"[^'\"\\\x00-\x1f\x7f\u2028\u2029]*")  # stands between quotes without ending them
_METADATA = re.compile(r"[^\x00-\x08\x0b-\x1f\x7f]*")  # lines of a stack trace, which torch puts into comments
_MODULE_STACK = re.compile(r"[^\"\\\x00-\x1f\x7f]*")  # stands between double quotes; older torch writes L['self']
_OPERATORS = frozenset({
    "abs", "add", "and_", "eq", "floordiv", "ge", "getitem", "gt", "invert", "le", "lshift", "lt", "mod", "mul", "ne",
    "neg", "not_", "or_", "pos", "pow", "rshift", "sub", "truediv", "xor",
})  # fmt: skip
_HIGHER_ORDER_OPS = frozenset({
    "associative_scan", "auto_functionalized", "auto_functionalized_v2", "cond", "flex_attention", "hints_wrapper",
    "invoke_subgraph", "map_impl", "out_dtype", "scan", "strict_mode", "tag_activation_checkpoint", "while_loop",
    "with_effects", "wrap", "wrap_with_autocast", "wrap_with_set_grad_enabled",
})  # fmt: skip
_TORCH_FUNCTION = re.compile(r"torch\.(sym_(float|fresh_size|int|ite|max|min|not|sqrt|sum)|_sym_[a-z0-9]+)")


class UnsafeArchiveError(UnreadableFileError):
    """A .pt2 file contains something that could run code while it is loaded."""


def _refuse(problem: str) -> NoReturn:
    raise UnsafeArchiveError(problem)


def check_archive(path: Path) -> None:
    """Refuse a .pt2 file that could run code while torch loads it; this check executes nothing in the file."""
    try:
        _check(torch._C.PyTorchFileReader(str(path)))
    except UnsafeArchiveError as error:
        msg = (
            f"{path} could run code while it is read, so it is not opened: {error}; export the model again with "
            "torch.export.save, with plain tensors as weights, constants and example inputs"
        )
        raise UnsafeArchiveError(msg) from error


def _check(reader: "torch._C.PyTorchFileReader") -> None:
    names = [str(name) for name in reader.get_all_records()]
    for name in names:
        if _TENSORS.fullmatch(name):
            _check_tensors(reader.get_record(name), name)
        elif name in _CONFIGS:
            _check_config(_document(reader.get_record(name)), name)
        elif name == _PROGRAM:
            _check_program(_document(reader.get_record(name)))
        elif not _HARMLESS.fullmatch(name):
            _refuse(f"it has the member {name!r}, which torch.export.save does not write")
    if _PROGRAM not in names:
        _refuse(f"it has no member {_PROGRAM!r}, so torch would read it as an older, pickled format")


def _document(record: bytes) -> object:
    try:
        document: object = json.loads(record.decode("utf-8"))
    except RecursionError:
        _refuse("its JSON is nested too deeply")
    return document


def _check_tensors(record: bytes, name: str) -> None:
    """Load a member with torch's restricted unpickler, so that torch.export.load does not retry without restriction."""
    if not record:
        return
    if names_too_long(io.BytesIO(record)):
        _refuse(f"its member {name!r} names a class by more than a thousand characters")
    with foreign_code() as ran:  # whatever torch raises, it would go on to load the member without restriction
        loaded: object = torch.load(io.BytesIO(record), weights_only=True)
    if ran.error is not None:
        _refuse(f"its member {name!r} is pickled and holds more than tensors and plain values")
    if not isinstance(loaded, (tuple, dict)):
        _refuse(f"its member {name!r} holds neither a tuple nor a dict")


def _check_config(document: object, name: str) -> None:
    payloads = document.get("config") if isinstance(document, dict) else None
    if not isinstance(payloads, dict):
        _refuse(f"its member {name!r} has no table of payloads")
    for tensor, payload in payloads.items():
        if not isinstance(payload, dict) or payload.get("use_pickle") is not False:
            _refuse(f"{tensor!r} in {name!r} is pickled")
        if not isinstance(payload.get("path_name"), str) or not _PAYLOAD.fullmatch(payload["path_name"]):
            _refuse(f"{tensor!r} in {name!r} is not a tensor")
    _check_value(payloads, in_node=False)


def _check_program(document: object) -> None:
    try:
        _check_value(document, in_node=False)
    except RecursionError:
        _refuse("its program is nested too deeply")


def _check_value(value: object, *, in_node: bool) -> None:
    if isinstance(value, dict):
        is_graph = "inputs" in value and "outputs" in value
        for key, item in value.items():
            _check_plain(key)
            # a node's strings are written with repr(); those of a graph's inputs and of signatures are not
            starts_nodes = is_graph and key == "nodes" and isinstance(item, list)
            _check_field(key, item, in_node=starts_nodes or (in_node and key not in {"graph", "signature"}))
    elif isinstance(value, list):
        for item in value:
            _check_value(item, in_node=in_node)
    elif isinstance(value, str):
        _check_plain(value)


def _check_field(key: str, value: object, *, in_node: bool) -> None:
    """Check one field of the program; a key is only special with a value of the type that torch's schema gives it."""
    match key, value:
        case _, str():
            _check_string(key, value, in_node=in_node)
        case "guards_code" | "as_strings", list() if all(isinstance(one, str) for one in value):
            for one in value:
                _check_string({"guards_code": "guard", "as_strings": "as_string"}[key], one, in_node=in_node)
        case "range_constraints", dict():
            for expression, limits in value.items():
                _check_string("expr_str", expression, in_node=in_node)
                _check_value(limits, in_node=in_node)
        case "metadata", dict() if all(isinstance(one, str) for one in value.values()):
            _check_metadata(value)
        case "as_custom_obj" | "custom_obj" | "custom_obj_values", dict() if value:
            _refuse("it holds a custom object")
        case _:
            _check_value(value, in_node=in_node)


def _check_string(key: str, text: str, *, in_node: bool) -> None:
    match key:
        case "expr_str" | "guard":
            safe = is_arithmetic(text, with_tensors=key == "guard")
            _check_that(safe, f"the size {_short(text)} is not arithmetic on symbols")
        case "target" | "as_operator":
            _check_that(_is_op(text), f"it calls {_short(text)}, which is not an op of this torch that only computes")
        case "as_string":
            safe = in_node or _TEXT.fullmatch(text) is not None
            _check_that(safe, f"the constant input {_short(text)} holds quotes or control characters")
        case "in_spec" | "out_spec":
            _check_tree(json.loads(text))
        case "name" | "as_name":
            _check_that(text == "" or text.isidentifier(), f"{_short(text)} is not a name")
        case _:
            _check_plain(text)


def _check_that(safe: bool, problem: str) -> None:  # noqa: FBT001 - reads like assert
    if not safe:
        _refuse(problem)


def _check_plain(text: str) -> None:
    if _PLAIN.fullmatch(text) is None:
        _refuse(f"{_short(text)} is not a name")


def _check_metadata(metadata: dict[str, str]) -> None:
    for key, text in metadata.items():
        allowed = _MODULE_STACK if key == "nn_module_stack" else _METADATA
        _check_that(allowed.fullmatch(text) is not None, f"the {key} {_short(text)} of a node is not plain text")


def _is_op(target: str) -> bool:
    """Whether a name stands for an op that computes on tensors, or for arithmetic on sizes."""
    match target.split("."):
        case ["torch", "ops", "higher_order", name]:
            return name in _HIGHER_ORDER_OPS
        case ["torch", "ops", namespace, name, overload]:
            full_name = f"{namespace}::{name}" if overload == "default" else f"{namespace}::{name}.{overload}"
            # what is only known to TorchScript has no kernel here: aten::save writes any file
            return not acts_outside(f"{namespace}.{name}.{overload}") and torch._C._dispatch_has_kernel(full_name)
        case ["_operator", name]:
            return name in _OPERATORS and hasattr(operator, name)
        case ["math", name]:
            return not name.startswith("_") and hasattr(math, name)
        case _:
            return _TORCH_FUNCTION.fullmatch(target) is not None


def _check_tree(spec: object) -> None:
    """Check how inputs and outputs are nested: no context may name a module to import, as enums and defaultdicts do."""
    match spec:
        case {"type": kind, "context": context, "children_spec": list(children)}:
            if kind is not None:
                _check_plain(str(kind))
            _check_context(context)
            for child in children:
                _check_tree(child)
        case [int(), inner]:
            _check_tree(inner)
        case _:
            _refuse(f"{_short(str(spec))} does not describe nested inputs or outputs")


def _check_context(context: object) -> None:
    if isinstance(context, str):
        with suppress(ValueError):  # text of a type that writes its context in its own way
            context = json.loads(context)
    pending = [context]
    while pending:
        match pending.pop():
            case list(items):
                pending.extend(items)
            case str(text) if _TEXT.fullmatch(text):
                pass
            case None | bool() | int() | float():
                pass
            case other:
                _refuse(f"the nested inputs or outputs are described by {_short(str(other))}")


def _short(text: str) -> str:
    shown = repr(text)
    return shown if len(shown) <= _SHOWN_CHARACTERS else f"{shown[:_SHOWN_CHARACTERS]}..."
