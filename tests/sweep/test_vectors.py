import pytest
from msgspec.structs import replace

from tests.sweep.builders import call, mm, seen, tensor, vector
from torchstone.backends.recorded import NotReplayableError
from torchstone.record.config import Damage, TensorFacts
from torchstone.record.tensor import TensorSpec
from torchstone.record.value import Atom, Items, Opaque
from torchstone.record.vector import Validity
from torchstone.sweep.vectors import call_text, cluster_of, memories_of, payload_of, seed_of, vector_of


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


def test_a_call_is_shown_with_its_arguments_but_for_those_that_are_none() -> None:
    text = call_text(vector(call("aten.sum.dim_IntList", self_=tensor(2, 3), dim=1, dtype=None)))

    assert text == "self=float32[2, 3], dim=1"


def test_a_neighbour_says_what_was_changed() -> None:
    assert call_text(vector(mm(), change="size 3 -> 1")).endswith(" [size 3 -> 1]")


def test_a_vector_of_a_module_shows_its_parameters_and_long_ones_are_cut() -> None:
    module = replace(vector(), configuration=None, parameters={"shape": [1, 2], "text": "x" * 1000})

    assert call_text(module).startswith("shape=[1, 2], text=xxx")
    assert len(call_text(module)) == 300


def test_arguments_are_named_and_tensors_are_numbered_in_order() -> None:
    configuration = call(
        "aten.cat.default", tensors=Items(kind="list", items=(tensor(2), tensor(3))), dim=Atom(kind="float", text="inf")
    )

    payload = payload_of(vector(configuration))

    assert payload["steps"][0]["arguments"] == {
        "tensors": {"list": [{"tensor": "i0"}, {"tensor": "i1"}]},
        "dim": {"atom": {"kind": "float", "text": "inf"}},
    }
    assert [(one["name"], one["shape"]) for one in payload["inputs"]] == [("i0", [2]), ("i1", [3])]


def test_what_is_known_of_the_values_goes_with_its_tensor() -> None:
    fact = TensorFacts(tensor=1, lowest=0, highest=5, fewest_zeros=0.2, most_zeros=0.4, values=(1, 2))

    payload = payload_of(vector_of(seen(mm(), facts=(fact,))))

    assert payload["inputs"][0]["facts"] is None
    facts = payload["inputs"][1]["facts"]
    assert (facts["lowest"], facts["highest"], facts["values"]) == (0, 5, [1, 2])
    assert facts["zeros"] == pytest.approx(0.3)


def test_tensors_on_one_storage_have_one_number_of_memory() -> None:
    assert memories_of(call("aten.mul.Tensor", ((0, 2), (1, 3))), 5) == [0, 1, 0, 1, 4]


@pytest.mark.parametrize(
    "value",
    [
        TensorSpec(shape=(2,), dtype="float32", layout="sparse_coo"),
        TensorSpec(shape=(2,), dtype="float32", stride=(1,), subclass="torchao.Packed"),
        Opaque(class_name="torch.Generator"),
    ],
    ids=["sparse", "subclass", "object"],
)
def test_what_cannot_be_made_again_is_refused(value: TensorSpec | Opaque) -> None:
    with pytest.raises(NotReplayableError):
        payload_of(vector(configuration=call("aten.neg.default", self_=value), validity="valid"))


def test_a_vector_of_a_module_is_only_named() -> None:
    from msgspec.structs import replace

    assert payload_of(replace(vector(), configuration=None, id="abc", suite="s")) == {"vector": "abc", "suite": "s"}


def test_a_vector_keeps_its_seed() -> None:
    assert seed_of("k1-abcdef") == seed_of("k1-abcdef") != seed_of("k1-abcdee")
