from tests.report.traces import TraceBuilder, spec, transformer
from torchstone.record.trace import Trace
from torchstone.record.unique import module_folds


def folded_paths(trace: Trace) -> list[list[str]]:
    return [[trace.modules[member].path for member in fold.members] for fold in module_folds(trace)]


def list_of_layers(*sizes: int, names: tuple[str, ...] = (), class_name: str = "torch.nn.Linear") -> Trace:
    build = TraceBuilder()
    root = build.module("", "torch.nn.Sequential")
    for place, size in enumerate(sizes):
        name = names[place] if names else str(place)
        build.module(name, class_name, parent=root, weights=[("weight", spec(size, size))])
    return build.build()


def test_equal_layers_in_a_row_are_one_fold() -> None:
    assert folded_paths(transformer(3)) == [["model.layers.0", "model.layers.1", "model.layers.2"]]


def test_a_layer_of_another_shape_ends_the_run() -> None:
    assert folded_paths(list_of_layers(4, 4, 8, 4, 4)) == [["0", "1"], ["3", "4"]]


def test_projections_with_names_of_their_own_stay_apart() -> None:
    assert folded_paths(list_of_layers(4, 4, 4, names=("query", "key", "value"))) == []


def test_numbered_names_are_folded_within_their_family_only() -> None:
    names = ("conv1", "conv2", "norm1", "norm2")
    assert folded_paths(list_of_layers(4, 4, 4, 4, names=names)) == [["conv1", "conv2"], ["norm1", "norm2"]]


def test_layers_called_with_other_shapes_are_not_the_same() -> None:
    build = TraceBuilder()
    root = build.module("", "Net")
    layers = [build.module(str(place), "torch.nn.ReLU", parent=root) for place in range(2)]
    for size, layer in zip((2, 3), layers, strict=True):
        given = build.tensor(spec(size), kind="input", name="x")
        build.enter(layer, [given])
        build.leave([build.op("aten.relu.default", [given], spec(size))])

    assert folded_paths(build.build()) == []


def test_a_failed_layer_is_not_folded_with_those_that_ran() -> None:
    trace = transformer(4, fails_in=2)

    assert folded_paths(trace) == [["model.layers.0", "model.layers.1"]]
