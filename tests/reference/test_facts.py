from torch import nn

from torchstone.reference.run_model import module_paths, parameter_bytes, parameter_count, state_shapes


def tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False), nn.BatchNorm1d(2))
    model[1].weight = model[0].weight
    return model


def test_a_tied_parameter_counts_once_and_is_listed_at_each_path() -> None:
    assert parameter_count(tied()) == 4 + 2 + 2
    assert parameter_bytes(tied().half()) == 2 * (4 + 2 + 2)
    assert state_shapes(tied())["1.weight"] == ("2x2", "float32")


def test_buffers_are_listed_and_a_number_has_a_shape_of_its_own() -> None:
    shapes = state_shapes(tied())

    assert shapes["2.running_mean"] == ("2", "float32")
    assert shapes["2.num_batches_tracked"] == ("scalar", "int64")


def test_every_module_is_listed_with_the_root() -> None:
    assert module_paths(tied()) == ("", "0", "1", "2")
