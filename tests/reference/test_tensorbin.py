"""Files that ttnn 0.81.1 wrote (write_tensorbins.py) are read exactly as ttnn.to_torch reads them."""

import random
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from torchstone.errors import UnreadableFileError
from torchstone.reference.port_files import read_candidate, read_port
from torchstone.reference.tensorbin import read_tensorbin

FOLDER = Path(__file__).parent / "tensorbins"
EXPECTED = dict(np.load(FOLDER / "expected.npz"))
KEPT_AS = {
    "bfloat16_tile": "bfloat16", "bfloat16_rows": "bfloat16", "bfloat16_sharded": "bfloat16", "float32_tile": "float32",
    "float32_rows": "float32", "bfloat8_b": "bfloat8_b", "bfloat8_b_extreme": "bfloat8_b",
    "bfloat8_b_small_tile": "bfloat8_b", "bfloat4_b": "bfloat4_b", "bfloat4_b_extreme": "bfloat4_b",
    "int32_tile": "int32", "uint8_rows": "uint8",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_file_of_ttnn_is_read_exactly(name: str) -> None:
    tensor, kept_as = read_tensorbin(FOLDER / f"{name}.tensorbin")

    assert kept_as == KEPT_AS[name]
    assert tuple(tensor.shape) == EXPECTED[name].shape
    assert np.array_equal(tensor.to(torch.float32).numpy(), EXPECTED[name], equal_nan=True)


def test_the_file_name_is_the_name_of_the_tensor() -> None:
    found = read_port(FOLDER / "bfloat8_b.tensorbin")

    assert list(found.tensors) == ["bfloat8_b"]
    assert found.tensors["bfloat8_b"].dtype == torch.float32  # holds block floats exactly
    assert found.kept_as == {"bfloat8_b": "bfloat8_b"}


@pytest.mark.parametrize("kept", [0, 7, 8, 100, 384, -1])
def test_a_file_that_is_cut_off_is_one_sentence_with_the_way_out(kept: int, tmp_path: Path) -> None:
    path = tmp_path / "cut.tensorbin"
    path.write_bytes((FOLDER / "bfloat8_b.tensorbin").read_bytes()[:kept])

    with pytest.raises(UnreadableFileError, match=r"cut\.tensorbin cannot be read as \.tensorbin .*ttnn\.to_torch"):
        read_candidate(path)


def test_damage_anywhere_in_the_header_never_crashes_the_reader(tmp_path: Path) -> None:
    content = (FOLDER / "bfloat16_tile.tensorbin").read_bytes()
    rng = random.Random(0)  # noqa: S311 - test data
    path = tmp_path / "a.tensorbin"
    refused = 0
    for _ in range(400):
        damaged = bytearray(content)
        for _ in range(rng.randrange(1, 4)):
            damaged[rng.randrange(384)] = rng.randrange(256)
        path.write_bytes(damaged)
        try:
            read_candidate(path)
        except UnreadableFileError:
            refused += 1
    assert refused > 100  # the other bytes are not read


def test_another_data_type_is_named(tmp_path: Path) -> None:
    content = bytearray((FOLDER / "float32_tile.tensorbin").read_bytes())
    place = next(at for at in range(8, 384) if content[at : at + 2] == b"\x01\x02")  # float32, tiles
    content[place] = 77
    (tmp_path / "new.tensorbin").write_bytes(content)

    with pytest.raises(UnreadableFileError, match="data type 77 is unknown"):
        read_candidate(tmp_path / "new.tensorbin")


def test_a_header_that_claims_to_be_huge_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.tensorbin").write_bytes(struct.pack("<Q", 1 << 60) + b"\0" * 64)

    with pytest.raises(UnreadableFileError, match="does not begin with a header"):
        read_candidate(tmp_path / "a.tensorbin")
