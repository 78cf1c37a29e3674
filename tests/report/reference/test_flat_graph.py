import pytest

from tests.report.traces import empty_model, hostile_names, one_op, transformer
from torchstone.report.reference.flat_graph import FlatGraph, flat_graph


def labels(graph: FlatGraph) -> list[str]:
    return [box.label for box in graph.boxes]


def test_repeated_layers_are_drawn_once() -> None:
    few, many = (flat_graph(transformer(layers), ops=False) for layers in (2, 32))

    assert len(few.boxes) == len(many.boxes)
    assert any(frame.label == "model.layers.0 … 31, x 32" for frame in many.frames)


def test_without_repeats_the_op_graph_has_a_box_for_each_op() -> None:
    trace = transformer(1)

    graph = flat_graph(trace, ops=True)

    assert sum(box.kind == "op" for box in graph.boxes) == len(trace.ops)


def test_a_box_of_the_module_graph_is_a_module_without_modules_or_an_op_between() -> None:
    graph = flat_graph(transformer(1), ops=False)

    assert "model.layers.0.attention.q_proj" in labels(graph)
    assert "model.layers.0.attention" not in labels(graph)
    assert "add.Tensor" in labels(graph)


@pytest.mark.parametrize("ops", [True, False])
def test_data_flows_from_the_inputs_to_the_output_and_every_edge_goes_on(*, ops: bool) -> None:
    graph = flat_graph(transformer(3), ops=ops)
    reached = {place for place, box in enumerate(graph.boxes) if box.kind == "input"}
    for source, target in graph.edges:
        assert source < target
        if source in reached:
            reached.add(target)

    assert graph.boxes[-1].kind == "output"
    assert reached == set(range(len(graph.boxes)))


def test_frames_stand_inside_the_frames_of_the_modules_around() -> None:
    graph = flat_graph(transformer(1), ops=False)
    numbers = {frame.label: place for place, frame in enumerate(graph.frames)}

    assert graph.frames[numbers["model.layers.0.attention"]].parent == numbers["model.layers.0"]


def test_names_of_boxes_are_unique_and_safe_whatever_the_model_calls_its_parts() -> None:
    graph = flat_graph(hostile_names(), ops=False)
    names = [box.name for box in graph.boxes]

    assert len(set(names)) == len(names)
    assert all(name.isalnum() for name in names)


def test_small_models_have_small_graphs() -> None:
    assert flat_graph(empty_model(), ops=True).boxes == ()
    assert labels(flat_graph(one_op(), ops=False)) == ["x", "(root)", "output"]
