"""A check that somebody kills, and the one that goes on from there."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PROGRAM = """
import json, sys
from pathlib import Path
from torchstone.check.check_model import Subject, run_check
from torchstone.check.settings import Folder, Settings
from torchstone.workflows.check import STAGES
model, folder, faults, resume = sys.argv[1:]
settings = Settings(backend="faulty", options={"faults": json.loads(faults)}, exports_ir=False)
run_check(Subject(model=model), settings, Folder(path=Path(folder)), stages=STAGES, resume=resume == "yes")
"""


def start(model: str, folder: Path, faults: list[dict[str, Any]], *, resume: bool) -> subprocess.Popen[bytes]:
    arguments = [model, str(folder), json.dumps(faults), "yes" if resume else "no"]
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def finish(model: str, folder: Path, faults: list[dict[str, Any]], *, resume: bool) -> None:
    """Run a check to its end."""
    with start(model, folder, faults, resume=resume) as process:
        said, _ = process.communicate(timeout=900)
        assert process.returncode == 0, said.decode()


def kill_after(folder: Path, answers: int, process: subprocess.Popen[bytes]) -> bool:
    """Kill with SIGKILL once so many answers are in the journal; whether it came to that."""
    journal = folder / "check_work" / "journal.jsonl"
    while process.poll() is None:
        if journal.is_file() and journal.read_bytes().count(b"\n") > answers:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            return True
        time.sleep(0.002)
    return False


def without_times(file: Path) -> str:
    """A document but for when things ran and how long they took."""
    times = ("elapsed_s", "ran_at", "reused", "reused_tasks", "reused_from")

    def stripped(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: stripped(part) for key, part in value.items() if key not in times}
        return [stripped(part) for part in value] if isinstance(value, list) else value

    return json.dumps(stripped(json.loads(file.read_text())))
