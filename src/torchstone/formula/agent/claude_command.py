"""Claude Code by its command line, with tools that can only read."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import msgspec

from torchstone.formula.agent.providers import ProviderError

READING_TOOLS = ("Read", "Grep", "Glob")
_LONGEST_REASON = 300


class _Reply(msgspec.Struct):
    result: str = ""
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class ClaudeCommand:
    """`claude -p`, one question at a time."""

    folder: Path | None = None  # what it may read beside the question
    program: str = "claude"
    timeout_s: float = 600
    name: str = "claude"

    def ask(self, question: str) -> str:
        """The final text of one run."""
        program = shutil.which(self.program)
        if program is None:
            msg = f"the command {self.program} is not installed; install Claude Code, or choose another --provider"
            raise ProviderError(msg)
        command = [program, "-p", "--output-format", "json", "--allowedTools", ",".join(READING_TOOLS)]
        try:
            done = subprocess.run(  # noqa: S603 - a fixed command; the question goes in by stdin
                command, input=question, capture_output=True, text=True, timeout=self.timeout_s, check=False,
                cwd=self.folder,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            msg = f"{self.program} gave no answer within {self.timeout_s:.0f} s"
            raise ProviderError(msg) from error
        except OSError as error:
            msg = f"{self.program} cannot be started: {error.strerror or error}"
            raise ProviderError(msg) from error
        return self._answer(done)

    def _answer(self, done: "subprocess.CompletedProcess[str]") -> str:
        try:
            reply = msgspec.json.decode(done.stdout, type=_Reply)
        except msgspec.MsgspecError:
            reply = _Reply(result=done.stdout, is_error=True)
        if done.returncode != 0 or reply.is_error:
            reason = " ".join((reply.result.strip() or done.stderr.strip()).split())[-_LONGEST_REASON:]
            msg = f"{self.program} failed (exit code {done.returncode}): {reason or 'it said nothing'}"
            raise ProviderError(msg)
        return reply.result
