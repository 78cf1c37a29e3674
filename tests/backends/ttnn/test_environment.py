import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from torchstone.backends.ttnn import environment
from torchstone.errors import InputError


def test_a_folder_without_an_interpreter_is_refused_with_the_command_that_makes_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="torchstone ttnn setup"):
        environment.interpreter_of(str(tmp_path))


def test_the_default_environment_is_that_of_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(environment.VARIABLE, str(tmp_path / "none"))

    with pytest.raises(InputError, match="none"):
        environment.interpreter_of("")


def test_an_interpreter_without_ttnn_is_described_as_such() -> None:
    found = environment.describe_environment(sys.executable)

    assert (found.ttnn, found.compiler) in {("", "none"), ("", "real")}


def test_a_version_without_a_wheel_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"3\.12 and 3\.10"):
        environment.set_up(tmp_path / "env", python="3.11-none")


@pytest.mark.skipif(shutil.which("riscv64-unknown-elf-gcc") is None, reason="gcc-riscv64-unknown-elf is not installed")
def test_the_stand_in_links_a_program_and_says_the_release_that_ttnn_wants(tmp_path: Path) -> None:
    (tmp_path / "tt_metal").mkdir()
    release = "sfpi_version='7.89.0'\nsfpi_build='1050'\n"
    (tmp_path / "tt_metal" / "sfpi-version").write_text(release, encoding="utf-8")
    assert environment.compiler_of(str(tmp_path)) in ("none", "real")
    environment._add_stand_in(tmp_path, lambda _: None)
    program = str(tmp_path / "runtime/sfpi/compiler/bin/riscv-tt-elf-g++")
    script = tmp_path / "k.ld"
    script.write_text("ENTRY(_start)\nSECTIONS { .text 0x1000 : { *(.start) *(.text*) } }\n", encoding="utf-8")

    assert environment.compiler_of(str(tmp_path)) == "stand-in"
    said = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout
    assert "sfpi:7.89.0[1050]" in said
    compiled = [program, "-c", "a.cc", "-o", "a.o", "-MF", "a.d"]
    assert subprocess.run(compiled, cwd=tmp_path, check=False).returncode == 0
    assert (tmp_path / "a.d").read_text(encoding="utf-8") == "a.o: a.cc\n"
    for out in ("first.elf", "second.elf"):
        subprocess.run([program, f"-T{script}", "a.o", "-o", out], cwd=tmp_path, check=True)
    assert (tmp_path / "second.elf").read_bytes()[:4] == b"\x7fELF"
    assert len(list((tmp_path / "runtime/sfpi/compiler/linked").iterdir())) == 1
