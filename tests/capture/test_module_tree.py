import torch
from torch import nn

from tests.capture.nets import Feed, Numbered, Stack
from torchstone.capture import capture
from torchstone.capture.layouts import layout_of
from torchstone.capture.module_tree import AttributeRecords, ModuleTree


def test_modules_stand_in_pre_order_with_their_parents() -> None:
    tree = ModuleTree(Stack(Feed(), nn.ReLU()))

    assert tree.paths == ["", "layers", "layers.0", "layers.0.up", "layers.0.down", "layers.1"]
    assert tree.parents == [-1, 0, 1, 2, 2, 1]
    assert tree.span(tree.modules[2]) == range(2, 5)


def test_a_module_at_two_places_is_one_module() -> None:
    shared = nn.ReLU()

    trace = capture(Stack(shared, shared), torch.zeros(1))

    assert [module.path for module in trace.modules] == ["", "layers", "layers.0"]
    assert trace.modules[2].other_paths == ("layers.1",)
    assert trace.module_calls.modules == (0, 2, 2)


def test_tied_parameters_have_one_number() -> None:
    model = nn.Sequential(nn.Embedding(4, 2), nn.Linear(2, 4, bias=False))
    model[1].weight = model[0].weight

    trace = capture(model, torch.tensor([1]))

    first, second = (trace.modules[number].parameters[0].tensor for number in (1, 2))
    assert first == second


def test_buffers_say_whether_they_are_saved() -> None:
    model = nn.Module()
    model.register_buffer("saved", torch.zeros(1))
    model.register_buffer("scratch", torch.zeros(1), persistent=False)
    model.forward = lambda x: x

    trace = capture(model, torch.zeros(1))

    assert [(buffer.name, buffer.persistent) for buffer in trace.modules[0].buffers] == [
        ("saved", True),
        ("scratch", False),
    ]


def test_attributes_are_what_configures_a_module() -> None:
    convolution = nn.Conv2d(1, 2, 3, padding=1)
    attributes = dict(AttributeRecords().of(convolution, layout_of(convolution)))

    assert attributes["in_channels"] == 1
    assert "weight" not in attributes
    assert "training" not in attributes
    assert not any(name.startswith("_") for name in attributes)


def test_a_layer_has_a_number_when_all_below_it_agree() -> None:
    model = Stack(Numbered(0), Numbered(1))
    tree = ModuleTree(model)

    assert tree.layer_of(model.layers[1]) == 1
    assert tree.layer_of(model) is None


def test_sources_and_containers_are_told() -> None:
    trace = capture(Stack(Feed()), torch.zeros(1, 8))

    assert trace.sources["tests.capture.nets.Feed"].file.endswith("nets.py")
    assert [module.path for module in trace.modules if module.container] == ["layers"]


def test_a_module_is_sole_when_no_other_can_be_equal_to_it() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 3), nn.Linear(2, 2), nn.Sequential(nn.ReLU(), nn.Tanh()))
    tree = ModuleTree(model)

    alike = tree.look_counts()

    assert [path for path, module in zip(tree.paths, tree.modules, strict=True) if alike[id(module)] == 1] == [
        "", "1", "3", "3.0", "3.1",
    ]  # fmt: skip


def test_attributes_of_equal_modules_are_described_once() -> None:
    records = AttributeRecords()
    first, second, other = nn.Conv2d(1, 2, 3), nn.Conv2d(1, 2, 3), nn.Conv2d(1, 2, 3, padding=1)
    second.kernel_size, second.stride = first.kernel_size, first.stride
    second.padding, second.dilation, second.output_padding = first.padding, first.dilation, first.output_padding
    second._reversed_padding_repeated_twice = first._reversed_padding_repeated_twice

    assert records.of(first, layout_of(first)) is records.of(second, layout_of(second))
    assert records.of(first, layout_of(first)) != records.of(other, layout_of(other))
    first.stride = (2, 2)
    assert dict(records.of(first, layout_of(first))) != dict(records.of(second, layout_of(second)))
