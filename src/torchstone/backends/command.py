"""Any command as the judge of a graph: it gets an exported program, and its exit code says whether that works."""

from __future__ import annotations

import shlex
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from torchstone.backends.protocol import Args, Availability, Kwargs, NotRun, Run, availability_of
from torchstone.temporary import temporary_folder

if TYPE_CHECKING:
    from torch import nn

PROGRAM, INPUTS = "{program}", "{inputs}"
_LAST_WORDS = 2_000


class Command:
    """Runs a command on every graph; exit code 0 says that the graph works. The values are eager's own."""

    name = "command"
    forks = True

    def __init__(self, *, command: str = "", folder: str = "") -> None:
        if command and PROGRAM not in command:
            msg = f"the command must have {PROGRAM}, which stands for the file of the exported program (.pt2)"
            raise ValueError(msg)
        self.command = command
        self.folder = folder or str(Path.cwd())  # where the command runs: relative paths in it mean what they say

    def availability(self) -> Availability:
        """Wherever torch is, once there is a command."""
        found = availability_of(["torch"], needs="pip install 'torchstone[torch]'")
        if found.usable and not self.command:
            needs = "check --check COMMAND"
            return Availability(usable=False, reason="it has no command", version=found.version, needs=needs)
        return found

    def warm_up(self) -> None:
        """Import the exporter."""
        from torchstone.backends.export import import_exporter

        import_exporter()

    def export(self, module: nn.Module, args: Args, kwargs: Kwargs) -> dict[str, str]:
        """The exported program as text."""
        from torchstone.backends.export import exported_program

        return {"exported": str(exported_program(module, args, kwargs).program)}

    def compile(self, module: nn.Module, args: Args, kwargs: Kwargs) -> Run:
        """Export the module; the command runs when the module is called."""
        import torch

        from torchstone.backends.export import exported_program

        exported = exported_program(module, args, kwargs)

        def run(*args: object, **kwargs: object) -> object:
            with temporary_folder("command") as folder:
                files = {PROGRAM: f"{folder}/program.pt2", INPUTS: f"{folder}/inputs.pt"}
                torch.export.save(exported.program, files[PROGRAM])
                torch.save([one.detach() for one in exported.example], files[INPUTS])
                self._ask(files)
            with torch.no_grad():
                return module(*args, **kwargs)

        return run

    def reset(self) -> None:
        """Nothing is kept."""

    def _ask(self, files: Mapping[str, str]) -> None:
        words = [_filled(word, files) for word in shlex.split(self.command)]
        try:
            done = subprocess.run(  # noqa: S603 - the user's own command
                words, cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True, check=False
            )
        except OSError as error:
            msg = f"the command cannot be run: {words[0]}: {error.strerror or error}"
            raise NotRun(msg) from error
        if done.returncode:
            said = (done.stdout + done.stderr).decode("utf-8", "replace").strip()[-_LAST_WORDS:]
            raise RuntimeError(how_it_failed(done.returncode)) from RuntimeError(said or "it printed nothing")


def _filled(word: str, files: Mapping[str, str]) -> str:
    for name, file in files.items():
        word = word.replace(name, file)
    return word


def how_it_failed(code: int) -> str:
    """One sentence, equal for equal failures."""
    return f"the command was ended by {signal.Signals(-code).name}" if code < 0 else f"the command fails with {code}"
