import pytest

from tests.report.traces import TraceBuilder, empty_model, hostile_names, one_op, spec, transformer, wide_tree
from torchstone.record.trace import Trace
from torchstone.record.unique import UniqueModule, subtree_shapes, unique_modules
from torchstone.record.value import Value

TRACES = [transformer(3), transformer(4, fails_in=2), empty_model(), one_op(), hostile_names(), wide_tree(60, 40)]


def unique_at(trace: Trace, path: str) -> UniqueModule:
    (found,) = (module for module in unique_modules(trace).modules if path in module.occurrences)
    return found


def two_layers(name: str, values: tuple[Value, Value]) -> Trace:
    """Two modules, layers.1 and layers.2, that differ in one attribute."""
    build = TraceBuilder()
    build.module("", "Net")
    build.module("layers", "torch.nn.ModuleList", parent=0, container=True)
    for place, value in enumerate(values, start=1):
        build.module(f"layers.{place}", "Layer", parent=1, attributes=((name, value),))
    return build.build()


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.provenance.model[:20])
def test_every_module_occurs_exactly_once(trace: Trace) -> None:
    occurrences = [path for module in unique_modules(trace).modules for path in module.occurrences]

    assert sorted(occurrences) == sorted(module.path for module in trace.modules)


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.provenance.model[:20])
def test_the_calls_add_up_to_those_of_the_trace(trace: Trace) -> None:
    assert sum(module.calls for module in unique_modules(trace).modules) == len(trace.module_calls)


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.provenance.model[:20])
def test_ids_are_distinct_and_parents_come_before_their_children(trace: Trace) -> None:
    found = unique_modules(trace).modules
    position = {module.id: number for number, module in enumerate(found)}

    assert len(position) == len(found)
    assert [module.parent for module in found if module.parent is None] == [None], "only the root has no parent"
    assert all(position[module.parent] < position[module.id] for module in found if module.parent is not None)


def test_an_id_has_the_number_and_the_name_of_the_first_occurrence() -> None:
    ids = [module.id for module in unique_modules(transformer(2)).modules]

    assert ids[:5] == ["mod_000_root", "mod_001_model", "mod_002_embed", "mod_003_layers", "mod_004_0"]


def test_a_repeated_layer_is_told_once_with_all_its_places() -> None:
    layer = unique_at(transformer(3), "model.layers.1")

    assert layer.module_path == "model.layers.0"
    assert layer.occurrences == ("model.layers.0", "model.layers.1", "model.layers.2")
    assert (layer.parent, layer.calls) == ("mod_003_layers", 3)


def test_shapes_and_parameters_are_those_of_the_first_occurrence() -> None:
    gate = unique_at(transformer(2, width=8, tokens=4), "model.layers.0.mlp.gate")

    assert (gate.input_shapes, gate.input_dtypes) == (((1, 4, 8),), ("float32",))
    assert (gate.output_shapes, gate.output_dtypes) == (((1, 4, 32),), ("float32",))
    assert (gate.parameters, gate.parameter_shapes) == (32 * 8, {"weight": (32, 8)})


@pytest.mark.parametrize(("tied", "tables"), [(True, 1), (False, 2)])
def test_the_root_counts_tied_parameters_once(tied: bool, tables: int) -> None:  # noqa: FBT001 - pytest's
    width = 8
    layer = 2 * width + 4 * width * width + 3 * 4 * width * width
    trace = transformer(2, width=width, tied=tied)

    assert unique_at(trace, "").parameters == tables * 1000 * width + 2 * layer + width


def test_a_module_that_was_never_called_has_no_shapes() -> None:
    trace = transformer(4, fails_in=2)
    never = unique_at(trace, "lm_head")

    assert (never.calls, never.input_shapes, never.output_shapes) == (0, (), ())


def test_nothing_was_checked_yet() -> None:
    assert {(module.status, module.outcome) for module in unique_modules(one_op()).modules} == {(None, None)}


def test_a_number_that_only_names_the_layer_does_not_make_it_different() -> None:
    build = TraceBuilder()
    root = build.module("", "Net")
    for place in range(2):
        build.module(f"h{place}", "Block", parent=root, attributes=(("width", 4 + place),))
        build.module(f"h{place}.{place}", "Inner", parent=len(build.modules) - 1, attributes=(("layer_idx", place),))
    shapes = subtree_shapes(build.build())

    assert shapes[2] == shapes[4], "layer_idx says where the module stands"
    assert shapes[1] != shapes[3], "width says what the module is"


@pytest.mark.parametrize(
    ("name", "values", "same"),
    [
        ("layer_idx", (1, 2), True),
        ("layer_idx", (5, 6), False),
        ("layer_idx", (1, None), False),
        ("padding_idx", (1, 2), False),
        ("heads", (1, 2), False),
        ("heads", (8, 8), True),
    ],
)
def test_only_the_number_of_the_layer_itself_is_left_out(name: str, values: tuple[Value, Value], same: bool) -> None:  # noqa: FBT001 - pytest's
    shapes = subtree_shapes(two_layers(name, values))

    assert (shapes[2] == shapes[3]) is same


def test_modules_called_with_other_shapes_are_not_the_same() -> None:
    build = TraceBuilder()
    root = build.module("", "Net")
    layers = [build.module(str(place), "torch.nn.ReLU", parent=root) for place in range(2)]
    for size, layer in zip((2, 3), layers, strict=True):
        given = build.tensor(spec(size), kind="input", name="x")
        build.enter(layer, [given])
        build.leave([build.op("aten.relu.default", [given], spec(size))])
    shapes = subtree_shapes(build.build())

    assert shapes[1] != shapes[2]
