"""Text traces of aten ops, as torch's benchmarks and BackendBench write them <-> configurations; no eval."""

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from math import isfinite
from operator import itemgetter

from torchstone.configs.exchange import Exported, Imported, Unread
from torchstone.errors import InputError
from torchstone.record.config import Configuration, Occurrence, SeenConfiguration, TraceFormat, TraceRun
from torchstone.record.files import encodable
from torchstone.record.tensor import TensorSpec, contiguous_strides
from torchstone.record.value import Argument, Atom, Entries, Items, Value, entry

# --- Argument text, `((T([2, 3], f16), 1), {'dtype': f32})` <-> arguments; nothing is evaluated ---


_DTYPES = {
    "bf16": "bfloat16", "f64": "float64", "f32": "float32", "f16": "float16", "c32": "complex32", "c64": "complex64",
    "c128": "complex128", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "b8": "bool", "u8": "uint8",
}  # fmt: skip
_ABBREVIATIONS = {long: short for short, long in _DTYPES.items()}
_SPELLED_OUT = ("bool", "uint8")  # as arguments of their own; inside T(...) they are b8 and u8
_LAYOUTS = ("strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged", "_mkldnn")
_MEMORY_FORMATS = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")
_NUMBERS = ("inf", "nan")
_PARTS_OF_T = ("shape", "dtype", "stride", "device")
_DEVICE = "torch.device("


class ArgumentTextError(InputError):
    """The text of a call does not follow the grammar."""


def parse_call(text: str) -> tuple[Argument, ...]:
    """The arguments of `(args, kwargs)`."""
    try:
        return _arguments(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        msg = f"not a pair of arguments and keyword arguments ({error})"
        raise ArgumentTextError(msg) from error


def _arguments(tree: ast.expr) -> tuple[Argument, ...]:
    if not (isinstance(tree, ast.Tuple) and len(tree.elts) == 2 and isinstance(tree.elts[1], ast.Dict)):  # noqa: PLR2004 - a pair
        msg = "not a pair of arguments and keyword arguments"
        raise ArgumentTextError(msg)
    positional, named = _value(tree.elts[0]), tree.elts[1]
    if not isinstance(positional, Items):
        msg = "the arguments are not a tuple"
        raise ArgumentTextError(msg)
    given = [Argument(name=f"arg{place}", value=value, position=place) for place, value in enumerate(positional.items)]
    for key, node in zip(named.keys, named.values, strict=True):
        if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
            msg = "a keyword argument without a name"
            raise ArgumentTextError(msg)
        given.append(Argument(name=encodable(key.value), value=_value(node)))
    return tuple(given)


def _value(node: ast.expr) -> Value:
    match node:
        case ast.Constant(value=None | bool() | int() | float() | str() as plain):
            return _plain(plain)
        case ast.Tuple(elts=items):
            return Items(kind="tuple", items=tuple(map(_value, items)))
        case ast.List(elts=items):
            return Items(kind="list", items=tuple(map(_value, items)))
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            return Entries(entries=tuple((_value(key), _value(item)) for key, item in pairs if key is not None))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _negative(_value(operand))
        case ast.Name(id=name):
            return _named(name)
        case ast.Attribute(value=ast.Name(id="torch"), attr=name):
            return _of_torch(name)
        case ast.Call(func=ast.Name(id="T" | "ST" as function), args=arguments, keywords=keywords):
            parts = dict(zip(_PARTS_OF_T, map(_value, arguments), strict=False))
            parts |= {keyword.arg or "": _value(keyword.value) for keyword in keywords}
            return _tensor(parts, sparse=function == "ST")
        case _:
            msg = f"{ast.unparse(node)[:60]} is not a value of a trace"
            raise ArgumentTextError(msg)


def _plain(value: bool | float | str | None) -> Value:  # noqa: FBT001 - a value like the others
    if isinstance(value, str) and value.startswith(_DEVICE) and value.endswith(")"):
        return Atom(kind="device", text=encodable(value).removeprefix(_DEVICE).removesuffix(")").strip("'\""))
    if isinstance(value, str):
        return str(encodable(value))
    if isinstance(value, float) and not isfinite(value):  # 1e999
        return Atom(kind="float", text=str(value))
    return value


def _negative(value: Value) -> Value:
    match value:
        case int() | float():
            return -value
        case Atom(kind="float", text=text):
            return Atom(kind="float", text=f"-{text}")
        case _:
            msg = "a minus sign before a value that is not a number"
            raise ArgumentTextError(msg)


def _named(name: str) -> Value:
    if name in _DTYPES:
        return Atom(kind="dtype", text=_DTYPES[name])
    if name in _NUMBERS:
        return Atom(kind="float", text=name)
    msg = f"{name} is not a name that a trace uses"
    raise ArgumentTextError(msg)


def _of_torch(name: str) -> Value:
    if name in _LAYOUTS:
        return Atom(kind="layout", text=name)
    if name in _MEMORY_FORMATS:
        return Atom(kind="memory_format", text=name)
    return Atom(kind="dtype", text=name)


def _tensor(parts: dict[str, Value], *, sparse: bool) -> TensorSpec:
    shape, dtype = _sizes(parts.get("shape")), parts.get("dtype")
    if shape is None or not (isinstance(dtype, Atom) and dtype.kind == "dtype") or parts.keys() - {*_PARTS_OF_T}:
        msg = f"a tensor with the parts {', '.join(parts)} cannot be read"
        raise ArgumentTextError(msg)
    stride, device = _sizes(parts.get("stride")), parts.get("device")
    return TensorSpec(
        shape=shape,
        dtype=dtype.text,
        stride=None if sparse else stride if stride is not None else contiguous_strides(shape),
        layout="sparse_coo" if sparse else "strided",
        device=device.text if isinstance(device, Atom) else device if isinstance(device, str) else "",
    )


def _sizes(value: Value) -> tuple[int, ...] | None:
    if not isinstance(value, Items) or not all(type(size) is int for size in value.items):
        return None
    return tuple(size for size in value.items if isinstance(size, int))


def call_text(arguments: Sequence[Argument]) -> str:
    """Arguments as torch's own tools write them."""
    positional = [_text(one.value) for one in arguments if one.position is not None]
    named = [f"{one.name!r}: {_text(one.value)}" for one in arguments if one.position is None]
    inner = f"({positional[0]},)" if len(positional) == 1 else f"({', '.join(positional)})"
    return f"({inner}, {{{', '.join(named)}}})"


def _text(value: Value) -> str:
    match value:
        case TensorSpec():
            return _tensor_text(value)
        case Items(kind="tuple", items=items):
            inner = ", ".join(map(_text, items))
            return f"({inner},)" if len(items) == 1 else f"({inner})"
        case Items(items=items):
            return f"[{', '.join(map(_text, items))}]"
        case Entries(entries=entries):
            return "{" + ", ".join(f"{_text(key)}: {_text(item)}" for key, item in entries) + "}"
        case Atom(kind="dtype", text=text):
            return _ABBREVIATIONS[text] if text in _ABBREVIATIONS and text not in _SPELLED_OUT else f"torch.{text}"
        case Atom(kind="layout" | "memory_format", text=text):
            return f"torch.{text}"
        case Atom(kind="device", text=text):
            return repr(f"torch.device({text!r})")
        case Atom(kind="float", text=text):
            return text
        case None | bool() | int() | float() | str():
            return repr(value)
        case _:
            msg = f"a {type(value).__name__} has no text form in an aten trace"
            raise ArgumentTextError(msg)


def _tensor_text(spec: TensorSpec) -> str:
    dtype = _ABBREVIATIONS.get(spec.dtype, f"torch.{spec.dtype}")
    parts = [str(list(spec.shape)), dtype]
    if spec.stride is not None and spec.stride != contiguous_strides(spec.shape):
        parts.append(f"stride={spec.stride}")
    return f"{'T' if spec.layout == 'strided' else 'ST'}({', '.join(parts)})"


# --- Text traces <-> SeenConfigurations ---
#
# A heading `Operator: aten.addmm.default` precedes the calls of an op, one per line:
# `cnt: 49, ((T([768], f16), T([8192, 768], f16), T([768, 768], f16, stride=(1, 768))), {})`.
# Each line is an occurrence of its own, so that a source can be written again byte for byte: a line that we would spell
# differently is stored with its occurrence, a line without a configuration with its run.


_HEAD = "Operator: "
_LINE = re.compile(r"cnt: (?P<count>\d{1,18}), (?P<call>.*)")
_TEXT = "text"  # the detail that stores a line as it was spelled
_SITE = "line "


def is_aten_text(text: str) -> bool:
    """Whether a text looks like a trace of aten ops."""
    head = text[:2000].splitlines()
    return any(line.startswith(_HEAD) for line in head) or any(_LINE.fullmatch(line) for line in head)


def read_aten_text(text: str, *, source: str, run: str, model: str) -> Imported:
    """The configurations of a text trace."""
    op = ""
    seen: dict[str, list[SeenConfiguration]] = {}
    heads: dict[int, str] = {}
    kept: dict[int, str] = {}
    unread: list[Unread] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.startswith(_HEAD):
            op = line.removeprefix(_HEAD).strip()
            heads[number] = line
            continue
        try:
            one = _seen(line, op, Occurrence(source=source, run=run, model=model, call_site=f"{_SITE}{number}"))
        except ArgumentTextError as error:
            kept[number] = line
            if line.strip():
                unread.append(Unread(where=f"line {number}", reason=str(error)))
            continue
        seen.setdefault(one.key, []).append(one)
        if heads.get(number - 1) == _HEAD + op:
            del heads[number - 1]  # it follows from the configuration below it
    lines = tuple(sorted((kept | heads).items()))
    return Imported(
        runs=(TraceRun(source=source, run=run, format=TraceFormat.ATEN_TEXT, kept_lines=lines),),
        seen=tuple(_merge(same) for same in seen.values()),
        unread=tuple(unread),
    )


def _merge(same: list[SeenConfiguration]) -> SeenConfiguration:
    places = tuple(place for one in same for place in one.occurrences)
    return SeenConfiguration(configuration=same[0].configuration, occurrences=places)


def _seen(line: str, op: str, place: Occurrence) -> SeenConfiguration:
    found = _LINE.fullmatch(line)
    if found is None or not op:
        msg = "it is neither the heading of an operator nor a call"
        raise ArgumentTextError(msg)
    arguments = parse_call(found["call"])
    count = int(found["count"])
    as_written = line == _line(count, call_text(arguments))
    occurrence = Occurrence(
        source=place.source,
        run=place.run,
        model=place.model,
        call_site=place.call_site,
        details=None if as_written else Entries(entries=((_TEXT, line),)),
        count=count,
    )
    return SeenConfiguration(configuration=Configuration(op=op, arguments=arguments), occurrences=(occurrence,))


def _line(count: int, call: str) -> str:
    return f"cnt: {count}, {call}"


def write_source(run: TraceRun, seen: Iterable[SeenConfiguration]) -> str:
    """The text that a run was read from, byte for byte."""
    lines = dict(run.kept_lines)
    ops: dict[int, str] = {}
    for one in seen:
        for place in one.occurrences:
            if (place.source, place.run) == (run.source, run.run) and place.call_site.startswith(_SITE):
                number = int(place.call_site.removeprefix(_SITE))
                ops[number] = one.configuration.op
                lines[number] = _as_spelled(one.configuration, place)
    for number, op in ops.items():
        if number - 1 not in lines:
            lines[number - 1] = _HEAD + op
    return "\n".join(lines[number] for number in sorted(lines) if number > 0)


def _as_spelled(configuration: Configuration, place: Occurrence) -> str:
    spelled = entry(place.details, _TEXT)
    return spelled if isinstance(spelled, str) else _line(place.count or 0, call_text(configuration.arguments))


def export_aten(runs: Sequence[TraceRun], seen: Iterable[SeenConfiguration]) -> Exported:
    """Configurations of aten ops as text: their one source trace as it was, or else all of them with counts added."""
    writable: list[tuple[str, str, SeenConfiguration]] = []
    left_out: dict[str, int] = {}
    for one in seen:
        try:
            writable.append((one.configuration.op, _call(one.configuration), one))
        except ArgumentTextError as reason:
            left_out[str(reason)] = left_out.get(str(reason), 0) + 1
    if len(runs) == 1 and runs[0].format is TraceFormat.ATEN_TEXT:
        text = write_source(runs[0], (one for _, _, one in writable))
    else:
        text = "\n".join([*_merged_lines(writable), ""])
    return Exported(text=text, configurations=len(writable), left_out=left_out)


def _call(configuration: Configuration) -> str:
    if not configuration.op.startswith("aten."):
        msg = "an op outside aten"
        raise ArgumentTextError(msg)
    return call_text(configuration.arguments)


def _merged_lines(writable: list[tuple[str, str, SeenConfiguration]]) -> Iterator[str]:
    """By op; the calls of all places added up."""
    head = None
    for op, call, one in sorted(writable, key=itemgetter(0, 1)):
        if op != head:
            head = op
            yield _HEAD + op
        yield _line(one.calls, call)
