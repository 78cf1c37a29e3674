import json
from pathlib import Path

import pytest

from tests.cli.programs import EXAMPLE, torchstone


@pytest.mark.heavy
def test_the_ir_of_one_module_is_written(tmp_path: Path) -> None:
    made = torchstone("check", EXAMPLE, "--backend", "eager", "--root-only", "--no-ir", "--dir", str(tmp_path))
    assert made.returncode == 0, made.stderr

    modules = str(tmp_path / "unique_modules.json")
    done = torchstone("check", "export-ir", "--module-id", "mod_000", "--modules-json", modules)
    told = torchstone("check", "export-ir", "--module-id", "mod_000", "--modules-json", modules, "--json")

    assert (done.returncode, done.stdout.strip()) == (0, str(tmp_path / "irs/mod_000_root/aten.txt")), done.stderr
    assert json.loads(told.stdout)["result"]["irs"] == ["irs/mod_000_root/aten.txt"]


def test_a_file_that_no_check_wrote_is_refused(tmp_path: Path) -> None:
    (tmp_path / "unique_modules.json").write_text("{}")

    done = torchstone(
        "check", "export-ir", "--module-id", "mod_000", "--modules-json", str(tmp_path / "unique_modules.json")
    )

    assert done.returncode == 2
    assert "holds no check to go on from" in done.stderr
