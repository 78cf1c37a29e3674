import pytest
from msgspec.structs import replace

from tests.sweep.builders import call, mm, seen, tensor
from torchstone.record.config import Damage
from torchstone.record.value import Opaque
from torchstone.record.vector import Validity
from torchstone.sweep.vectors import cluster_of, is_contiguous, vector_of


def test_a_vector_is_named_after_its_configuration() -> None:
    found = vector_of(seen(mm(), calls=7, model="bert"))

    assert found.id == mm().key
    assert (found.module, found.suite, found.calls, found.models) == ("aten.mm.default", "model_traced", 7, ("bert",))
    assert found.validity is Validity.VALID


def test_a_call_that_cannot_be_made_again_is_not_valid_and_says_why() -> None:
    found = vector_of(seen(call("aten.rand.default", generator=Opaque(class_name="torch.Generator"))))

    assert found.validity is Validity.INVALID
    assert "Generator" in found.reason


def test_damage_that_was_not_repaired_makes_a_vector_invalid() -> None:
    broken = replace(seen(mm()), damage=(Damage(where="arg0", kind="cut off", text="..."),))
    repaired = replace(seen(mm()), damage=(Damage(where="arg0", kind="cut off", text="...", repaired=True),))

    assert vector_of(broken).reason == "arg0 could not be read: cut off"
    assert vector_of(repaired).validity is Validity.VALID


def test_a_cluster_does_not_care_about_sizes_but_about_types_ranks_and_strides() -> None:
    clusters = [
        cluster_of(configuration)
        for configuration in (
            mm(2, 3, 4),
            mm(8, 16, 32),
            call("aten.mm.default", self_=tensor(2, 3, dtype="bfloat16"), mat2=tensor(3, 4)),
            call("aten.mm.default", self_=tensor(2, 3, stride=(1, 2)), mat2=tensor(3, 4)),
            call("aten.mm.default", self_=tensor(2, 3, stride=(0, 1)), mat2=tensor(3, 4)),
        )
    ]

    assert clusters[0] == clusters[1]
    assert len(set(clusters)) == 4


@pytest.mark.parametrize(
    ("shape", "stride", "expected"),
    [((2, 3), (3, 1), True), ((2, 1), (1, 77), True), ((2, 3), (1, 2), False), ((), (), True), ((0, 3), (3, 1), True)],
)
def test_contiguous_means_row_by_row_without_gaps(
    shape: tuple[int, ...], stride: tuple[int, ...], *, expected: bool
) -> None:
    assert is_contiguous(shape, stride) is expected
