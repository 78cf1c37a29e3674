"""Claude Code by its Python package, with tools that can only read."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from torchstone.errors import MissingExtraError
from torchstone.formula.agent.claude_command import READING_TOOLS
from torchstone.formula.agent.providers import ProviderError


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
        return asyncio.run(asyncio.wait_for(self._ask(question), self.timeout_s))

    async def _ask(self, question: str) -> str:
        from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query

        options = ClaudeAgentOptions(allowed_tools=list(READING_TOOLS), cwd=self.folder)
        answer = None
        async for message in query(prompt=question, options=options):
            if isinstance(message, ResultMessage):
                if message.is_error:
                    msg = f"claude-agent-sdk failed: {message.result or 'it said nothing'}"
                    raise ProviderError(msg)
                answer = message.result
        if answer is None:
            msg = "claude-agent-sdk ended without an answer"
            raise ProviderError(msg)
        return str(answer)
