import pytest
import torch

from torchstone.capture.ops import reads_values, schema_of

aten = torch.ops.aten


def test_a_schema_tells_names_defaults_and_writes() -> None:
    schema = schema_of(aten.add_.Tensor)

    assert schema.argument_names == ("self", "other", "alpha")
    assert schema.defaults == {"alpha": 1}
    assert schema.written == ("self",)
    assert not schema.renews_its_input


def test_changes_of_shape_in_place_are_told() -> None:
    assert schema_of(aten.squeeze_.dim).renews_its_input
    assert not schema_of(aten.relu_.default).renews_its_input


@pytest.mark.parametrize(
    ("op", "args", "reads"),
    [
        (aten._local_scalar_dense.default, (torch.zeros(1),), True),
        (aten.nonzero.default, (torch.zeros(1),), True),
        (aten.mm.default, (), False),
        (aten.index.Tensor, (torch.zeros(3), [torch.tensor([0])]), False),
        (aten.index.Tensor, (torch.zeros(3), [None, torch.tensor([True])]), True),
    ],
)
def test_reading_values_back_is_told(op: torch._ops.OpOverload, args: tuple[object, ...], reads: bool) -> None:  # noqa: FBT001
    assert reads_values(op, schema_of(op), args) is reads


def test_a_higher_order_op_has_a_name_and_no_schema() -> None:
    schema = schema_of(torch.ops.higher_order.cond)

    assert schema.name == "higher_order.cond"
    assert schema.argument_names == ()
