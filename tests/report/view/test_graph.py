import msgspec

from tests.report.traces import TraceBuilder, empty_model, one_op, spec, transformer
from torchstone.record.trace import Trace
from torchstone.report.view.graph import TOP, Drawing, Kind, model_graph


def inside(trace: Trace, path: str) -> Drawing:
    graph = model_graph(trace)
    numbers = {module.path: index for index, module in enumerate(trace.modules)}
    call = trace.module_calls.modules.index(numbers[path])
    return graph.drawings[next(one.drawing for one in graph.containers if one.call == call)]


def flows(drawing: Drawing) -> set[tuple[str, str]]:
    return {(drawing.nodes[edge.source].label, drawing.nodes[edge.target].label) for edge in drawing.edges}


def test_a_container_shows_its_parts_in_order_of_execution() -> None:
    drawing = inside(transformer(2), "model.layers.0")

    assert [(node.kind, node.label) for node in drawing.nodes] == [
        (Kind.INPUT, "input_0"),
        (Kind.CALL, "norm_1"),
        (Kind.CALL, "attention"),
        (Kind.OP, "aten.add.Tensor"),
        (Kind.CALL, "norm_2"),
        (Kind.CALL, "mlp"),
        (Kind.OP, "aten.add.Tensor"),
        (Kind.OUTPUT, "output"),
    ]


def test_data_made_deep_in_one_part_and_read_deep_in_another_is_an_edge_between_the_parts() -> None:
    assert flows(inside(transformer(1), "model.layers.0.attention")) == {
        ("input_0", "q_proj"),
        ("input_0", "k_proj"),
        ("input_0", "v_proj"),
        ("q_proj", "aten.scaled_dot_product_attention.default"),
        ("k_proj", "aten.scaled_dot_product_attention.default"),
        ("v_proj", "aten.scaled_dot_product_attention.default"),
        ("aten.scaled_dot_product_attention.default", "o_proj"),
        ("o_proj", "output"),
    }


def test_a_residual_skips_the_part_it_goes_around() -> None:
    assert ("input_0", "aten.add.Tensor") in flows(inside(transformer(1), "model.layers.0"))


def test_equal_layers_in_a_row_are_one_box() -> None:
    drawing = inside(transformer(12), "model")
    fold = next(node for node in drawing.nodes if node.kind is Kind.FOLD)

    assert (fold.label, fold.detail, fold.count) == ("layers.0 … 11", "DecoderLayer", 12)
    assert flows(drawing) == {
        ("input_0", "embed"),
        ("embed", "layers.0 … 11"),
        ("layers.0 … 11", "norm"),
        ("norm", "output"),
    }


def test_equal_containers_share_one_drawing() -> None:
    few, many = model_graph(transformer(2)), model_graph(transformer(20))

    assert len(many.drawings) == len(few.drawings)
    assert len(many.containers) > 5 * len(few.drawings)


def test_the_way_to_a_failure_is_marked() -> None:
    trace = transformer(3, fails_in=1)

    assert [node.label for node in inside(trace, "model").nodes if node.failed] == ["layers.1"]
    assert [node.label for node in inside(trace, "model.layers.1.attention").nodes if node.failed] == ["q_proj"]


def test_an_op_outside_any_module_stands_in_the_top_container() -> None:
    build = TraceBuilder()
    build.module("", "Net")
    build.op("aten.relu.default", [build.tensor(spec(1), kind="input", name="x")], spec(1))
    graph = model_graph(build.build())

    assert [container.call for container in graph.containers] == [TOP]
    assert [node.label for node in graph.drawings[0].nodes] == ["x", "aten.relu.default"]


def test_many_tensors_from_outside_are_one_box() -> None:
    build = TraceBuilder()
    root = build.module("", "Net")
    build.enter(root, [])
    given = [build.tensor(spec(size + 1), kind="constant", name="c") for size in range(40)]
    build.leave([build.op("aten.cat.default", given, spec(40))])
    drawing = inside(build.build(), "")

    assert [(node.label, node.detail) for node in drawing.nodes if node.kind is Kind.INPUT] == [
        ("from outside", "40 tensors")
    ]


def test_the_backward_pass_is_not_drawn() -> None:
    build = TraceBuilder()
    root = build.module("", "Net")
    given = build.tensor(spec(2), kind="input", name="x")
    build.enter(root, [given])
    result = build.op("aten.relu.default", [given], spec(2))
    build.leave([result])
    gradient = build.op("aten.ones_like.default", [result], spec(2))
    build.op("aten.threshold_backward.default", [gradient, result], spec(2))
    trace = build.build()
    trace = msgspec.structs.replace(trace, recorded_ops=msgspec.structs.replace(trace.ops, forward_calls=1))

    assert flows(inside(trace, "")) == {("input_0", "aten.relu.default"), ("aten.relu.default", "output")}
    assert [len(drawing.nodes) for drawing in model_graph(trace).drawings] == [2, 3]


def test_small_models_have_small_graphs() -> None:
    assert [container.call for container in model_graph(empty_model()).containers] == [TOP]
    assert flows(inside(one_op(), "")) == {("input_0", "aten.relu.default"), ("aten.relu.default", "output")}
