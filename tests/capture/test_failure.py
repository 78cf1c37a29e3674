import pytest
import torch
from torch import Tensor, nn

from torchstone.capture import capture
from torchstone.capture.run import failure_of


def test_the_models_own_line_is_named() -> None:
    with pytest.raises(ValueError, match="first") as caught:
        raise_deep()

    failure = failure_of(caught.value, module="layers.3", op="aten.mm.default", arguments="x")

    assert failure.error == "ValueError: first line"
    assert "test_failure.py" in failure.location
    assert failure.location.endswith("in raise_deep")


def raise_deep() -> None:
    msg = "first line\nsecond line"
    raise ValueError(msg)


def test_an_error_without_words_or_frames_is_described_all_the_same() -> None:
    failure = failure_of(RuntimeError(), module="", op="", arguments="")

    assert (failure.error, failure.location) == ("RuntimeError: no message", "")


class _SilentError(Exception):
    def __str__(self) -> str:
        return self.missing  # type: ignore[attr-defined]


class _Raises(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise _SilentError(x)


def test_an_error_whose_text_cannot_be_made_is_named_by_its_class() -> None:
    trace = capture(nn.Sequential(nn.ReLU(), _Raises()), torch.ones(2))

    assert trace.failure is not None
    assert trace.failure.module == "1"
    assert trace.failure.error == "_SilentError: its text cannot be shown"
