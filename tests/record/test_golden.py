import pytest

from torchstone.record import codec
from torchstone.record.reference import GoldenData, GoldenTensor, Group, NotKept, Part, Rebuild, Role, Saved, Weights

STRUCTURE = Group(
    kind="dict",
    parts=(
        ("a", Saved(name="outputs/a")),
        ("b", Group(kind="list", parts=(("0", 1), ("1", 2.5), ("2", None), ("3", True), ("4", "word")))),
        ("c", NotKept(class_name="dtype", text="torch.float16")),
    ),
)


@pytest.mark.parametrize("outputs", [STRUCTURE, Saved(name="outputs"), None, 3])
def test_golden_data_survives_its_file(outputs: Part) -> None:
    data = GoldenData(
        model="net",
        rebuild=Rebuild(model="net.py::f", options={"seed": 0, "dtype": None}),
        seed=0,
        dtypes=("float32",),
        versions={"torch": "2"},
        threads=2,
        created="",
        inputs=None,
        outputs=outputs,
        tensors=tuple(
            GoldenTensor(name=name, role=Role.OUTPUT, shape=(2, 0), dtype="float32")
            for name in ("outputs", "outputs/a")
        ),
        weights=Weights(sha256="00", tensors=1, size_bytes=4),
    )

    assert codec.decode(codec.encode(data), GoldenData, origin="test") == data
