"""Code of the user that changes or ends the process of a command: a sentence or the right answer, never a silent loss.

`--prices FILE.py` executes a file in the process of the command and needs no torch. A model file passes the same
border.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.report.traces import transformer
from torchstone.record import codec

UNHARMED = {
    "closed descriptors": "import os\n[os.close(n) for n in (0, 1, 2)]",
    "no streams": "import sys\nsys.stdout = sys.stderr = None",
    "a stream that raises": "import sys\nclass W:\n    def write(self, *_): 1 / 0\n    flush = write\nsys.stdout = W()",
    "a closed stream": "import sys\nsys.stdout.close()\nsys.stderr.close()",
    "the first stream closed": "import sys\nsys.__stdout__.close()\nsys.__stderr__.close()",
    "stdout to nowhere": "import os\nos.dup2(os.open(os.devnull, os.O_WRONLY), 1)",
    "another folder": "import os\nos.chdir('elsewhere')",
    "a folder that is gone": "import os\nos.mkdir('gone')\nos.chdir('gone')\nos.rmdir('../gone')",
    "ignored signals": "from signal import *\nsignal(SIGINT, SIG_IGN)\nsignal(SIGTERM, print)",
    "a fork that comes back": "import os\nos.fork()",
    "a fork that stays": "import os, time\nif os.fork() == 0:\n    os.closerange(0, 3); time.sleep(5); os._exit(0)",
    "few calls in each other": "import sys\nsys.setrecursionlimit(60)",
    "no place to import from": "import sys\nsys.path.clear()\nsys.meta_path.clear()",
    "no variables": "import os\nos.environ.clear()",
    "a hook that raises": "import sys\nsys.excepthook = sys.unraisablehook = None",
}
REFUSED = {
    "os._exit": ("import os\nos._exit(0)", "os._exit(0)"),
    "os._exit with findings": ("import os\nos._exit(1)", "os._exit(1)"),
    "sys.exit": ("import sys\nsys.exit(0)", "SystemExit(0)"),
    "an exit without Python's help": ("raise GeneratorExit", "GeneratorExit"),
    "an exception that is none": ("class E(BaseException): pass\nraise E('hi')", "hi"),
    "a text that exits": (
        "class E(Exception):\n    def __str__(self): raise SystemExit(0)\nraise E",
        "cannot be shown",
    ),
    "a text that is none": ("class E(Exception):\n    def __str__(self): return 5\nraise E", "cannot be shown"),
    "half a character": (r"raise ValueError('\ud800\x1b[2J')", "ValueError"),
    "no open": ("import io\ndef f(*_, **__): raise KeyError('no open')\nio.open = f", "no open"),
    "no rename": ("import os\ndef f(*_, **__): raise KeyError('no rename')\nos.replace = os.rename = f", "no rename"),
    "no echo": ("import click\ndef f(*_, **__): raise KeyError('no echo')\nclick.echo = f", "no echo"),
}


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    (tmp_path / "elsewhere").mkdir()
    codec.save(tmp_path / "model" / "trace.json", transformer(1))
    return tmp_path


def priced(work: Path, code: str, *options: str) -> "subprocess.CompletedProcess[str]":
    (work / "prices.py").write_text(code + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "torchstone", "cost", "model", "--prices", "prices.py", "--dir", "out", *options]
    variables = {**os.environ, "TORCHSTONE_CACHE": "off", "NO_COLOR": "1"}
    return subprocess.run(command, cwd=work, env=variables, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.parametrize("name", UNHARMED)
def test_the_answer_is_that_of_a_command_without_such_code(name: str, work: Path) -> None:
    expected = priced(work, "", "--json").stdout
    (work / "out").rename(work / "first")
    done = priced(work, UNHARMED[name], "--json")

    assert (done.returncode, done.stdout) == (0, expected), done.stderr
    assert "Traceback" not in done.stderr
    assert json.loads((work / "out" / "cost.json").read_bytes()) == json.loads(
        (work / "first" / "cost.json").read_bytes()
    )
    assert not list((work / "elsewhere").iterdir())


@pytest.mark.parametrize("name", REFUSED)
def test_code_that_ends_or_breaks_a_command_is_named_in_a_sentence(name: str, work: Path) -> None:
    code, named = REFUSED[name]
    done = priced(work, code)

    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1].startswith("torchstone: error: ")
    assert named in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "code",
    [
        "import threading\nthreading.Thread(target=threading.Event().wait).start()",
        "import atexit, threading\natexit.register(threading.Event().wait)",
    ],
    ids=["thread", "atexit"],
)
def test_what_does_not_end_is_ended_after_the_answer(code: str, work: Path) -> None:
    done = priced(work, code, "--json")

    assert done.returncode == 0
    assert json.loads(done.stdout)["totals"]["flops"] > 0
    assert done.stderr.splitlines()[-1].startswith("torchstone: warning: the user's code left ")


def test_code_finds_the_folder_again_that_it_changed_to(work: Path) -> None:
    """A model that changes to its own folder when it is imported may look for files there when it runs."""
    code = f"""
import os
from torchstone.foreign import foreign_code, kept_process

here = os.getcwd()
seen = []
with kept_process(on_exit=print, on_return=lambda: seen.append(os.getcwd())):
    with foreign_code():
        os.chdir({str(work / "elsewhere")!r})
    with foreign_code():
        with foreign_code():
            pass
        seen.append(os.getcwd())
assert seen == [here, {str((work / "elsewhere").resolve())!r}, here], seen
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=work, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


@pytest.mark.torch
@pytest.mark.heavy
def test_a_traced_model_may_leave_a_thread_that_does_not_end(work: Path) -> None:
    code = "import threading, torch\nthreading.Thread(target=threading.Event().wait).start()\n"
    code += "def load_model():\n    return torch.nn.Linear(2, 2)\ndef get_inputs():\n    return torch.ones(1, 2)\n"
    (work / "net.py").write_text(code, encoding="utf-8")
    command = [sys.executable, "-m", "torchstone", "trace", "net.py::load_model", "--inputs", "net.py::get_inputs"]
    done = subprocess.run(
        [*command, "--db", "x.db"], cwd=work, capture_output=True, text=True, check=False, timeout=300
    )

    assert done.returncode == 0, done.stderr
    assert "are new in x.db" in done.stdout
