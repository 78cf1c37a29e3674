import subprocess
import sys


def test_python_runs_the_package_as_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "torchstone", "--version"], capture_output=True, text=True, check=True, timeout=300
    )

    assert done.stdout.startswith("torchstone")
