import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.workflows.formula_recipes import LINEAR, RECIPES
from torchstone.errors import FormulaError, InputError, UnreadableFileError
from torchstone.formula.agent.providers import ClaudeCommand, ClaudeSdk, Recorded, Replay
from torchstone.formula.database.files import own_entries
from torchstone.workflows.formula_agent import AgentRequest, ask_agent, choose_provider, read_setting

SETTINGS = ({"n": 4, "i": 8, "o": 2}, {"n": 1, "i": 3, "o": 5})


class Notes:
    """Progress that keeps its notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    @contextmanager
    def step(self, title: str) -> Iterator[None]:  # noqa: ARG002 - the protocol's signature
        yield

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("TORCHSTONE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def answers(folder: Path, *flops: str) -> Path:
    memory = {
        "parameters": ["n", "i", "o"],
        "reads_template": "4 * (n * i + i * o)",
        "writes_template": "4 * n * o",
    }
    for number, template in enumerate(flops):
        analysis = {"parameters": ["n", "i", "o"], "formula_template": template, "thinking_process": ""}
        text = json.dumps({"flop_analysis": analysis, "memory_analysis": memory})
        (folder / f"{number:02}-answer.txt").write_text(text)
    return folder


def request(folder: Path, *, because: str = "it is a test") -> AgentRequest:
    return AgentRequest(
        class_path=LINEAR, recipe=f"{RECIPES}::linear", settings=SETTINGS, provider="replay", answers=folder,
        rounds=2, because=because,
    )  # fmt: skip


def test_a_correct_answer_is_stored_as_pending(home: Path, tmp_path: Path) -> None:
    progress = Notes()
    result = ask_agent(request(answers(tmp_path, "2 * n * i", "2 * n * i * o")), progress=progress)

    assert result.accepted
    assert result.path == home / "module_db.json"
    assert [one.validation.status for one in own_entries(home).modules.values()] == ["pending"]
    assert progress.notes[0].startswith("round 1: at n=4, i=8, o=2 the formula gives 64 flops, but 128 were measured")
    assert progress.notes[1] == "round 2: exact at every measured point"


def test_without_a_correct_answer_nothing_is_stored(home: Path, tmp_path: Path) -> None:
    result = ask_agent(request(answers(tmp_path, "0", "1")))

    assert (result.accepted, result.path, len(result.outcome.attempts)) == (False, None, 2)
    assert not home.exists()


@pytest.mark.usefixtures("home")
def test_a_class_that_can_be_derived_needs_no_agent(tmp_path: Path) -> None:
    with pytest.raises(FormulaError, match=r"needs no agent, it can be derived: .* --sizes n,i,o"):
        ask_agent(request(tmp_path, because=""))


def test_a_setting_is_whole_numbers() -> None:
    assert read_setting("B=2, S=4*4") == {"B": 2, "S": 16}
    for text in ("B=1/2", ""):
        with pytest.raises(InputError, match="is not a setting of integers"):
            read_setting(text)


def test_a_provider_has_the_name_it_is_chosen_by(tmp_path: Path) -> None:
    assert choose_provider("claude", None, tmp_path) == ClaudeCommand(tmp_path)
    assert choose_provider("claude-sdk", None, tmp_path) == ClaudeSdk(tmp_path)
    assert choose_provider("replay", tmp_path, None) == Replay(tmp_path)


def test_a_folder_for_answers_records_them(tmp_path: Path) -> None:
    assert choose_provider("claude", tmp_path, None) == Recorded(ClaudeCommand(None), tmp_path)


@pytest.mark.parametrize("folder", [None, Path("no-such-folder")])
def test_recorded_answers_must_be_there(folder: Path | None) -> None:
    with pytest.raises(UnreadableFileError, match="needs --answers with a folder"):
        choose_provider("replay", folder, None)
