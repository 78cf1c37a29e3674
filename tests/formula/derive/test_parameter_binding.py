import torch
from torch import nn

from tests.formula.derive.benches import observed, sample
from torchstone.formula.derive.parameter_binding import CallParameters


class Configured(nn.Module):
    def __init__(self, intermediate_size: int) -> None:
        super().__init__()
        self.intermediate_size = intermediate_size
        self.inner = nn.Linear(8, intermediate_size)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        made: torch.Tensor = self.inner(x)
        return made if mask is None else made + mask


class Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight


def reading(module: nn.Module, *inputs: torch.Tensor, **known: int) -> CallParameters:
    return observed([sample(module, *inputs, known=known)])[0].parameters


def test_a_configured_class_has_batch_length_and_what_it_says_itself() -> None:
    found = reading(Configured(24), torch.zeros(2, 5, 8), hidden_size=8, intermediate_size=999)

    assert found.sizes == {"B": 2, "S": 5, "hidden_size": 8, "intermediate_size": 24}


class WithPictures(nn.Module):
    """Patches of all pictures come first, as in several models of pictures and text."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.patches = nn.Embedding(11, 8), nn.Linear(12, 8)

    def forward(self, pixel_values: torch.Tensor, input_ids: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.words(input_ids) + self.patches(pixel_values).sum(dim=0)
        return made


def test_batch_and_length_are_those_of_the_tokens_where_there_are_pictures_too() -> None:
    found = reading(WithPictures(), torch.zeros(16, 12), torch.zeros((3, 5), dtype=torch.int64))

    assert found.sizes == {"B": 3, "S": 5}


class Frames(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Conv3d(3, 4, 2)

    def forward(self, pixel_values_videos: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.mix(pixel_values_videos.transpose(1, 2))
        return made


def test_a_video_has_a_batch() -> None:
    found = reading(Frames(), torch.zeros(2, 5, 3, 8, 8))

    assert found.sizes == {"B": 2, "num_frames": 5, "num_channels": 3, "image_size": 8}


def test_rows_of_a_matrix_are_tokens() -> None:
    assert reading(Configured(24), torch.zeros(10, 8)).sizes["tokens"] == 10


def test_arguments_and_parts_are_facts() -> None:
    found = reading(Configured(24), torch.zeros(2, 5, 8), torch.zeros(24))

    assert found.facts["has_mask"]
    assert found.facts["has_Linear"]
    assert found.value("has_nothing_of_the_kind") == 0


def test_a_class_with_one_row_of_weights_is_read_as_a_norm() -> None:
    found = reading(Norm(8), torch.zeros(2, 5, 8))

    assert found.sizes == {"batch_elements": 10, "hidden_size": 8}
    assert found.flat == (2, 5)


def test_a_class_without_weights_is_read_by_its_elements() -> None:
    assert reading(nn.SiLU(), torch.zeros(2, 5, 8)).sizes == {"elements": 80}


def test_repeated_tokens_of_an_embedding_are_told_apart() -> None:
    with torch.device("meta"):
        found = reading(nn.Embedding(10, 8), torch.zeros(5, dtype=torch.int64).expand(3, 5))

    assert (found.sizes["tokens"], found.sizes["distinct_tokens"]) == (15, 5)


def test_the_element_type_is_that_of_the_weights() -> None:
    assert reading(nn.Linear(8, 4).to(torch.bfloat16), torch.zeros(2, 8, dtype=torch.bfloat16)).dtype_bytes == 2
    assert reading(nn.Linear(8, 4), torch.zeros(2, 8)).value("dtype_bytes") == 4


def test_a_convolution_names_both_sides() -> None:
    found = reading(nn.Conv2d(2, 6, (3, 5), stride=2, padding=(0, 1)), torch.zeros(4, 2, 9, 11))

    assert found.sizes["kernel_size_height"] == 3
    assert found.sizes["padding_width"] == 1
    assert found.sizes["height"] == 9
