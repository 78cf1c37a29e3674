"""A trace as if its weights, caches or activations were stored in another number format.

Only sizes change: a tensor of a trace gets the name of the format as its dtype, which `record/tensor.py` knows the size
of. FLOPs, shapes and op calls stay as they were captured.
"""

from collections.abc import Callable, Collection, Sequence
from fnmatch import fnmatchcase

import msgspec
from msgspec.structs import replace

from torchstone.cost.boundary_tensors import Ends, find_ends, fold_numbers
from torchstone.cost.liveness import live_memory
from torchstone.cost.registry import find_price
from torchstone.cost.shorten import shorten
from torchstone.cost.storages import storages_of
from torchstone.cost.tiles import Form, image_forms, shape_in_memory, used_storages, weights_of
from torchstone.errors import InputError
from torchstone.record.cost import Formats, Kind
from torchstone.record.op import OpSignature
from torchstone.record.tensor import TensorSpec, has_blocks
from torchstone.record.trace import EagerMemory, Trace
from torchstone.record.value import replace_tensors
from torchstone.units import many, show_bytes

_ALIASES = {
    "fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "fp8": "float8_e4m3fn", "fp8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2", "bfp8": "bfloat8_b", "bfp4": "bfloat4_b", "int8": "int8_g128", "int4": "int4_g128",
}  # fmt: skip
FORMATS = ("float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "float8_block", "int8_g128", "int4_g128",
           "float8_row", "mxfp8", "mxfp6", "mxfp4", "nvfp4", "nf4", "nf4_double", "bfloat8_b", "bfloat4_b")  # fmt: skip
_FILES_MAY_DIFFER = 0.03  # scales of whole matrices, descriptions of a quantization, buffers
PUBLISHED = "as published"  # how the source of formats that a checkpoint has begins
_FLOATS = ("float64", "float32", "float16", "bfloat16")
_MULTIPLIES = frozenset({Kind.MATMUL, Kind.CONVOLUTION, Kind.RECURRENT})
_SIZES_OF_MATRIX_LAYERS = (
    {"in_features", "out_features"}, {"in_channels", "out_channels"}, {"input_size", "hidden_size"},
    {"embed_dim", "kdim", "vdim"}, {"nf", "nx"},
)  # fmt: skip
_LOOKS_UP = frozenset({Kind.INDEXING})


def parse_format(name: str) -> str:
    """The name of a format; other common names are understood, such as bf16 and fp8."""
    found = _ALIASES.get(name.lower(), name.lower())
    if found in FORMATS or has_blocks(found):
        return found
    msg = (
        f"unknown number format {name!r}; choose from {', '.join((*FORMATS, *_ALIASES))}, or give groups of "
        "another size (int4_g32), or one scale for each row (int8_row); _s32 makes scales 32 bits wide, and _z4 adds "
        "zero points of 4 bits"
    )
    raise InputError(msg)


def with_formats(trace: Trace, formats: Formats) -> Trace:
    """The same trace with the sizes of other formats; the trace itself where nothing is asked for."""
    if formats.is_as_captured:
        return trace
    if any(fold_numbers(one) != one for one in formats.only):  # equal layers may differ in their formats
        trace = trace.written_out()
    return _Rewriter(trace, formats).trace()


def format_notes(trace: Trace, formats: Formats) -> tuple[str, ...]:
    """What formats that were asked for do not change, as sentences; the trace is the captured one."""
    if formats.is_as_captured or formats.source.startswith(PUBLISHED):
        return ()
    ends = find_ends(trace)
    table = trace.tensors
    notes = []
    if formats.weights:
        held = [(table.storage_of[one.tensor], table[one.tensor].spec) for one in table.external]
        packed = [spec.subclass.rpartition(".")[2] for _, spec in held if spec.is_packed]
        matrices = matrices_of(trace, ends)
        unread = _unread_tables(trace) - matrices
        if unread:
            kept = many(len(unread), "weight that no op reads stays", "weights that no op reads stay")
            notes.append(f"weights {formats.weights}: {kept} as captured; no layer says whether that is a matrix")
        if packed:
            kinds = ", ".join(sorted(set(packed)))
            kept = many(len(packed), "packed weight stays", "packed weights stay")
            notes.append(f"weights {formats.weights}: {kept} as stored ({kinds})")
        elif not any(storage in matrices and spec.dtype in _FLOATS for storage, spec in held):
            notes.append(f"weights {formats.weights} change nothing: no matrix of floats is multiplied with")
    if formats.kv_cache and not ends.caches_in | ends.caches_out:
        notes.append(f"KV cache {formats.kv_cache} changes nothing: the model neither gets nor gives a cache")
    return tuple(notes)


def file_notes(trace: Trace, formats: Formats, parameter_bytes: int) -> tuple[str, ...]:
    """Whether the weight files of a quantized checkpoint have other bytes than its configuration leads to."""
    stored = trace.checkpoint
    if stored is None or not stored.file_bytes or PUBLISHED not in formats.source:
        return ()
    if abs(parameter_bytes - stored.file_bytes) <= _FILES_MAY_DIFFER * stored.file_bytes:
        return ()
    return (
        f"the weight files have {show_bytes(stored.file_bytes)} of tensors, and the parameters are priced with "
        f"{show_bytes(parameter_bytes)}: not all is stored as quantization_config says",
    )


class _Stored(msgspec.Struct, frozen=True):
    """A tensor's spec and what its memory holds."""

    spec: int
    format: str | None
    origin: int  # the spec that the memory was made with
    form: Form


class _Rewriter:
    """Gives each tensor the format of its storage, then each op signature the specs of its tensors."""

    def __init__(self, trace: Trace, formats: Formats) -> None:
        self._trace = trace
        self._specs: dict[TensorSpec, int] = {}
        self._signatures: dict[tuple[int, tuple[int, ...], tuple[int, ...]], int] = {}
        self._made: list[OpSignature] = []
        ends = find_ends(trace)
        stored = self._formats_by_storage(ends, formats)
        table = trace.tensors
        known: dict[_Stored, int] = {}
        self._spec_of: list[int] = []  # of each tensor of the whole trace
        forms = image_forms(trace, ends)
        was_there = {one.tensor for one in table.external}
        origins: dict[int, int] = {}
        for tensor, (spec, storage) in enumerate(zip(table.spec_of, table.storage_of, strict=True)):
            first = origins.setdefault(storage, spec)
            origin = spec if tensor in was_there else first
            form = forms.get(storage, Form.MATRICES)
            key = _Stored(spec, stored.get(storage, formats.activations), origin, form)
            if key not in known:
                known[key] = self._number(_stored_as(table.specs[spec], key.format, table.specs[origin], form))
            self._spec_of.append(known[key])

    def trace(self) -> Trace:
        trace = self._trace
        signature_of = tuple(self._signature(row) for row in range(len(trace.recorded_ops)))
        spec_of = tuple(self._spec_of[number] for number in trace.recorded_tensor_numbers)
        rewritten = replace(
            trace,
            recorded_tensors=replace(trace.recorded_tensors, specs=tuple(self._specs), spec_of=spec_of),
            recorded_ops=replace(trace.recorded_ops, signatures=tuple(self._made), signature_of=signature_of),
        )
        return replace(rewritten, eager_memory=_eager_memory(trace, rewritten))

    def _formats_by_storage(self, ends: Ends, formats: Formats) -> dict[int, str | None]:
        found: dict[int, str | None] = dict.fromkeys(ends.weights)
        found |= dict.fromkeys(ends.caches_in | ends.caches_out, formats.kv_cache or formats.activations)
        if formats.weights:
            chosen = matrices_of(self._trace, ends, formats.only)
            found |= dict.fromkeys(chosen, formats.weights)
        return found

    def _number(self, spec: TensorSpec) -> int:
        return self._specs.setdefault(spec, len(self._specs))

    def _signature(self, row: int) -> int:
        ops = self._trace.recorded_ops
        inputs, outputs = (tuple(map(self._spec_of.__getitem__, one[row])) for one in (ops.inputs, ops.outputs))
        key = (ops.signature_of[row], inputs, outputs)
        if key not in self._signatures:
            self._signatures[key] = len(self._made)
            specs = tuple(self._specs)
            old = ops.signatures[ops.signature_of[row]]
            self._made.append(_with_tensors(old, [specs[one] for one in inputs], [specs[one] for one in outputs]))
        return self._signatures[key]


def matrices_of(trace: Trace, ends: Ends, only: Collection[str] = ()) -> set[int]:
    """The storages of weights that are multiplied with: what quantization applies to.

    Biases, norms and tables that are looked up in, such as embeddings, keep their format. Weights that no op reads,
    such as those of an encoder in a decode step, are matrices where their module is a layer that multiplies. `only` has
    patterns of parameter names, with the numbers of layers left open or not.
    """
    ops, storage_of = trace.ops, trace.tensors.storage_of
    kinds = [entry.kind if (entry := find_price(one.op)) else Kind.UNPRICED for one in ops.signatures]
    multiplied: set[int] = set()
    looked_up: set[int] = set()
    for signature, inputs in zip(ops.signature_of, ops.inputs, strict=True):
        if kinds[signature] in _MULTIPLIES:
            multiplied.update(storage_of[one] for one in inputs)
        elif kinds[signature] in _LOOKS_UP and inputs:
            looked_up.add(storage_of[inputs[0]])
    multiplied |= weights_of(trace, *_SIZES_OF_MATRIX_LAYERS) - used_storages(trace)
    large = {
        storage_of[one.tensor] for one in trace.tensors.external
        if one.kind == "parameter" and len(trace.tensors[one.tensor].spec.shape) > 1
        and (not only or _is_named(one.name, only))
    }  # fmt: skip
    return (multiplied & ends.weights & large) - looked_up


def _unread_tables(trace: Trace) -> set[int]:
    """The storages of parameters of two or more dimensions that no op reads, but for embeddings."""
    table = trace.tensors
    large = {
        table.storage_of[one.tensor] for one in table.external
        if one.kind == "parameter" and len(table[one.tensor].spec.shape) > 1 and table[one.tensor].spec.dtype in _FLOATS
    }  # fmt: skip
    return large - used_storages(trace) - weights_of(trace, {"num_embeddings"})


def _is_named(name: str, patterns: Collection[str]) -> bool:
    folded = fold_numbers(name)
    return any(fnmatchcase(folded, one) or fnmatchcase(name, one) for one in patterns)


def _eager_memory(captured: Trace, rewritten: Trace) -> EagerMemory | None:
    """What the run would have held: what it held beyond the ideal is activations, and shrinks as those do."""
    if captured.eager_memory is None:
        return None
    shorts = (shorten(captured), shorten(rewritten))
    storages = tuple(map(storages_of, shorts))
    old, new = (live_memory(short, held).peak for short, held in zip(shorts, storages, strict=True))
    grown = old.total_bytes - old.weights_bytes
    beyond = captured.eager_memory.peak_bytes - old.total_bytes
    return EagerMemory(
        before_bytes=sum(map(storages[1].whole_size, storages[1].names)),
        peak_bytes=new.total_bytes + (beyond * (new.total_bytes - new.weights_bytes) // grown if grown else beyond),
    )


def _stored_as(spec: TensorSpec, name: str | None, origin: TensorSpec, form: Form) -> TensorSpec:
    """A tensor in a format; a view of blocks has its part of them, whatever its own rows are."""
    if not name or spec.dtype not in _FLOATS or spec.is_packed:
        return spec
    found = replace(spec, dtype=name)
    if not has_blocks(name) or not origin.elements:
        return found
    whole = TensorSpec(shape=shape_in_memory(origin, form), dtype=name).size_bytes or 0
    return replace(found, stored_bytes=whole * spec.elements // origin.elements)


def _with_tensors(signature: OpSignature, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> OpSignature:
    """The signature with other specs, in the order in which its tensors stand."""
    given, made = _in_turn(inputs), _in_turn(outputs)
    arguments = tuple(replace(one, value=replace_tensors(one.value, given)) for one in signature.arguments)
    return replace(signature, arguments=arguments, output=replace_tensors(signature.output, made))


def _in_turn(specs: Sequence[TensorSpec]) -> Callable[[TensorSpec], TensorSpec]:
    given = iter(specs)
    return lambda spec: next(given, spec)
