import pytest

from tests.report.traces import spec, transformer
from torchstone.record.op import OpSignature, OpTable, Phase
from torchstone.record.value import Argument, Items

ADD = OpSignature(
    op="aten.cat.default",
    arguments=(
        Argument(name="tensors", value=Items(kind="list", items=(spec(2, 3), spec(4, 3)))),
        Argument(name="dim", value=0),
    ),
    output=spec(6, 3),
)


def two_calls() -> OpTable:
    return OpTable(
        signatures=(ADD,),
        signature_of=(0, 0),
        inputs=((0, 1), (2, 3)),
        outputs=((4,), (2,)),
        module_calls=(-1, 5),
        writes={1: (2,)},
        forward_calls=1,
    )


def test_tensors_in_lists_count_as_inputs() -> None:
    assert ADD.input_specs == (spec(2, 3), spec(4, 3))
    assert ADD.output_specs == (spec(6, 3),)


def test_an_argument_is_found_by_its_name() -> None:
    assert ADD.argument("dim") == 0
    with pytest.raises(KeyError, match=r"aten\.cat\.default has no argument 'axis'"):
        ADD.argument("axis")


def test_a_row_of_the_table_is_one_call() -> None:
    first, second = two_calls()

    assert (first.op, first.inputs, first.outputs, first.writes) == ("aten.cat.default", (0, 1), (4,), ())
    assert (second.index, second.module_call, second.writes) == (1, 5, (2,))


def test_calls_after_the_forward_pass_are_backward() -> None:
    assert [call.phase for call in two_calls()] == [Phase.FORWARD, Phase.BACKWARD]


def test_counting_from_the_end_gives_the_same_call() -> None:
    table = two_calls()

    assert table[-1] == table[1]
    with pytest.raises(IndexError):
        table[2]


def test_the_tensors_of_a_call_are_those_of_its_signature() -> None:
    trace = transformer(2)

    for call in trace.ops:
        assert tuple(trace.tensors[number].spec for number in call.inputs) == call.signature.input_specs
        assert tuple(trace.tensors[number].spec for number in call.outputs) == call.signature.output_specs
