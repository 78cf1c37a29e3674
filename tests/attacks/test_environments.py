"""Commands with workers in unusual environments: the verdicts are those of an ordinary one."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.cli.sweeps import unary, vectors_in

pytestmark = [pytest.mark.heavy, pytest.mark.torch, pytest.mark.skipif(sys.platform != "linux", reason="it is Linux's")]
NET = """import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        return torch.nn.functional.gelu(self.linear(x)).tanh()

def load_model():
    return Net()

def get_inputs():
    return torch.ones(2, 4)
"""
CHECK = (
    "check net.py::load_model --inputs net.py::get_inputs --backend faulty --backend-option fault=wrong "
    "--backend-option op=aten.gelu.* --dir out --json"
)
SWEEP = "sweep run --dir sweeps --backend faulty --backend-option fault=wrong --backend-option op=aten.neg.* --json"
# The clock of the day goes back by a second at each look; the one that measures durations is left alone.
CLOCK = """#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>
static long back = 0;
int clock_gettime(clockid_t clock, struct timespec *now) {
    int ended = ((int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime"))(clock, now);
    if (clock == CLOCK_REALTIME) now->tv_sec -= ++back;
    return ended;
}
time_t time(time_t *where) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (where) *where = now.tv_sec;
    return now.tv_sec;
}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where and how a command is started."""

    folder: Path
    before: Sequence[str] = ()  # words in front of the command
    variables: dict[str, str] = field(default_factory=dict)
    without: Sequence[str] = ()  # variables that are not set


def usual(folder: Path) -> Place:
    return Place(folder=folder)


def no_home(folder: Path) -> Place:
    return Place(folder=folder, without=("HOME", "USER", "LOGNAME", "XDG_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR"))


def plain_locale(folder: Path) -> Place:
    plain = {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
    return Place(folder=folder, variables=plain)


def few_descriptors(folder: Path) -> Place:
    return Place(folder=folder, before=("sh", "-c", 'ulimit -n 64; exec "$@"', "sh"))


def odd_path(folder: Path) -> Place:
    odd = Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9 \xff"))
    odd.mkdir()
    return Place(folder=odd)


def small_shared_memory(folder: Path) -> Place:
    mount = "mount -t tmpfs -o size=64k tmpfs /dev/shm"
    if subprocess.run(["unshare", "--mount", "sh", "-c", mount], check=False, capture_output=True).returncode:
        pytest.skip("this user may not mount a small /dev/shm")
    return Place(folder=folder, before=("unshare", "--mount", "sh", "-c", f'{mount} && exec "$@"', "sh"))


def clock_that_goes_back(folder: Path) -> Place:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    (folder / "clock.c").write_text(CLOCK, encoding="ascii")
    shim = folder / "clock.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", shim, folder / "clock.c", "-ldl"], check=True)
    return Place(folder=folder, variables={"LD_PRELOAD": str(shim)})


def read_only_home(folder: Path) -> Place:
    return Place(folder=folder, variables={"HOME": "/proc"})  # no user may write there


def no_temporary_folder(folder: Path) -> Place:
    return Place(folder=folder, variables={"TMPDIR": "/nowhere"})  # Python takes another one


def home_that_is_a_file(folder: Path) -> Place:
    return Place(folder=folder, variables={"HOME": str(folder / "net.py"), "XDG_CACHE_HOME": str(folder / "net.py")})


def without_assertions(folder: Path) -> Place:
    return Place(folder=folder, variables={"PYTHONOPTIMIZE": "2", "TERM": "dumb", "COLUMNS": "1"})


PLACES: dict[str, Callable[[Path], Place]] = {
    "no HOME": no_home,
    "the C locale": plain_locale,
    "64 descriptors": few_descriptors,
    "a path that is not UTF-8": odd_path,
    "a small /dev/shm": small_shared_memory,
    "a clock that goes back": clock_that_goes_back,
    "a home that cannot be written": read_only_home,
    "no folder for temporary files": no_temporary_folder,
    "a home that is a file": home_that_is_a_file,
    "without assertions, in a terminal of one column": without_assertions,
    "a load of 20": usual,
}


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Processes that do nothing but work."""
    workers = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


def prepared(place: Place) -> None:
    (place.folder / "net.py").write_text(NET, encoding="utf-8")
    vectors_in(place.folder / "sweeps", *(unary(f"aten.{op}.default") for op in ("sin", "neg", "exp")))


def run(place: Place, command: str) -> dict[str, Any]:
    """The document that a command prints; its exit code is that of findings."""
    environment = {name: value for name, value in os.environ.items() if name not in place.without}
    environment |= {"TORCHSTONE_CACHE": "off", "PYTHONPATH": os.pathsep.join(sys.path), **place.variables}
    done = subprocess.run(
        [*place.before, sys.executable, "-m", "torchstone", *shlex.split(command)],
        cwd=place.folder, env=environment, capture_output=True, check=False, timeout=1800,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr.decode("utf-8", "replace")
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def verdicts(place: Place) -> tuple[object, object]:
    checked, swept = run(place, CHECK), run(place, SWEEP)
    found = [(one["ops"], one["outcome"], one["confirmed"]) for one in checked["findings"]]
    modules = [(one["id"], one["status"], one["outcome"]) for one in checked["modules"]]
    return (modules, found), [(one["op"], one["status"], one["outcome"]) for one in swept["results"]]


@pytest.fixture(scope="module")
def ordinary(tmp_path_factory: pytest.TempPathFactory) -> tuple[object, object]:
    place = usual(tmp_path_factory.mktemp("ordinary"))
    prepared(place)
    return verdicts(place)


@pytest.mark.parametrize("name", PLACES)
def test_the_verdicts_are_the_same(name: str, tmp_path: Path, ordinary: tuple[object, object]) -> None:
    place = PLACES[name](tmp_path)
    prepared(place)
    with busy(20 if name == "a load of 20" else 0):
        assert verdicts(place) == ordinary


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    prepared(Place(folder=tmp_path))
    read_only = 'mount --bind . . && mount -o remount,ro,bind . && cd "$PWD"'
    if subprocess.run(
        ["unshare", "--mount", "sh", "-c", read_only], cwd=tmp_path, check=False, capture_output=True
    ).returncode:
        pytest.skip("this user may not mount a folder read-only")
    before = ("unshare", "--mount", "sh", "-c", f'{read_only} && exec "$@"', "sh")
    for command in (CHECK, SWEEP):
        done = subprocess.run(
            [*before, sys.executable, "-m", "torchstone", *shlex.split(command)],
            cwd=tmp_path, capture_output=True, text=True, check=False, timeout=1800,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        assert done.returncode == 2, done.stderr
        assert done.stderr.splitlines()[-1].startswith("torchstone: error: cannot write to ")
