"""The second question about a model is answered from the capture of the first."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest

from torchstone.cli.main import run
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINE
from torchstone.models.inputs import InputOptions
from torchstone.workflows import capture_cache
from torchstone.workflows.capture_cache import cache_info
from torchstone.workflows.model_source import ModelRequest, load_trace
from torchstone.workflows.progress import Silent

CONFIG = {
    "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 2, "n_embd": 32, "n_head": 2,
    "vocab_size": 100, "n_positions": 64,
}  # fmt: skip


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "cache"
    monkeypatch.setenv("TORCHSTONE_CACHE", str(folder))
    yield folder
    assert not list(folder.glob(".*.part"))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG), encoding="utf-8")
    return path


def test_an_equal_request_is_answered_from_the_cache_and_says_so(cache: Path, model: Path) -> None:
    request = ModelRequest(model=str(model), command="first")
    first, again = load_trace(request), load_trace(replace(request, command="second"))

    assert len(list(cache.iterdir())) == 1
    assert again.provenance.created == first.provenance.created
    assert again.provenance.command == "second"
    assert list(again.ops) == list(first.ops)
    assert load_trace(replace(request, cached=False)).provenance.created >= first.provenance.created


def test_whatever_changes_the_capture_changes_the_key(
    cache: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = ModelRequest(model=str(model))
    load_trace(request)
    load_trace(replace(request, options=InputOptions(seq_len=7)))
    load_trace(replace(request, options=InputOptions(dtype="bfloat16")))
    load_trace(replace(request, reuse=False))
    load_trace(request, keywords={"logits_to_keep": 1})
    model.write_text(json.dumps(CONFIG | {"n_layer": 3}), encoding="utf-8")
    assert len(load_trace(request).modules) > 0
    assert len(list(cache.iterdir())) == 6
    monkeypatch.setattr(capture_cache, "installed_version", lambda _: "another")
    load_trace(request)
    assert len(list(cache.iterdir())) == 7


@pytest.mark.parametrize("package", ["torch", "transformers", "click"])
def test_the_version_of_a_package_is_that_of_its_metadata(package: str) -> None:
    assert capture_cache.installed_version(package) == version(package)
    assert capture_cache.installed_version(f"no-such-{package}") == ""


def test_a_damaged_or_unwritable_cache_is_no_error(cache: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_trace(ModelRequest(model=str(model)))
    (kept,) = cache.iterdir()
    kept.write_bytes(kept.read_bytes()[:500])
    assert load_trace(ModelRequest(model=str(model))).failure is None
    file = cache / "file"
    file.touch()
    monkeypatch.setenv("TORCHSTONE_CACHE", str(file / "inside"))
    assert load_trace(ModelRequest(model=str(model))).failure is None
    monkeypatch.setenv("TORCHSTONE_CACHE", "off")
    assert cache_info().folder is None


def test_the_oldest_captures_go_first(cache: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for length in (4, 5, 6):
        load_trace(ModelRequest(model=str(model), options=InputOptions(seq_len=length)))
        for place, path in enumerate(sorted(cache.iterdir(), key=lambda one: one.stat().st_mtime_ns)):
            os.utime(path, (place, place))
    largest = max(path.stat().st_size for path in cache.iterdir())
    monkeypatch.setenv("TORCHSTONE_CACHE_SIZE", f"{2 * largest + 100}B")
    load_trace(ModelRequest(model=str(model), options=InputOptions(seq_len=7)))

    assert cache_info().captures == 2


def test_code_that_asks_the_network_is_run_again(cache: Path, tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    asks = "with contextlib.suppress(OSError):\n        socket.create_connection(('127.0.0.1', 9), timeout=1)"
    made = "return torch.nn.Linear(2, 2), torch.ones(1, 2)"
    text = f"import contextlib, socket, torch\ndef net():\n    {asks}\n    {made}\n"
    path.write_text(text, encoding="utf-8")
    load_trace(ModelRequest(model=f"{path}::net"))
    assert not cache.exists()


@pytest.mark.usefixtures("cache")
def test_the_second_answer_imports_no_torch(model: Path) -> None:
    program = (
        "import sys; from torchstone.cli.main import run; code = run(sys.argv[1:]);"
        "sys.exit(10 if 'torch' in sys.modules else code)"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}

    def ask(*arguments: str) -> int:
        command = [sys.executable, "-c", program, *arguments]
        return subprocess.run(command, check=False, capture_output=True, env=environment).returncode

    code = model.with_name("net.py")
    code.write_text("import torch\ndef net():\n    return torch.nn.Linear(2, 2), torch.ones(1, 2)\n", encoding="utf-8")
    assert ask("inspect", f"{code}::net") == 10
    assert ask("cost", f"{code}::net") == EXIT_FINE
    assert ask("cost", f"{code}::net", "--by", "line") == EXIT_FINE
    ask("cost", f"{code}::net", "--by", "formula")
    assert ask("cost", f"{code}::net", "--by", "formula") == EXIT_FINE
    assert ask("inspect", str(model)) == 10
    assert ask("inspect", str(model)) == EXIT_FINE
    assert ask("cost", str(model), "--hardware", "n150") == 10  # the largest batch is verified by captures
    assert ask("cost", str(model), "--hardware", "n150") == EXIT_FINE
    assert ask("cost", f"{code}::net", "--hardware", "n150") == 10
    assert ask("cost", f"{code}::net", "--hardware", "n150") == EXIT_FINE
    assert ask("cost", f"{code}::net", "--hardware", "a100") == 10  # another question
    assert ask("cost", str(model), "--no-cache") == 10
    assert ask("cost", str(model), "--by", "formula") == EXIT_FINE
    assert ask("formula", "show", "torch.nn.Linear") == EXIT_FINE


@pytest.mark.usefixtures("cache")
def test_the_command_shows_and_clears(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    load_trace(ModelRequest(model=str(model)))
    assert run(["cache", "info"]) == EXIT_FINE
    assert "1 capture," in capsys.readouterr().out
    assert run(["cache", "clear"]) == EXIT_FINE
    assert cache_info().captures == 0
    monkeypatch.setenv("TORCHSTONE_CACHE_SIZE", "much")
    assert run(["cache", "info"]) == EXIT_BAD_INPUT


NET = """
import json, os
import torch
from torch import nn
from helper import width

try:
    from extra import more
except ImportError:
    def more():
        return 0

def load_model():
    try:
        with open("size.json") as file:
            layers = json.load(file)["layers"]
    except OSError:
        layers = 1
    layers += more() + int(os.environ.get("LAYERS", "0")) + len(os.listdir("parts"))
    return nn.Sequential(*(nn.Linear(width(), width()) for _ in range(layers)))

def get_inputs():
    return (torch.ones(2, width()),)
"""


class Notes(Silent):
    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)


def answered() -> tuple[bool, int]:
    """Whether the answer comes without running the code, and the number of layers that it sees."""
    notes = Notes()
    trace = load_trace(ModelRequest(model="net.py::load_model"), notes)
    return not any("executing" in one for one in notes.said), len(trace.modules) - 1


def test_code_is_run_again_when_anything_that_it_read_has_changed(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "code"
    (folder / "parts").mkdir(parents=True)
    (folder / "net.py").write_text(NET, encoding="utf-8")
    (folder / "helper.py").write_text("def width(): return 4\n", encoding="utf-8")
    monkeypatch.chdir(folder)

    assert answered() == (False, 1)
    assert answered() == (True, 1)
    (folder / "unrelated.txt").write_text("x", encoding="utf-8")
    assert answered() == (True, 1)
    (folder / "size.json").write_text('{"layers": 2}', encoding="utf-8")  # it was not there before
    assert answered() == (False, 2)
    (folder / "parts" / "one").write_text("", encoding="utf-8")
    assert answered() == (False, 3)
    (folder / "extra.py").write_text("def more(): return 1\n", encoding="utf-8")
    assert answered() == (False, 4)
    with monkeypatch.context() as other:
        other.setenv("LAYERS", "3")
        assert answered() == (False, 7)
    assert answered() == (True, 4)
    (folder / "helper.py").write_text("def width(): return 5\n", encoding="utf-8")  # as long as before
    assert answered()[0] is False
    (folder / "net.py").write_text(NET + "\n", encoding="utf-8")
    assert answered()[0] is False
    assert cache_info().captures == len(list(cache.glob("*.files"))) == 2
