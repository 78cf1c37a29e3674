from pathlib import Path

import pytest

from torchstone.cli.formula_provider import chosen_provider
from torchstone.errors import UnreadableFileError
from torchstone.formula.agent.claude_command import ClaudeCommand
from torchstone.formula.agent.claude_sdk import ClaudeSdk
from torchstone.formula.agent.providers import Recorded, Replay


def test_a_provider_has_the_name_it_is_chosen_by(tmp_path: Path) -> None:
    assert chosen_provider("claude", None, tmp_path) == ClaudeCommand(tmp_path)
    assert chosen_provider("claude-sdk", None, tmp_path) == ClaudeSdk(tmp_path)
    assert chosen_provider("replay", tmp_path, None) == Replay(tmp_path)


def test_a_folder_for_answers_records_them(tmp_path: Path) -> None:
    assert chosen_provider("claude", tmp_path, None) == Recorded(ClaudeCommand(None), tmp_path)


@pytest.mark.parametrize("folder", [None, Path("no-such-folder")])
def test_recorded_answers_must_be_there(folder: Path | None) -> None:
    with pytest.raises(UnreadableFileError, match="needs --answers with a folder"):
        chosen_provider("replay", folder, None)
