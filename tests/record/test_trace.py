from tests.report.traces import TraceBuilder, one_op, spec, transformer


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
