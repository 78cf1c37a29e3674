import torch

from torchstone.backends.protocol import first_line, without_gradients


def test_autograd_is_off_inside_and_on_again_after() -> None:
    inside = without_gradients(torch.is_grad_enabled)

    assert inside() is False
    assert torch.is_grad_enabled()


def test_an_error_is_told_in_one_line_with_its_type() -> None:
    assert first_line(ValueError("\n  too long  \nmore")) == "ValueError: too long"
    assert first_line(KeyError()) == "KeyError"
