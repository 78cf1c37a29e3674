from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchstone.errors import UnreadableFileError
from torchstone.record.codec import decode, encode
from torchstone.record.module import Module, ModuleCallTable, ModuleSignature
from torchstone.record.op import OpSignature, OpTable
from torchstone.record.repeats import Expansion, Numbering, Place, Repeat, expand
from torchstone.record.tensor import ExternalTensor, TensorSpec, TensorTable
from torchstone.record.trace import Provenance, Trace
from torchstone.record.value import Argument

SPEC = TensorSpec(shape=(2,), dtype="float32")
WEIGHTS = 6


def place(op: int, call: int, tensor: int, storage: int | None = None) -> Place:
    return Place(op=op, call=call, tensor=tensor, storage=tensor if storage is None else storage)


def layers(copies: int = 4, **changed: object) -> Trace:
    """Weights 0 to 5, then the root calls layers: each multiplies by its weight, writes into that and makes a constant.

    The first layer reads weight 0 and the constant 6; each later one reads what the one before made.
    """
    repeat = Repeat(
        start=place(0, 1, 7),
        end=place(2, 2, 9),
        at=place(2, 2, 9),
        copies=copies,
        parent=0,
        module_shift=1,
        module_step=1,
        external=((0, 1, 1), (6, 8, 2)),
    )
    last = 8 + 2 * copies
    trace = Trace(
        provenance=Provenance(model="layers", mode="cpu", mode_reason=""),
        modules=tuple(
            Module(path=str(number), class_name="Layer", parent=0 if number else -1) for number in range(WEIGHTS)
        ),
        recorded_tensors=TensorTable(
            specs=(SPEC,),
            spec_of=(0,) * 10,
            storage_of=(*range(9), last + 1),
            external=tuple(ExternalTensor(tensor=number, kind="parameter", name="") for number in (*range(7), 7)),
        ),
        recorded_calls=ModuleCallTable(
            signatures=(ModuleSignature(arguments=(), output=SPEC),),
            signature_of=(0, 0),
            modules=(0, 1),
            parents=(-1, 0),
            inputs=((6,), (6,)),
            outputs=((last + 1,), (8,)),
            first_ops=(0, 0),
            end_ops=(3 + 2 * copies, 2),
        ),
        recorded_ops=OpTable(
            signatures=tuple(
                OpSignature(
                    op=name, arguments=tuple(Argument(name=str(one), value=SPEC) for one in range(inputs)), output=SPEC
                )
                for name, inputs in (("mul", 3), ("add_", 2), ("tanh", 1))
            ),
            signature_of=(0, 1, 2),
            inputs=((6, 0, 7), (0, 8), (last,)),
            outputs=((8,), (0,), (last + 1,)),
            module_calls=(1, 1, 0),
            writes={1: (0,)},
            forward_calls=3 + 2 * copies,
        ),
        repeats=(repeat,),
    )
    return msgspec.structs.replace(trace, **changed)


def test_copies_read_their_own_weights_and_what_the_one_before_made() -> None:
    trace = layers()

    assert trace.ops.inputs[2:8] == ((8, 1, 9), (1, 10), (10, 2, 11), (2, 12), (12, 3, 13), (3, 14))
    assert trace.ops.outputs[2:4] == ((10,), (1,))
    assert trace.ops.signature_of == (0, 1) * 5 + (2,)
    assert trace.ops.writes == {1: (0,), 3: (1,), 5: (2,), 7: (3,), 9: (4,)}
    assert trace.ops.module_calls == (1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 0)
    assert trace.ops[-1].inputs == (16,)


def test_copies_of_module_calls_belong_to_other_modules() -> None:
    calls = layers().module_calls

    assert calls.modules == (0, 1, 2, 3, 4, 5)
    assert calls.parents == (-1, 0, 0, 0, 0, 0)
    assert list(zip(calls.first_ops, calls.end_ops, strict=True))[1:] == list(pairwise(range(0, 12, 2)))
    assert calls.outputs[1:] == ((8,), (10,), (12,), (14,), (16,))


def test_constants_are_copied_and_stand_in_order() -> None:
    tensors = layers().tensors

    assert [one.tensor for one in tensors.external] == [0, 1, 2, 3, 4, 5, 6, 7, 9, 11, 13, 15]
    assert tensors.storage_of == tuple(range(18))


def test_the_whole_trace_is_counted_without_writing_it_out() -> None:
    trace = layers()

    assert (trace.size.op, trace.size.call, trace.size.tensor) == (11, 6, 18)
    assert trace.times.ops == [5, 5, 1]
    assert trace.times.calls == [1, 5]
    assert trace.signature_calls() == {0: 5, 1: 5, 2: 1}
    assert trace.call_origins.modules == list(trace.module_calls.modules)
    assert trace.call_origins.rows == [0, 1, 1, 1, 1, 1]
    assert trace.recorded_call_rows == {0: 0, 1: 1}


def test_a_trace_that_is_written_out_has_no_repeats() -> None:
    trace = layers()

    out = trace.written_out()

    assert (out.repeats, out.ops, out.tensors) == ((), trace.ops, trace.tensors)
    assert out.size == msgspec.structs.replace(trace.size, storage=0)
    assert out.signature_calls() == trace.signature_calls()


def test_held_tensors_are_found_in_both_forms() -> None:
    trace = layers()

    assert [trace.held_spec(number) for number in range(18)] == [trace.tensors[number].spec for number in range(18)]


@given(st.integers(1, 5))
def test_the_tensors_alone_are_those_of_the_whole_trace(copies: int) -> None:
    trace = layers(copies)

    assert trace.tensors == expand(trace.recorded, trace.repeats).tensors


@given(st.integers(1, 4), st.integers(1, 3))
def test_a_stretch_with_copies_in_it_is_copied_with_them(inner: int, outer: int) -> None:
    trace = layers(inner)
    (repeat,) = trace.repeats
    whole = Repeat(
        start=place(0, 1, 7),
        end=repeat.stop,
        at=repeat.stop,
        copies=outer,
        parent=0,
        external=((0, 0, 0), (6, 6, 0), *((number, number, 0) for number in range(1, inner + 1))),
    )
    rows = whole.length.op
    ops = msgspec.structs.replace(
        trace.recorded_ops, forward_calls=rows * (outer + 1) + 1, inputs=(*trace.recorded_ops.inputs[:2], (8,))
    )
    trace = msgspec.structs.replace(trace, repeats=(repeat, whole), recorded_ops=ops)

    assert len(trace.ops) == trace.size.op == rows * (outer + 1) + 1
    assert trace.ops.signature_of[:-1] == (0, 1) * ((inner + 1) * (outer + 1))
    assert trace.times.ops == [(inner + 1) * (outer + 1)] * 2 + [1]
    assert trace.signature_calls()[0] == trace.ops.signature_of.count(0)
    assert trace.call_origins.modules == list(trace.module_calls.modules)


def test_a_trace_with_repeats_comes_back_as_it_was() -> None:
    trace = layers()

    back = decode(encode(trace), Trace, origin="memory")

    assert back == trace
    assert back.ops == trace.ops


@pytest.mark.parametrize(
    "change",
    [
        {"copies": 0},
        {"at": place(1, 2, 9)},
        {"end": place(0, 0, 0)},
        {"start": place(-1, 1, 7)},
    ],
)
def test_repeats_that_are_out_of_order_are_refused(change: dict[str, object]) -> None:
    document = msgspec.json.decode(encode(layers()))
    repeat = msgspec.structs.replace(layers().repeats[0], **change)
    document["repeats"] = [msgspec.to_builtins(repeat)]

    with pytest.raises(UnreadableFileError, match=r"the repeat at op call \d+ is out of order"):
        decode(msgspec.json.encode(document), Trace, origin="net.json")


def test_copies_between_the_first_and_the_last_can_be_left_out() -> None:
    trace = layers(4)
    growing = Expansion(trace.recorded, trace.repeats)
    growing.add_copies(trace.repeats[0])

    tables = growing.finish()

    assert tables.ops.inputs == ((6, 0, 7), (0, 8), (8, 1, 9), (1, 10), (10, 4, 11), (4, 12), (12,))
    assert tables.module_calls.outputs == ((13,), (8,), (10,), (12,))
    assert tables.module_calls.end_ops == (7, 2, 4, 6)
    assert tables.module_calls.modules == (0, 1, 2, 5)
    assert (growing.tensor_number(12), growing.tensor_number(14), growing.tensor_number(16)) == (10, 10, 12)


def test_numbers_left_out_are_those_of_the_copy_before() -> None:
    numbering = Numbering()
    numbering.leave_out(10, 16, 3)
    numbering.leave_out(30, 30, 3)
    numbering.leave_out(40, 42, 2)

    assert [numbering(number) for number in (-1, 9, 10, 12, 13, 15, 16, 39, 40, 41, 42)] == [
        -1, 9, 7, 9, 7, 9, 10, 33, 32, 33, 34,
    ]  # fmt: skip
