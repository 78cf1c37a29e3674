"""What all tests share: hypothesis without deadlines, an own working directory, no colour, golden files."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.golden_file import GoldenFile
from tests.store.postgres import fresh_schema, running_server

_WORKING_DIRECTORIES = count(1)
_HAS_TORCH = find_spec("torch") is not None
_OPTIONAL = {"torch", "transformers", "numpy", "safetensors", "sympy", "psycopg", "playwright"}
_left_out: list[str] = []

os.environ["TORCHSTONE_CACHE"] = "off"  # a test of a capture makes one, and leaves nothing behind
settings.register_profile(
    "torchstone",
    deadline=None,  # the first call into torch takes seconds
    derandomize=True,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("torchstone")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background; what tests start must hear Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--regenerate", action="store_true", help="write the golden files anew instead of comparing")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Without torch (`make test-core`), leave out the files that import it or another optional package."""
    if _HAS_TORCH or not collection_path.name.startswith("test_") or collection_path.suffix != ".py":
        return None
    name = collection_path.relative_to(config.rootpath).with_suffix("").as_posix()
    try:
        import_module(name.replace("/", "."))
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in _OPTIONAL:
            _left_out.append(name)
            return True
    except pytest.skip.Exception:  # it says so itself when it is collected
        pass
    return None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Nothing is left out in silence."""
    if _left_out:
        terminalreporter.write_line(f"torch is not installed: {len(_left_out)} files that import it were left out")


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands behave the same in every terminal that runs the tests."""
    for name in ("FORCE_COLOR", "CI", "TERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent.parent / "src"))


@pytest.fixture(autouse=True)
def _own_working_directory(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No test depends on where pytest was started, nor on what `make demo` or another test left there.

    The folder is numbered here: tmp_path lists all earlier ones for its number, which is slow for thousands of tests.
    """
    folder = tmp_path_factory.getbasetemp() / f"working-directory-{next(_WORKING_DIRECTORIES)}"
    folder.mkdir()
    monkeypatch.chdir(folder)
    yield
    with suppress(OSError):  # a test that left files keeps them for whoever looks into its failure
        folder.rmdir()


@pytest.fixture(autouse=True)
def _no_formulas_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The formulas that whoever runs the tests has kept are not seen by them."""
    monkeypatch.setenv("TORCHSTONE_HOME", str(tmp_path_factory.getbasetemp() / "empty-home"))


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> GoldenFile:
    """The kept output of one test, under tests/golden in a file named after it."""
    test = str(request.node.name).removeprefix("test_")
    folder = Path(__file__).parent / "golden" / Path(str(request.node.path)).stem.removeprefix("test_")
    return GoldenFile(path=folder / f"{test}.txt", regenerate=bool(request.config.getoption("--regenerate")))


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """A real PostgreSQL for all tests that ask for one."""
    with running_server() as url:
        yield url


@pytest.fixture
def postgres_url(postgres_server: str) -> str:
    """A schema of its own for each test."""
    return fresh_schema(postgres_server)
