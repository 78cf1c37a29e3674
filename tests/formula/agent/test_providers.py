from pathlib import Path

import pytest

from tests.formula.agent.subjects import Scripted
from torchstone.formula.agent.providers import Provider, ProviderError, Recorded, Replay


def test_recorded_answers_come_in_the_order_of_their_names(tmp_path: Path) -> None:
    (tmp_path / "02-answer.txt").write_text("second")
    (tmp_path / "01-answer.txt").write_text("first")
    (tmp_path / "01-question.txt").write_text("what?")
    replay: Provider = Replay(tmp_path)

    assert [replay.ask("?"), replay.ask("?")] == ["first", "second"]
    with pytest.raises(ProviderError, match="has only 2 recorded answers"):
        replay.ask("?")


def test_what_is_recorded_can_be_replayed(tmp_path: Path) -> None:
    recorded: Provider = Recorded(Scripted(["one", "two"]), tmp_path / "new")
    asked = [recorded.ask("A"), recorded.ask("B")]
    replay = Replay(tmp_path / "new")

    assert recorded.name == "scripted"
    assert asked == [replay.ask("A"), replay.ask("B")] == ["one", "two"]
    assert (tmp_path / "new" / "02-question.txt").read_text() == "B"
