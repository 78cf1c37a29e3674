from collections.abc import Sequence

from tests.report.traces import TraceBuilder, one_op, spec, transformer
from torchstone.record.module import Module
from torchstone.record.op import OpSignature, OpTable
from torchstone.record.tensor import TensorSpec, TensorTable
from torchstone.record.trace import NOT_AN_OP, Provenance, Trace, producers


def test_the_children_of_a_module_are_those_that_name_it_as_parent() -> None:
    trace = transformer(2)
    (holder,) = (number for number, module in enumerate(trace.modules) if module.path == "model.layers")

    assert [trace.modules[child].path for child in trace.children(holder)] == ["model.layers.0", "model.layers.1"]


def test_an_op_belongs_to_the_innermost_module_running() -> None:
    trace = transformer(1)
    paths = {trace.module_path_of(call) for call in trace.ops if call.op == "aten.silu.default"}

    assert paths == {"model.layers.0.mlp"}


def test_an_op_of_the_root_has_its_empty_path() -> None:
    trace = one_op()

    assert trace.module_path_of(trace.ops[0]) == ""


def test_an_op_outside_any_module_has_an_empty_path_and_no_call() -> None:
    build = TraceBuilder()
    build.module("", "Net")
    build.op("aten.rand.default", [], spec(2))
    trace = build.build()

    assert (trace.ops[0].module_call, trace.module_path_of(trace.ops[0])) == (-1, "")


Call = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]  # tensors read, given back, written


def trace_of(storage_of: Sequence[int], calls: Sequence[Call]) -> Trace:
    """Tensors by the memory they lie in, and calls by the tensors they touch."""
    spec = TensorSpec(shape=(4,), dtype="float32")
    return Trace(
        provenance=Provenance(model="by hand", mode="cpu", mode_reason=""),
        modules=(Module(path="", class_name="Net"),),
        recorded_tensors=TensorTable(specs=(spec,), spec_of=(0,) * len(storage_of), storage_of=tuple(storage_of)),
        recorded_ops=OpTable(
            signatures=(OpSignature(op="aten.any.default", arguments=(), output=spec),),
            signature_of=(0,) * len(calls),
            inputs=tuple(read for read, _, _ in calls),
            outputs=tuple(made for _, made, _ in calls),
            writes={number: written for number, (_, _, written) in enumerate(calls) if written},
            module_calls=(-1,) * len(calls),
            forward_calls=len(calls),
        ),
    )


def test_a_result_comes_from_the_call_that_made_it() -> None:
    weight, x, y, z = range(4)
    trace = trace_of([0, 1, 2, 3], [((weight, x), (y,), ()), ((y, x), (z,), ())])

    assert list(producers(trace)) == [(NOT_AN_OP, NOT_AN_OP), (0, NOT_AN_OP)]


def test_a_view_read_after_a_write_to_its_base_depends_on_the_write() -> None:
    base, view, result = range(3)
    trace = trace_of(
        [0, 0, 1],
        [
            ((base,), (view,), ()),  # view = base[:2]
            ((base,), (base,), (base,)),  # base.add_(1)
            ((view,), (result,), ()),  # view * 2
        ],
    )

    assert list(producers(trace))[2] == (1,)


def test_a_base_read_after_a_write_to_its_view_depends_on_the_write() -> None:
    base, view, result = range(3)
    trace = trace_of([0, 0, 1], [((base,), (view,), ()), ((view,), (view,), (view,)), ((base,), (result,), ())])

    assert list(producers(trace)) == [(NOT_AN_OP,), (0,), (1,)]


def test_a_view_made_after_a_write_depends_on_the_view_op_which_depends_on_the_write() -> None:
    base, view, result = range(3)
    trace = trace_of([0, 0, 1], [((base,), (base,), (base,)), ((base,), (view,), ()), ((view,), (result,), ())])

    assert list(producers(trace)) == [(NOT_AN_OP,), (0,), (1,)]


def test_of_two_writes_the_later_one_counts() -> None:
    cache, key, value = range(3)
    trace = trace_of(
        [0, 1, 2], [((cache, key), (cache,), (cache,)), ((cache, value), (cache,), (cache,)), ((cache,), (), ())]
    )

    assert list(producers(trace)) == [(NOT_AN_OP, NOT_AN_OP), (0, NOT_AN_OP), (1,)]


def test_an_op_that_writes_does_not_depend_on_itself() -> None:
    trace = trace_of([0], [((0, 0), (0,), (0,))])

    assert list(producers(trace)) == [(NOT_AN_OP, NOT_AN_OP)]


def test_a_write_to_other_memory_does_not_count() -> None:
    one, other, result = range(3)
    trace = trace_of([0, 1, 2], [((other,), (other,), (other,)), ((one,), (result,), ())])

    assert list(producers(trace))[1] == (NOT_AN_OP,)


def test_an_op_that_gives_nothing_back_can_still_be_what_others_wait_for() -> None:
    buffer, result = range(2)
    trace = trace_of([0, 1], [((buffer,), (), (buffer,)), ((buffer,), (result,), ())])

    assert list(producers(trace))[1] == (0,)


def test_no_call_depends_on_a_later_one() -> None:
    trace = transformer(3)
    found = list(producers(trace))

    assert [len(row) for row in found] == [len(row) for row in trace.ops.inputs]
    assert all(producer < index for index, row in enumerate(found) for producer in row)
