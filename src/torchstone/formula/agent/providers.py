"""Providers that answer a prompt: recorded answers, or Claude Code (command line or SDK) with read-only tools."""

import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec

from torchstone.errors import FormulaError, MissingExtraError
from torchstone.record.codec import write_atomically

# --- The provider protocol: anything that turns one text into another; recording and replay ---


_ANSWER = "answer.txt"
_QUESTION = "question.txt"


class ProviderError(FormulaError):
    """A provider gave no answer; the message says why and what to do."""


class Provider(Protocol):
    """One question, one answer; every question holds all that must be known."""

    @property
    def name(self) -> str:
        """As it stands in the entry: who wrote it."""
        ...

    def ask(self, question: str) -> str:
        """The answer, or a ProviderError."""
        ...


@dataclass(slots=True)
class Replay:
    """Answers that were recorded before, in the order of their file names."""

    folder: Path
    name: str = "replay"
    _asked: int = field(default=0, init=False)

    def ask(self, question: str) -> str:  # noqa: ARG002 - a recorded answer does not depend on it
        """The next recorded answer."""
        answers = sorted(self.folder.glob(f"*{_ANSWER}"))
        if self._asked >= len(answers):
            msg = f"{self.folder} has only {len(answers)} recorded answers (*{_ANSWER}), but one more is needed"
            raise ProviderError(msg)
        self._asked += 1
        return answers[self._asked - 1].read_text(encoding="utf-8")


@dataclass(slots=True)
class Recorded:
    """Another provider whose questions and answers are saved for a replay."""

    provider: Provider
    folder: Path
    _asked: int = field(default=0, init=False)

    @property
    def name(self) -> str:
        """That of the provider itself."""
        return self.provider.name

    def ask(self, question: str) -> str:
        """The provider's answer, saved before it is used."""
        self._asked += 1
        write_atomically(self.folder / f"{self._asked:02}-{_QUESTION}", question.encode())
        answer = self.provider.ask(question)
        write_atomically(self.folder / f"{self._asked:02}-{_ANSWER}", answer.encode())
        return answer


# --- Claude Code by its command line, with read-only tools ---


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
            msg = f"{self.program} failed (exit code {done.returncode}): {reason or 'no message'}"
            raise ProviderError(msg)
        return reply.result


# --- Claude Code by its Python package, with read-only tools ---


@dataclass(frozen=True, slots=True)
class ClaudeSdk:
    """claude_agent_sdk.query(), one question at a time."""

    folder: Path | None = None  # what it may read beside the question
    timeout_s: float = 600
    name: str = "claude-agent-sdk"

    def ask(self, question: str) -> str:
        """The final text of one query."""
        try:
            import claude_agent_sdk as sdk
        except ImportError as error:
            raise MissingExtraError(needed_for="asking Claude by its Python package", extra="agent") from error
        from concurrent.futures import ThreadPoolExecutor  # slow to import, as asyncio is, and needed here alone

        try:
            with ThreadPoolExecutor(max_workers=1) as apart:  # a caller may be inside an event loop of its own
                return apart.submit(self._ask_and_wait, question).result()
        except TimeoutError as error:
            msg = f"claude-agent-sdk gave no answer within {self.timeout_s:.0f} s"
            raise ProviderError(msg) from error
        except sdk.ClaudeSDKError as error:
            msg = f"claude-agent-sdk failed: {error}"
            raise ProviderError(msg) from error

    def _ask_and_wait(self, question: str) -> str:
        import asyncio

        return asyncio.run(asyncio.wait_for(self._ask(question), self.timeout_s))

    async def _ask(self, question: str) -> str:
        from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query

        options = ClaudeAgentOptions(allowed_tools=list(READING_TOOLS), cwd=self.folder)
        answer = None
        async for message in query(prompt=question, options=options):
            if isinstance(message, ResultMessage):
                if message.is_error:
                    msg = f"claude-agent-sdk failed: {message.result or 'no message'}"
                    raise ProviderError(msg)
                answer = message.result
        if answer is None:
            msg = "claude-agent-sdk ended without an answer"
            raise ProviderError(msg)
        return str(answer)
