"""Check that a wheel and an sdist hold every file of the package that git knows, data files too.

python tools/check_distribution.py [DIST]
"""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
SOURCE = "src/"


def tracked(*paths: str) -> set[str]:
    """The files below some paths that git knows."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z", *paths]
    listed = subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout  # noqa: S603 - git
    return {name for name in listed.split("\0") if name}


def missing_from(dist: Path) -> list[str]:
    """What a wheel or sdist in the folder lacks; a folder without both is an error."""
    (wheel,) = dist.glob("*.whl")
    (sdist,) = dist.glob("*.tar.gz")
    package = tracked("src/torchstone")
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = {f"{SOURCE}{name}" for name in archive.namelist()}
    with tarfile.open(sdist) as archive:
        in_sdist = {name.partition("/")[2] for name in archive.getnames()}
    wanted = package | tracked("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "tests")
    return [f"{wheel.name}: {name}" for name in sorted(package - in_wheel)] + [
        f"{sdist.name}: {name}" for name in sorted(wanted - in_sdist)
    ]


def main() -> int:
    """Print what is missing; 1 when there is something."""
    dist = Path(sys.argv[1] if len(sys.argv) > 1 else "dist")
    missing = missing_from(dist)
    print("\n".join(missing) if missing else f"{dist}: the wheel and the sdist are complete")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
