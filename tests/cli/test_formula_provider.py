from pathlib import Path

from torchstone.cli.formula_provider import chosen_provider
from torchstone.formula.agent.claude_command import ClaudeCommand


def test_the_options_stand_for_a_provider(tmp_path: Path) -> None:
    assert chosen_provider("claude", None, tmp_path) == ClaudeCommand(tmp_path)
