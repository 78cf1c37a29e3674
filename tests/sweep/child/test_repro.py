import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.sweep.builders import mm, tensor, vector
from torchstone.record.config import Configuration
from torchstone.sweep.child.repro import source
from torchstone.sweep.vectors import payload_of


def script(configuration: Configuration, backend: str, **more: Any) -> str:
    return source({**payload_of(vector(configuration)), "backend": backend, "title": "a title", **more})


def test_a_script_runs_on_its_own_and_passes_where_the_backend_is_right(tmp_path: Path) -> None:
    path = tmp_path / "repro.py"
    path.write_text(script(mm(), "eager"), encoding="utf-8")

    done = subprocess.run([sys.executable, "-I", str(path)], capture_output=True, text=True, check=False, timeout=600)

    assert (done.returncode, done.stdout) == (0, "output 0: ok\n"), done.stderr
    assert "torchstone" not in path.read_text(encoding="utf-8")


def test_a_backend_that_torch_itself_has_needs_torch_alone() -> None:
    text = script(mm(), "inductor")

    assert 'torch.compile(module, backend="inductor"' in text
    assert "Needs torch and a C++ compiler." in text


@pytest.mark.parametrize(("backend", "options"), [("faulty", {"fault": "wrong"}), ("inductor", {"dynamic": True})])
def test_any_other_backend_is_opened_by_torchstone_and_the_script_says_so(
    backend: str, options: dict[str, Any]
) -> None:
    text = script(mm(), backend, options=options)

    assert f"open_backend({backend!r}, {options!r})" in text
    assert f"Needs torch and torchstone with the backend {backend}." in text


def test_the_inputs_are_those_of_the_vector() -> None:
    text = script(mm(5, 7, 11), "eager")

    assert "'shape': [5, 7]" in text
    assert tensor(5, 7).elements == 35
