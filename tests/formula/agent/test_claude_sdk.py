import asyncio
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import ModuleType

import pytest

from torchstone.errors import MissingExtraError
from torchstone.formula.agent.providers import ClaudeSdk, ProviderError


class ClaudeSDKError(Exception):
    pass


@dataclass
class ClaudeAgentOptions:
    allowed_tools: list[str] = field(default_factory=list)
    cwd: object = None


@dataclass
class ResultMessage:
    result: str | None = None
    is_error: bool = False


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A stand-in with the names that are used of the real package."""
    module = ModuleType("claude_agent_sdk")
    for one in (ClaudeSDKError, ClaudeAgentOptions, ResultMessage):
        setattr(module, one.__name__, one)
    monkeypatch.setitem(sys.modules, "claude_agent_sdk", module)
    return module


def answers(*messages: object, error: Exception | None = None, wait_s: float = 0) -> object:
    async def query(*, prompt: str, options: ClaudeAgentOptions) -> AsyncIterator[object]:
        assert options.allowed_tools == ["Read", "Grep", "Glob"]
        await asyncio.sleep(wait_s)
        for message in messages:
            yield ResultMessage(result=f"{prompt} {message.result}") if isinstance(message, ResultMessage) else message
        if error is not None:
            raise error

    return query


def test_the_result_of_a_query_is_the_answer(package: ModuleType) -> None:
    package.query = answers("thinking", ResultMessage(result="42"))  # type: ignore[attr-defined]

    assert ClaudeSdk().ask("six times seven?") == "six times seven? 42"


def test_a_failure_of_the_package_is_one_sentence(package: ModuleType) -> None:
    package.query = answers(error=ClaudeSDKError("not logged in"))  # type: ignore[attr-defined]

    with pytest.raises(ProviderError, match="claude-agent-sdk failed: not logged in"):
        ClaudeSdk().ask("?")


def test_a_query_without_a_result_is_an_error(package: ModuleType) -> None:
    package.query = answers("thinking")  # type: ignore[attr-defined]

    with pytest.raises(ProviderError, match="ended without an answer"):
        ClaudeSdk().ask("?")


def test_a_query_that_never_ends_is_given_up(package: ModuleType) -> None:
    package.query = answers(ResultMessage(result="late"), wait_s=30)  # type: ignore[attr-defined]

    with pytest.raises(ProviderError, match="gave no answer within 0 s"):
        ClaudeSdk(timeout_s=0.1).ask("?")


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "claude_agent_sdk", None)

    with pytest.raises(MissingExtraError, match=r"torchstone\[agent\]"):
        ClaudeSdk().ask("?")


def test_a_caller_inside_an_event_loop_is_answered_too(package: ModuleType) -> None:
    package.query = answers(ResultMessage(result="42"))  # type: ignore[attr-defined]

    async def ask() -> str:
        return ClaudeSdk().ask("six times seven?")

    with ThreadPoolExecutor(max_workers=1) as apart:  # a browser test in this thread may have a loop running
        assert apart.submit(asyncio.run, ask()).result() == "six times seven? 42"
