"""A Python environment with torchstone and its required dependencies only: what `pip install torchstone` gives."""

import re
import subprocess
import sys
import tomllib
import venv
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from tests.architecture.repository import ROOT

_NAME = re.compile(r"[\w.-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class BareEnvironment:
    """A virtual environment without any extra."""

    python: Path

    def run(self, program: str, *arguments: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
        """Run torchstone's command line, or another program it installs, with a module's main function."""
        command = [str(self.python), "-c", f"import sys; from {program} import main; main()", *arguments]
        environment = {"HOME": str(cwd), "PATH": "/usr/bin:/bin", "NO_COLOR": "1"}
        return subprocess.run(
            command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=600
        )


def make_bare_environment(folder: Path) -> BareEnvironment:
    """Make the environment from the packages that are installed here: links, so it takes a second and no network."""
    venv.create(folder, with_pip=False, symlinks=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site_packages = folder / "lib" / version / "site-packages"
    for name in _required("torchstone", set()):
        for file in distribution(name).files or ():
            top = file.parts[0]
            link = site_packages / top
            if top not in {"..", "__pycache__"} and not link.exists():
                link.symlink_to(Path(str(distribution(name).locate_file(top))).resolve())
    (site_packages / "torchstone.pth").write_text(f"{ROOT / 'src'}\n", encoding="utf-8")
    return BareEnvironment(python=folder / "bin" / "python")


def _required(name: str, seen: set[str]) -> set[str]:
    """The names of the packages that one needs without its extras, and those that they need."""
    if name == "torchstone":
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        requirements = list(project["dependencies"])
    else:
        requirements = [one for one in distribution(name).requires or () if "extra ==" not in one]
    for requirement in requirements:
        found = _NAME.match(requirement)
        assert found is not None
        if found[0] not in seen and _is_installed(found[0]):
            seen.add(found[0])
            _required(found[0], seen)
    return seen


def _is_installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:  # for another system or Python
        return False
    return True
