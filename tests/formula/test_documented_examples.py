import re
from pathlib import Path

import pytest

from torchstone.cli.main import run
from torchstone.formula import compute_flops, compute_memory
from torchstone.formula.database.files import DATABASE_FILE, load_formulas, own_entries
from torchstone.formula.database.templates import problems_of

DOCS = Path(__file__).parent.parent.parent / "docs"
_BLOCK = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: str, language: str) -> list[str]:
    text = (DOCS / page).read_text("utf-8")
    return [found["text"] for found in _BLOCK.finditer(text) if found["language"] == language]


def test_the_numbers_beside_the_first_example_are_right() -> None:
    (example,) = blocks("how-it-works/formulas.md", "python")
    memory = compute_memory("MLP", B=1, S=8, hidden_size=4, intermediate_size=16)

    assert (
        f"# {compute_flops('torch.nn.Linear', batch_elements=2048, input_features=4096, output_features=4096)}"
        in example
    )
    assert f"# {memory}" in example


def test_the_entry_of_the_guide_has_no_mistakes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCHSTONE_HOME", str(tmp_path))
    (document,) = blocks("extend/add-a-formula.md", "json")
    (tmp_path / DATABASE_FILE).write_text(document)

    known = load_formulas()
    assert list(problems_of(known)) == []
    assert known.own == {"mylib__layers__Mixer"}
    assert compute_flops("Mixer", B=2, S=3, hidden=5) == 2 * (2 * 5) * 9 + 30 + 2 * 6 * 25


def test_the_python_of_the_guide_keeps_an_entry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCHSTONE_HOME", str(tmp_path))
    (_, example) = blocks("extend/add-a-formula.md", "python")
    exec(compile(example, "add-a-formula.md", "exec"), {})  # noqa: S102 - an example of our own

    assert set(own_entries().modules) == {"mylib__layers__Scale"}


@pytest.mark.parametrize(
    "text", [block for block in blocks("commands/formula.md", "") if block.startswith("$ torchstone")]
)
def test_what_the_page_shows_is_what_the_command_prints(
    text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    command, _, output = text.removeprefix("$ torchstone ").partition("\n")
    assert run(command.split()) == 0

    shown = capsys.readouterr().out
    if "..." in output:
        assert shown.startswith(output.removesuffix("...\n"))
    elif output.startswith("$ python"):
        assert "2176" in output
        assert compute_flops("MLP", B=1, S=8, hidden_size=4, intermediate_size=16) == 2176
    else:
        assert shown == output
