import os
import subprocess
import sys
from pathlib import Path

import pytest

import torchstone
from torchstone.cli.main import run
from torchstone.errors import EXIT_FINE

SOURCES = str(Path(torchstone.__file__).parents[1])


def test_the_shim_is_imported_in_the_place_of_the_loader_of_a_checkout(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkout = tmp_path / "tt-metal" / "tests" / "sweep_framework"
    checkout.mkdir(parents=True)
    (checkout / "master_config_loader.py").write_text("raise SystemExit('the old one')", encoding="utf-8")
    (checkout / "other.py").write_text("VALUE = 1", encoding="utf-8")
    assert run(["sweep", "shim", str(tmp_path / "shim")]) == EXIT_FINE
    assert len(capsys.readouterr().out.split()) == 2
    program = (
        "from tests.sweep_framework.master_config_loader import MasterConfigLoader, unpack_binary_traced_config\n"
        "from tests.sweep_framework.master_config_loader_v2 import MasterConfigLoader as V2, dict_to_program_config\n"
        "from tests.sweep_framework.other import VALUE\n"
        "import sys, warnings; warnings.simplefilter('ignore')\n"
        "print(MasterConfigLoader is V2, V2().get_suite_parameters('add'), VALUE, 'msgspec' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": os.pathsep.join([str(tmp_path / "shim"), str(tmp_path / "tt-metal"), SOURCES])},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.stdout, done.stderr) == ("True {'traced_config_name': []} 1 False\n", "")
