import torch

from torchstone.backends.protocol import Availability, Unsupported, first_line, without_gradients


def test_a_refusal_names_the_ops_it_is_about() -> None:
    refusal = Unsupported("no rule for aten.mm.default", ops=("aten.mm.default",))

    assert str(refusal) == "no rule for aten.mm.default"
    assert refusal.ops == ("aten.mm.default",)


def test_a_usable_backend_needs_nothing() -> None:
    assert Availability(usable=True, version="torch 2.13.0").needs == ""


def test_autograd_is_off_inside_and_on_again_after() -> None:
    inside = without_gradients(torch.is_grad_enabled)

    assert inside() is False
    assert torch.is_grad_enabled()


def test_an_error_is_told_in_one_line_with_its_type() -> None:
    assert first_line(ValueError("\n  too long  \nmore")) == "ValueError: too long"
    assert first_line(KeyError()) == "KeyError"
