"""The real program in a process of its own."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
EXAMPLE = f"{ROOT / 'examples' / 'tiny_transformer.py'}::load_model"
MAIN = "from torchstone.cli.main import main; main()"


def torchstone(*arguments: str, cwd: Path | None = None, timeout_s: float = 600) -> subprocess.CompletedProcess[str]:
    """Run a command line as a user would."""
    return subprocess.run(
        [sys.executable, "-c", MAIN, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        timeout=timeout_s,
    )
