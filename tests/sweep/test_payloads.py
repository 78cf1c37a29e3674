import pytest

from tests.sweep.builders import call, mm, seen, tensor, vector
from torchstone.backends.recorded import NotReplayableError
from torchstone.record.config import TensorFacts
from torchstone.record.tensor import TensorSpec
from torchstone.record.value import Atom, Items, Opaque
from torchstone.sweep.vectors import memories_of, payload_of, seed_of, vector_of


def test_arguments_are_named_and_tensors_are_numbered_in_order() -> None:
    configuration = call(
        "aten.cat.default", tensors=Items(kind="list", items=(tensor(2), tensor(3))), dim=Atom(kind="float", text="inf")
    )

    payload = payload_of(vector(configuration))

    assert payload["arguments"] == {
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
