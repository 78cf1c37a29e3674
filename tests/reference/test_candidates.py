import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.reference.nets import Answer
from torchstone.errors import InputError, UnreadableFileError
from torchstone.reference.port_files import candidate_tensors, read_candidate, read_port


def test_the_three_kinds_of_files_give_the_same_tensors(tmp_path: Path) -> None:
    tensor = torch.arange(6).reshape(2, 3).float()
    save_file({"outputs/logits": tensor}, tmp_path / "a.safetensors")
    arrays: dict[str, Any] = {"outputs/logits": tensor.numpy()}
    np.savez(tmp_path / "a.npz", **arrays)
    torch.save({"outputs": {"logits": tensor}}, tmp_path / "a.pt")

    for name in ("a.safetensors", "a.npz", "a.pt"):
        found = read_candidate(tmp_path / name)
        assert list(found) == ["outputs/logits"]
        assert torch.equal(found["outputs/logits"], tensor)


def test_a_lonely_tensor_is_the_output() -> None:
    assert list(candidate_tensors(torch.ones(2))) == ["outputs"]
    assert list(candidate_tensors(np.ones(2))) == ["outputs"]


def test_what_a_port_returned_is_taken_apart() -> None:
    found = candidate_tensors(Answer(logits=torch.ones(2), states=[torch.ones(1)]))

    assert list(found) == ["logits", "states/0"]


def test_arrays_are_found_wherever_a_port_puts_them() -> None:
    found = candidate_tensors({"outputs": {"logits": np.ones(2), "states": [np.zeros(1), torch.ones(3)]}})

    assert list(found) == ["outputs/logits", "outputs/states/0", "outputs/states/1"]


def test_bfloat16_that_numpy_wrote_as_two_bytes_is_read_as_bfloat16(tmp_path: Path) -> None:
    tensor = torch.linspace(-2, 2, 6).reshape(2, 3).to(torch.bfloat16)
    np.savez(tmp_path / "a.npz", logits=tensor.view(torch.uint16).numpy().view("V2"))

    found = read_candidate(tmp_path / "a.npz")["logits"]

    assert found.dtype == torch.bfloat16
    assert torch.equal(found, tensor)


@pytest.mark.parametrize("array", [np.array(["a"]), np.ones(2, dtype=np.longdouble), np.zeros(2, dtype="V3")])
def test_elements_that_torch_does_not_know_are_named(array: "np.ndarray[Any, Any]", tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", logits=array)

    with pytest.raises(InputError, match="logits has elements of type"):
        read_candidate(tmp_path / "a.npz")


def test_a_torch_file_with_more_than_tensors_is_refused_without_advice_to_run_it(tmp_path: Path) -> None:
    torch.save({"x": Hostile()}, tmp_path / "more.pt")

    with pytest.raises(UnreadableFileError, match=r"contains more than tensors.*torch\.save") as caught:
        read_candidate(tmp_path / "more.pt")
    assert "weights_only" not in str(caught.value)


def test_an_unknown_kind_of_file_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,2")
    with pytest.raises(InputError, match=r"\.safetensors, \.npz, \.npy, \.pt, \.pth, \.tensorbin"):
        read_candidate(tmp_path / "a.csv")
    with pytest.raises(UnreadableFileError, match="port: no such file"):
        read_candidate(tmp_path / "port")


def test_a_file_that_claims_more_elements_than_memory_has_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "huge.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (1 << 50,)})

    with pytest.raises(UnreadableFileError, match=r"huge\.npy cannot be read"):
        read_candidate(tmp_path / "huge.npy")


def test_an_array_that_claims_more_data_than_its_file_has_allocates_nothing(tmp_path: Path) -> None:
    short = io.BytesIO()
    np.lib.format.write_array_header_1_0(short, {"descr": "<f4", "fortran_order": False, "shape": (1 << 28, 3)})
    (tmp_path / "short.npy").write_bytes(short.getvalue() + bytes(24))
    with zipfile.ZipFile(tmp_path / "short.npz", "w") as archive:
        archive.writestr("a.npy", short.getvalue() + bytes(24))

    for name in ("short.npy", "short.npz"):
        with pytest.raises(UnreadableFileError, match=r"needs 3,221,225,472 bytes, and it has 24"):
            read_candidate(tmp_path / name)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (2, 3)])
def test_arrays_of_every_version_and_size_are_read(
    tmp_path: Path, version: tuple[int, int], shape: tuple[int, ...]
) -> None:
    with (tmp_path / "one.npy").open("wb") as file:
        np.lib.format.write_array(file, np.ones(shape), version=version)

    assert torch.equal(read_candidate(tmp_path / "one.npy")["one"], torch.ones(shape, dtype=torch.float64))


@pytest.mark.parametrize("name", ["a.safetensors", "a.npz", "a.pt"])
def test_a_damaged_or_missing_file_is_named(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    with pytest.raises(UnreadableFileError, match=name):
        read_candidate(path)
    for content in (b"not a file of this kind", b"hello", b""):
        path.write_bytes(content)
        with pytest.raises(UnreadableFileError, match=f"{name} .*save"):
            read_candidate(path)


class Hostile:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (print, ("this must never run",))


def test_no_pickle_from_outside_is_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({"x": Hostile()}, tmp_path / "hostile.pt")
    (tmp_path / "plain.pt").write_bytes(pickle.dumps(Hostile()))
    np.savez(tmp_path / "hostile.npz", x=np.array([Hostile()], dtype=object))

    for name in ("hostile.pt", "plain.pt", "hostile.npz"):
        with pytest.raises(UnreadableFileError):
            read_candidate(tmp_path / name)
    assert capsys.readouterr().out == ""


def test_a_folder_is_read_by_file_names_and_in_their_natural_order(tmp_path: Path) -> None:
    (tmp_path / "modules" / "layer.2").mkdir(parents=True)
    (tmp_path / "modules" / "layer.10").mkdir()
    np.save(tmp_path / "modules" / "layer.10" / "outputs.npy", np.ones(2))
    np.save(tmp_path / "modules" / "layer.2" / "outputs.npy", np.zeros(2))
    torch.save(torch.ones(3), tmp_path / "logits.pt")
    save_file({"outputs/a": torch.ones(1), "outputs/b": torch.ones(1)}, tmp_path / "more.safetensors")
    save_file({"head.weight": torch.ones(1)}, tmp_path / "weights.safetensors")
    (tmp_path / "setup.json").write_text("{}")
    (tmp_path / "README.md").write_text("mine")

    found = read_port(tmp_path)

    assert list(found.tensors) == [
        "logits", "modules/layer.2/outputs", "modules/layer.10/outputs", "outputs/a", "outputs/b",
    ]  # fmt: skip
    assert list(found.weights) == ["head.weight"]
    assert found.setup == tmp_path / "setup.json"
    assert found.notes == (f"not tensor files, and not read: 1 file in {tmp_path}: README.md",)


def test_a_folder_with_one_name_twice_or_without_tensors_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFileError, match="has no file with tensors; save them as"):
        read_port(tmp_path)
    np.save(tmp_path / "logits.npy", np.ones(2))
    torch.save({"logits": torch.ones(2)}, tmp_path / "other.pt")
    with pytest.raises(InputError, match=r"logits is in .*logits\.npy and in .*other\.pt; keep one of them"):
        read_port(tmp_path)


def test_one_array_is_named_after_its_file_whatever_its_byte_order(tmp_path: Path) -> None:
    np.save(tmp_path / "logits.npy", np.arange(3, dtype=">f4"))

    assert torch.equal(read_candidate(tmp_path / "logits.npy")["logits"], torch.arange(3.0))


def test_numbered_names_of_a_file_without_order_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    save_file({f"t{number}": torch.ones(1) for number in (10, 9, 2)}, tmp_path / "a.safetensors")

    assert list(read_candidate(tmp_path / "a.safetensors")) == ["t2", "t9", "t10"]


def test_an_array_of_objects_is_not_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([Hostile()], dtype=object), allow_pickle=True)

    with pytest.raises(UnreadableFileError, match=r"a\.npy cannot be read as \.npy"):
        read_candidate(tmp_path / "a.npy")


def test_the_setup_of_a_file_stands_beside_it(tmp_path: Path) -> None:
    np.save(tmp_path / "port.npy", np.ones(1))
    assert read_port(tmp_path / "port.npy").setup is None
    (tmp_path / "setup.json").write_text("{}")
    assert read_port(tmp_path / "port.npy").setup == tmp_path / "setup.json"
    (tmp_path / "port.setup.json").write_text("{}")
    assert read_port(tmp_path / "port.npy").setup == tmp_path / "port.setup.json"
