import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from torchstone.numerics.tensor_files import TensorFileError, read_tensors, write_tensors

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.float8_e4m3fnuz, torch.float8_e8m0fnu, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8,
    torch.uint16, torch.uint32, torch.uint64, torch.bool, torch.complex64, torch.complex128,
]  # fmt: skip


def same(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Equal bit for bit, in values, element type and layout."""
    left, right = (tensor.resolve_conj().contiguous().reshape(-1).view(torch.uint8) for tensor in (one, two))
    return one.dtype == two.dtype and one.stride() == two.stride() and torch.equal(left, right)


def file_with(header: object) -> bytes:
    """A file with this header and one float."""
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(4)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_element_type_comes_back_bit_for_bit(dtype: torch.dtype, tmp_path: Path) -> None:
    tensor = torch.randn(3, 5).to(torch.complex128).real.abs().to(dtype) if dtype != torch.bool else torch.eye(3) > 0

    write_tensors(tmp_path / "a.safetensors", {"x": tensor})

    assert same(read_tensors(tmp_path / "a.safetensors")["x"], tensor)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.empty(0, 3),
        torch.tensor(2.5),
        torch.randn(4, 6).t(),
        torch.randn(1, 4)[:, :1],  # contiguous, with a stride of 4 where nothing is to stride over
        torch.randn(4, 6)[:, ::2],
        torch.randn(1, 6).expand(4, 6),
        torch.arange(10).as_strided((4, 3), (2, 1)),  # overlapping windows
        torch.randn(1, 3, 4, 4).to(memory_format=torch.channels_last),
        torch.randn(2, 3).to(torch.float8_e5m2).t(),
        torch.randn(2, 3, dtype=torch.complex64).conj(),
        torch.nn.Parameter(torch.ones(2)),
        torch.tensor([float("nan"), float("inf"), -0.0]),
    ],
    ids=lambda tensor: f"{tuple(tensor.shape)}-{tensor.stride()}-{str(tensor.dtype)[6:]}",
)
def test_layouts_and_odd_values_come_back(tensor: torch.Tensor, tmp_path: Path) -> None:
    write_tensors(tmp_path / "a.safetensors", {"x": tensor})

    found = read_tensors(tmp_path / "a.safetensors")["x"]
    assert same(found.detach(), tensor.detach())
    assert found.requires_grad == tensor.requires_grad


@given(
    st.dictionaries(
        st.text(min_size=1).filter(lambda name: name != "__metadata__"),
        st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(0, 3), max_size=3)),
        max_size=5,
    )
)
def test_any_names_and_shapes_come_back(tmp_path_factory: pytest.TempPathFactory, what: dict) -> None:
    path = tmp_path_factory.mktemp("files") / "a.safetensors"
    tensors = {name: torch.ones(shape, dtype=torch.float32).to(dtype) for name, (dtype, shape) in what.items()}

    write_tensors(path, tensors)
    back = read_tensors(path)

    assert set(back) == set(tensors)
    assert all(same(back[name], tensor) for name, tensor in tensors.items())


def test_the_files_are_those_of_the_safetensors_library(tmp_path: Path) -> None:
    tensors = {"a": torch.randn(2, 3), "b": torch.arange(5), "c": torch.ones(3, dtype=torch.bfloat16)}

    write_tensors(tmp_path / "ours", tensors)
    save_file(tensors, tmp_path / "theirs")

    theirs = load_file(tmp_path / "ours")
    ours = read_tensors(tmp_path / "theirs")
    assert all(same(theirs[name], tensor) and same(ours[name], tensor) for name, tensor in tensors.items())


def test_a_tensor_that_lies_at_an_odd_place_is_read_all_the_same(tmp_path: Path) -> None:
    header = {"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}
    text = json.dumps(header).encode() + b" "
    text += b" " * (len(text) % 2 == 0)
    (tmp_path / "odd").write_bytes(len(text).to_bytes(8, "little") + text + torch.ones(1).numpy().tobytes())

    assert float(read_tensors(tmp_path / "odd")["x"]) == 1.0


def test_values_can_be_changed_without_changing_the_file(tmp_path: Path) -> None:
    write_tensors(tmp_path / "a", {"x": torch.zeros(3)})

    read_tensors(tmp_path / "a")["x"].add_(1)

    assert not read_tensors(tmp_path / "a")["x"].any()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"abc",
        (1 << 40).to_bytes(8, "little"),
        (2).to_bytes(8, "little") + b"[]",
        (4).to_bytes(8, "little") + b"nope",
        file_with({"x": {"dtype": "F32", "shape": [9], "data_offsets": [0, 36]}}),  # longer than the file
        file_with({"x": {"dtype": "F99", "shape": [1], "data_offsets": [0, 4]}}),
        file_with({"x": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}}),
        file_with({"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}),
        file_with({"x": {"dtype": "F32", "shape": [1]}}),
    ],
)
def test_a_damaged_file_is_told_in_one_sentence(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "damaged").write_bytes(content)

    with pytest.raises(TensorFileError, match="damaged"):
        read_tensors(tmp_path / "damaged")


def test_a_missing_file_is_told() -> None:
    with pytest.raises(TensorFileError, match="cannot read nowhere"):
        read_tensors(Path("nowhere"))


@pytest.mark.parametrize("tensor", [torch.eye(2).to_sparse(), torch.empty(2, device="meta")])
def test_what_has_no_plain_values_is_refused_and_leaves_no_file(tensor: torch.Tensor, tmp_path: Path) -> None:
    with pytest.raises(TensorFileError, match="tensor x cannot be written"):
        write_tensors(tmp_path / "a", {"x": tensor})

    assert list(tmp_path.iterdir()) == []
