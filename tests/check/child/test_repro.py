from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.check.held import faulty, kept_model
from torchstone.check.child.repro import run_script, run_smaller, write_source
from torchstone.check.repro import smaller_program
from torchstone.numerics.tensor_files import read_tensors


class Embeds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 16)

    def forward(self, ids: Tensor) -> Tensor:
        return self.table(ids).view(2, 48)


def payload_of(path: Path, sizes: dict[int, int], tensors: str = "recorded", **more: Any) -> dict[str, Any]:
    kept = kept_model(Embeds(), torch.tensor([[1, 2, 3], [4, 5, 49]]), path)
    requests = kept.requests(faulty({"fault": "wrong", "op": "aten.embedding.default"}))
    (place,) = (place for place, step in enumerate(requests.program(0).steps) if "embedding" in step.op)
    program = requests.for_steps("x", 0, [place]).task.payload["program"]
    payload: dict[str, Any] = requests.for_steps(
        "x", 0, [place], smaller=smaller_program(program, sizes), sizes={str(size): to for size, to in sizes.items()},
        tensors=tensors, **more,
    ).task.payload  # fmt: skip
    return payload


def test_a_smaller_program_fails_as_the_large_one_did(tmp_path: Path) -> None:
    assert run_smaller(payload_of(tmp_path, {16: 1, 3: 2}))["outcome"] == "wrong"


def test_sizes_that_eager_refuses_are_not_judged(tmp_path: Path) -> None:
    assert run_smaller(payload_of(tmp_path, {50: 2}))["outcome"] == "not run"


def test_random_whole_numbers_stay_in_the_range_of_the_recorded_ones(tmp_path: Path) -> None:
    assert run_smaller(payload_of(tmp_path, {}, "random"))["outcome"] == "wrong"


def test_the_text_of_a_program_holds_small_values(tmp_path: Path) -> None:
    written = write_source(payload_of(tmp_path, {50: 6, 16: 1}, values_file=str(tmp_path / "unused.safetensors")))

    assert not written["needs_file"]
    assert "torch.ops.aten.embedding.default(" in written["source"]
    assert "torch.tensor([1, 2, 3, 4, 5, 49], dtype=torch.int64)" in written["source"]
    assert written["shapes"] == "int64[2, 3], float32[6, 1]"


def test_many_values_go_to_a_file_beside_the_script(tmp_path: Path) -> None:
    file = tmp_path / "repro.safetensors"

    written = write_source(payload_of(tmp_path, {}, values_file=str(file)))

    assert written["needs_file"]
    assert "read_tensors" in written["source"]
    assert {tuple(tensor.shape) for tensor in read_tensors(file).values()} == {(2, 3), (50, 16)}


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("raise SystemExit(0)", "passed"),
        ("print('outcome: wrong')\nraise SystemExit(1)", "wrong"),
        ("raise SystemExit(1)", "raised"),
        ("1 / 0", "raised"),
    ],
)
def test_a_script_is_judged_by_how_it_ends(tmp_path: Path, text: str, outcome: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(text)

    assert run_script({"script": str(script)})["outcome"] == outcome
