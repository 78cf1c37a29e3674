"""Hypothesis strategies for records: any well-typed record, with the strings and numbers nobody thinks of."""

from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from torchstone.record.module import Module, ModuleCallTable, ModuleSignature, Parameter, Source
from torchstone.record.op import OpSignature, OpTable
from torchstone.record.tensor import ExternalTensor, TensorSpec, TensorTable
from torchstone.record.trace import Failure, Provenance, Trace
from torchstone.record.unique import UniqueModule, UniqueModules
from torchstone.record.value import Absent, Argument, Atom, Entries, Fields, Items, Opaque, Value

T = TypeVar("T")
HOSTILE = (
    "",
    "</script>",
    '"quoted\\',
    "null",
    "\x00\x1f\x7f",
    "\u2028",
    "🦙",
    "e\u0301",
    "a" * 500,
    "torchstone/trace/9",
)

numbers = st.integers(min_value=-(2**63), max_value=2**63 - 1)
places = st.integers(min_value=-1, max_value=2**63 - 1)
texts = st.sampled_from(HOSTILE) | st.text(max_size=12)
shapes = st.lists(st.integers(min_value=0, max_value=2**40), max_size=5).map(tuple)
rows = st.lists(places, max_size=4).map(tuple)


def tuples_of(items: SearchStrategy[T], *, most: int = 3) -> SearchStrategy[tuple[T, ...]]:
    return st.lists(items, max_size=most).map(tuple)


tensor_specs = st.builds(
    TensorSpec,
    shape=shapes,
    dtype=st.sampled_from(["float32", "bfloat16", "int4", "bool", "a_type_of_tomorrow"]),
    stride=st.none() | shapes,
    storage_offset=st.integers(min_value=0, max_value=2**62),
    device=st.sampled_from(["cpu", "cuda:0"]),
    layout=st.sampled_from(["strided", "sparse_coo"]),
    requires_grad=st.booleans(),
    subclass=texts,
)
atoms = st.builds(
    Atom,
    kind=st.sampled_from(["dtype", "float", "complex", "int", "slice"]),
    text=st.sampled_from(["nan", "inf", "-inf", "(1+infj)", str(2**200), "bfloat16"]) | texts,
)
finite_floats = st.floats(allow_nan=False, allow_infinity=False)
_flat: SearchStrategy[Value] = st.one_of(
    st.none(), st.booleans(), numbers, finite_floats, texts, tensor_specs, atoms,
    st.builds(Opaque, class_name=texts, text=texts), st.just(Absent()),
)  # fmt: skip


def _nested(inner: SearchStrategy[Value]) -> SearchStrategy[Value]:
    return st.one_of(
        st.builds(Items, kind=st.sampled_from(["list", "tuple", "set"]), items=tuples_of(inner)),
        st.builds(Entries, entries=tuples_of(st.tuples(inner, inner))),
        st.builds(Fields, class_name=texts, fields=tuples_of(st.tuples(texts, inner))),
    )


values: SearchStrategy[Value] = st.recursive(_flat, _nested, max_leaves=8)
arguments = st.builds(Argument, name=texts, value=values, position=st.none() | places)
held = st.builds(Parameter, name=texts, tensor=places, trainable=st.booleans(), persistent=st.booleans())
modules = st.builds(
    Module,
    path=texts,
    class_name=texts,
    parent=places,
    attributes=tuples_of(st.tuples(texts, values), most=2),
    parameters=tuples_of(held, most=2),
    buffers=tuples_of(held, most=2),
    other_paths=tuples_of(texts, most=2),
    training=st.booleans(),
    container=st.booleans(),
)
module_call_tables = st.builds(
    ModuleCallTable,
    signatures=tuples_of(st.builds(ModuleSignature, arguments=tuples_of(arguments, most=2), output=values), most=2),
    signature_of=rows,
    modules=rows,
    parents=rows,
    inputs=tuples_of(rows),
    outputs=tuples_of(rows),
    first_ops=rows,
    end_ops=rows,
)
op_signatures = st.builds(OpSignature, op=texts, arguments=tuples_of(arguments, most=2), output=values)
op_tables = st.builds(
    OpTable,
    signatures=tuples_of(op_signatures, most=2),
    signature_of=rows,
    inputs=tuples_of(rows),
    outputs=tuples_of(rows),
    module_calls=rows,
    writes=st.dictionaries(places, rows, max_size=3),
    forward_calls=places,
)
tensor_tables = st.builds(
    TensorTable,
    specs=tuples_of(tensor_specs),
    spec_of=rows,
    storage_of=rows,
    external=tuples_of(st.builds(ExternalTensor, tensor=places, kind=texts, name=texts)),
    gradients=st.dictionaries(places, places, max_size=3),
)
provenances = st.builds(
    Provenance,
    model=texts,
    mode=texts,
    mode_reason=texts,
    phase=texts,
    inputs=texts,
    versions=st.dictionaries(texts, texts, max_size=3),
    command=texts,
    created=texts,
    reused_ops=places,
)
failures = st.builds(Failure, module=texts, op=texts, arguments=texts, error=texts, location=texts)
sources = st.builds(Source, file=texts, first_line=places, last_line=places)
traces = st.builds(
    Trace,
    provenance=provenances,
    modules=tuples_of(modules),
    sources=st.dictionaries(texts, sources, max_size=2),
    recorded_tensors=tensor_tables,
    recorded_calls=module_call_tables,
    recorded_ops=op_tables,
    failure=st.none() | failures,
    notes=tuples_of(texts),
)
unique_modules = st.builds(
    UniqueModules,
    model=texts,
    modules=tuples_of(
        st.builds(
            UniqueModule,
            id=texts,
            class_name=texts,
            module_path=texts,
            parent=st.none() | texts,
            input_shapes=tuples_of(shapes),
            input_dtypes=tuples_of(texts),
            output_shapes=tuples_of(shapes),
            output_dtypes=tuples_of(texts),
            parameters=places,
            parameter_shapes=st.dictionaries(texts, shapes, max_size=2),
            calls=places,
            occurrences=tuples_of(texts),
            container=st.booleans(),
            status=st.none() | texts,
            outcome=st.none() | texts,
        )
    ),
)
