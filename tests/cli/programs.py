"""The real program in a process of its own."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
EXAMPLE = f"{ROOT / 'examples' / 'tiny_transformer.py'}::load_model"
MAIN = "from torchstone.cli.main import main; main()"
_FILE_LIMIT = (
    "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
    "resource.setrlimit(resource.RLIMIT_FSIZE, ({0}, {0})); "
)


def torchstone(
    *arguments: str, cwd: Path | None = None, timeout_s: float = 600, file_limit_bytes: int | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command line as a user would; a limit for each file stands for a disk that is full."""
    limit = "" if file_limit_bytes is None else _FILE_LIMIT.format(file_limit_bytes)
    return subprocess.run(
        [sys.executable, "-B", "-c", limit + MAIN, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        timeout=timeout_s,
    )
