"""What commands say where only `pip install torchstone` was run, in an environment that really has no torch."""

from pathlib import Path

import pytest

from tests.bare_environment import BareEnvironment, make_bare_environment
from tests.cli.sweeps import unary, vectors_in
from torchstone.cli.main import COMMANDS, run
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINE, EXIT_INTERNAL_ERROR

NEEDS_TORCH = [
    "analyze net.py --dir out",
    "inspect net.py",
    "inspect net.pt2",
    "inspect tiny:bert",
    "cost net.py",
    "cost net.py --prices script.py",
    "cost microsoft/resnet-50 --batch-size 2 --by formula",  # at its default inputs, a capture comes with torchstone
    "reference net.py --dir out",
    "reference compare one two",
    "reference verify one",
    "check net.py --backend eager",
    "check net.py --backend inductor",
    "check gpt2 --backend aot_eager",
    "check matrix net.py --backend eager --dir out",
    "trace script.py",
    "trace net.py",
    "trace test_net.py",
    "sweep run --dir sweeps --backend script.py::Backend",
    "formula derive LlamaAttention",
    "formula derive --all-in gpt2",
    "formula validate --quick",
    "hardware measure",
]
NEEDS_NOTHING = [
    "--help",
    "inspect gpt2",  # a capture of it comes with torchstone
    "cost gpt2",
    "formula list",
    "cost gpt2 --by formula",
    "ttnn --help",
    "cache info",
    "completion bash",
    "formula show LlamaAttention",
    "hardware show n150",
    "backends",
    "models",
]
NEEDS_DATABASE = ["ops", "db info"]
REFUSED_FOR_ANOTHER_REASON = [
    "map gpt2",
    "memory show nothing",
    "report .",
    "sweep run",
    "diff one two",
    "serve nothing",
]


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> BareEnvironment:
    return make_bare_environment(tmp_path_factory.mktemp("bare"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "net.py").write_text("import torch\n\ndef load_model():\n    return torch.nn.Linear(2, 2)\n")
    (tmp_path / "script.py").write_text("import torch\n")
    (tmp_path / "net.pt2").write_bytes(b"x")
    (tmp_path / "test_net.py").write_text("import torch\n")
    vectors_in(tmp_path / "sweeps", unary("aten.sin.default"))
    return tmp_path


@pytest.mark.parametrize("command", NEEDS_TORCH)
def test_a_command_that_needs_torch_says_how_to_install_it(command: str, bare: BareEnvironment, folder: Path) -> None:
    done = bare.run("torchstone.cli.main", *command.split(), cwd=folder)

    assert done.returncode == EXIT_BAD_INPUT, done.stderr
    assert "pip install 'torchstone[torch]'" in done.stderr or "pip install 'torchstone[hf]'" in done.stderr
    *steps, error = done.stderr.splitlines()
    assert error.startswith("torchstone: error: ")
    assert all(step.endswith(" ...") for step in steps)  # progress, such as "looking for backend eager ..."
    assert not any(step.startswith("executing") for step in steps)  # nothing is, so nothing is said to be


@pytest.mark.parametrize("command", NEEDS_DATABASE)
def test_a_command_that_needs_a_database_says_how_to_install_it(
    command: str, bare: BareEnvironment, folder: Path
) -> None:
    done = bare.run("torchstone.cli.main", *command.split(), cwd=folder)

    assert done.returncode == EXIT_BAD_INPUT, done.stderr
    assert "pip install 'torchstone[db]'" in done.stderr


def test_the_base_is_small(bare: BareEnvironment) -> None:
    """At most eight packages; torchstone itself is linked, not installed."""
    site_packages = next((bare.python.parents[1] / "lib").glob("python*/site-packages"))
    packages = {path.name for path in site_packages.glob("*.dist-info")}

    assert len(packages) <= 8, packages


@pytest.mark.parametrize("command", NEEDS_NOTHING)
def test_a_command_that_needs_no_torch_works(command: str, bare: BareEnvironment, folder: Path) -> None:
    done = bare.run("torchstone.cli.main", *command.split(), cwd=folder)

    assert done.returncode == EXIT_FINE, done.stderr


@pytest.mark.parametrize("command", REFUSED_FOR_ANOTHER_REASON)
def test_no_other_command_ends_in_an_internal_error(command: str, bare: BareEnvironment, folder: Path) -> None:
    done = bare.run("torchstone.cli.main", *command.split(), cwd=folder)

    assert done.returncode == EXIT_BAD_INPUT
    assert "torchstone[" not in done.stderr


def test_every_command_is_in_a_table() -> None:
    tried = {line.split()[0] for line in NEEDS_TORCH + NEEDS_NOTHING + NEEDS_DATABASE + REFUSED_FOR_ANOTHER_REASON}

    assert set(COMMANDS) <= tried


def test_the_other_programs_say_it_too(bare: BareEnvironment, folder: Path) -> None:
    assert bare.run("torchstone.cli.ttmem", "demo", cwd=folder).returncode == EXIT_FINE

    options = "--model-path net.py::load_model --inputs-path net.py::get_inputs --backend eager"
    done = bare.run("torchstone.cli.tt_model_analysis", *options.split(), cwd=folder)

    assert done.returncode == EXIT_BAD_INPUT
    assert "pip install 'torchstone[torch]'" in done.stderr


def test_a_module_that_no_extra_brings_stays_an_internal_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ModuleNotFoundError(name="nowhere")

    monkeypatch.setattr("torchstone.cli.main._invoke", fail)

    assert run(["models"]) == EXIT_INTERNAL_ERROR
