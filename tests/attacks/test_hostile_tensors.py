"""Tensors that cannot be compared: sparse, nested, of a thousand dimensions, or much larger than their file."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torchstone.errors import InputError  # noqa: E402 - torch is needed first
from torchstone.reference.port_files import read_port  # noqa: E402


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: torch.zeros(1).expand(1 << 40), r"repeats 4 bytes to 4,398,046,511,104, more than 100 times"),
        (lambda: torch.zeros(3, 1).expand(3, 1 << 31), r"repeats 12 bytes to 25,769,803,776"),
        (lambda: torch.eye(4).to_sparse(), r"is sparse_coo, and only dense tensors are compared"),
        (lambda: torch.eye(4).to_sparse_csr(), r"is sparse_csr, and only dense tensors are compared"),
        (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), r"is nested, and only dense tensors"),
        (lambda: torch.ones([1] * 100), r"has 100 dimensions, and at most 64 are compared"),
    ],
)
def test_a_tensor_that_cannot_be_compared_is_named(tmp_path: Path, make: Callable[[], object], said: str) -> None:
    torch.save({"outputs": make()}, tmp_path / "x.pt")

    with pytest.raises(InputError, match=rf"x\.pt: outputs {said}"):
        read_port(tmp_path / "x.pt")


def test_nor_is_one_of_a_thousand_dimensions_in_another_file(tmp_path: Path) -> None:
    header = json.dumps({"outputs": {"dtype": "F32", "shape": [1] * 1_000, "data_offsets": [0, 4]}}).encode()
    (tmp_path / "x.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))

    with pytest.raises(InputError, match="outputs has 1000 dimensions"):
        read_port(tmp_path / "x.safetensors")


@pytest.mark.parametrize("kind", ["|V0", "<U0", "|S0"])
def test_an_array_of_elements_without_bytes_is_refused(tmp_path: Path, kind: str) -> None:
    """Any number of them needs no data."""
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': ({1 << 40},)}}\n".encode()
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)

    with pytest.raises(InputError, match="have no bytes"):
        read_port(tmp_path / "x.npy")


def test_a_view_that_repeats_little_is_read(tmp_path: Path) -> None:
    torch.save({"outputs": torch.ones(2, 1).expand(2, 1_000)}, tmp_path / "x.pt")

    assert read_port(tmp_path / "x.pt").tensors["outputs"].shape == (2, 1_000)
