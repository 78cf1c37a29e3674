import pytest
import torch
from torch import Tensor

from torchstone.reference.judge import explain_scale
from torchstone.reference.layouts import explain

GOLDEN = torch.arange(120, dtype=torch.float32).reshape(2, 3, 4, 5).sin()
SQUARE = torch.arange(16, dtype=torch.float32).reshape(4, 4).sin()


def passes(golden: Tensor, candidate: Tensor) -> bool:
    return golden.shape == candidate.shape and torch.allclose(golden, candidate, atol=1e-5)


@pytest.mark.parametrize(
    ("golden", "candidate", "words"),
    [
        (GOLDEN, GOLDEN.permute(0, 2, 3, 1), "matches after: permute NHWC to NCHW"),
        (GOLDEN, GOLDEN.reshape(1, 2, 3, 4, 5), "matches after: squeeze leading dimensions"),
        (GOLDEN, GOLDEN.reshape(6, 20), "matches after: reshape to [2, 3, 4, 5]"),
        (
            GOLDEN,
            torch.nn.functional.pad(GOLDEN, (0, 27, 0, 28)),
            "matches after: drop tile padding",
        ),
        (SQUARE, SQUARE.t(), "matches after: transpose"),
        (GOLDEN, GOLDEN[:1], ""),
        (GOLDEN, GOLDEN.flip(0), ""),
        (GOLDEN, torch.empty(0), ""),
        (SQUARE[:1], SQUARE[:1].t() + 1, ""),
    ],
)
def test_what_would_make_it_right_is_found_and_nothing_is_guessed(
    golden: Tensor, candidate: Tensor, words: str
) -> None:
    assert explain(golden, candidate, passes) == words


@pytest.mark.parametrize(
    ("candidate", "words"),
    [
        (GOLDEN * -2, "it is about -2 times the golden tensor"),
        (GOLDEN + 7, "it is about the golden tensor plus 7"),
        (GOLDEN.exp(), ""),
        (torch.zeros_like(GOLDEN), ""),
    ],
)
def test_a_factor_or_an_offset_is_told(candidate: Tensor, words: str) -> None:
    assert explain_scale(GOLDEN, candidate, passes) == words
