from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.check.held import faulty, kept_model
from torchstone.check.child.repro import part_source, run_script


class Embeds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 16)

    def forward(self, ids: Tensor) -> Tensor:
        return self.table(ids).view(2, 48)


def source_of(path: Path, tensors: str) -> dict[str, Any]:
    kept = kept_model(Embeds(), torch.tensor([[1, 2, 3], [4, 5, 49]]), path)
    requests = kept.requests(faulty({"fault": "wrong", "op": "aten.embedding.default"}))
    request = requests.for_graph(
        kept.plan.units["mod_000_root"], "x", "entry", kind="ops", chosen_steps=[0], tensors=tensors,
        found={"outcome": "wrong", "reason": ""},
    )  # fmt: skip
    return part_source(request.task.payload)


def test_the_smallest_sizes_that_fail_are_written(tmp_path: Path) -> None:
    written = source_of(tmp_path, "smallest")

    assert "torch.ops.aten.embedding.default(" in written["source"]
    assert written["nodes"] == 1
    assert written["shapes"] == "int64[1, 1], float32[50, 1]"  # random indices need all rows


def test_random_whole_numbers_stay_in_the_range_of_the_recorded_ones(tmp_path: Path) -> None:
    assert "whole=(1, 50)" in source_of(tmp_path, "random")["source"]


def test_recorded_values_are_in_the_script(tmp_path: Path) -> None:
    written = source_of(tmp_path, "recorded")

    assert "torch.tensor([1, 2, 3, 4, 5, 49], dtype=torch.int64)" in written["source"]
    namespace: dict[str, Any] = {}
    exec(written["source"], namespace)  # noqa: S102 - the text under test
    assert [tuple(tensor.shape) for tensor in namespace["Part"]().buffers()] == [(50, 16)]


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("print('outcome: passed')", "passed"),
        ("print('outcome: wrong')\nraise SystemExit(1)", "wrong"),
        ("raise SystemExit(2)", "not run"),
        ("1 / 0", "not run"),
        ("import os\nprint('outcome: wrong' if not os.listdir() else '')\nraise SystemExit(1)", "wrong"),
    ],
)
def test_a_script_is_judged_by_how_it_ends_in_an_empty_folder(tmp_path: Path, text: str, outcome: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(text)

    assert run_script({"script": str(script), "deadline_s": 60})["outcome"] == outcome


def test_a_script_finds_modules_of_a_relative_folder_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "needed_by_it.py").write_text("OUTCOME = 'wrong'\n")
    (tmp_path / "script.py").write_text(
        "import needed_by_it\nprint('outcome:', needed_by_it.OUTCOME)\nraise SystemExit(1)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "src")

    assert run_script({"script": str(tmp_path / "script.py"), "deadline_s": 60})["outcome"] == "wrong"
