import re
from pathlib import Path

import pytest

from tests.architecture.repository import ROOT, load_tool, settings
from torchstone.cli.main import COMMANDS

DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])
_LINK = re.compile(r"\]\((?P<target>[^)#\s]+)(#[^)]*)?\)")
_CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^(?:\$ )?torchstone (?P<name>[a-z-]+)", re.MULTILINE)


def test_every_command_has_its_page() -> None:
    missing = [name for name in COMMANDS if not (DOCS / "commands" / f"{name}.md").is_file()]

    assert missing == []


@pytest.mark.parametrize("name", [name for name in COMMANDS if (DOCS / "commands" / f"{name}.md").is_file()])
def test_the_page_of_a_command_shows_its_help_of_today(name: str) -> None:
    page = (DOCS / "commands" / f"{name}.md").read_text(encoding="utf-8")

    assert f"<!-- help: torchstone {name} -->" in page
    assert load_tool("command_pages").page_with_help(page) == page, "run `make docs`"


def test_the_table_of_folders_is_that_of_today() -> None:
    tool = load_tool("folder_table")
    page = tool.PAGE.read_text(encoding="utf-8")

    assert "<!-- folders -->" in page
    assert "<!-- layers -->" in page
    assert tool.page_with_table(page) == page, "run `make docs`"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_readme_shows_every_command(name: str) -> None:
    assert f"torchstone {name}" in README


def test_the_readme_gives_the_two_commands_that_do_everything() -> None:
    assert "make demo" in README
    assert "make test" in README


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_shows_only_commands_that_exist(page: Path) -> None:
    blocks = "".join(_CODE.findall(page.read_text(encoding="utf-8")))
    shown = {found["name"] for found in _COMMAND.finditer(blocks)}

    assert shown <= set(COMMANDS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    targets = [found["target"] for found in _LINK.finditer(page.read_text(encoding="utf-8"))]
    local = [target for target in targets if "://" not in target and not target.startswith("mailto:")]

    assert [target for target in local if not (page.parent / target).exists()] == []


@pytest.mark.parametrize(
    "target", re.findall(r"`make ([a-z-]+)`", "\n".join(page.read_text("utf-8") for page in PAGES))
)
def test_a_make_target_that_is_written_about_exists(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


def test_changelog_fragments_have_names_that_towncrier_reads() -> None:
    kinds = {kind["directory"] for kind in settings()["tool"]["towncrier"]["type"]}
    names = [path.name for path in (ROOT / "changelog.d").iterdir() if path.name != "template.md.jinja"]

    assert [name for name in names if not re.fullmatch(rf"[a-z0-9-]+\.({'|'.join(kinds)})\.md", name)] == []


def test_changelog_fragments_are_sentences() -> None:
    fragments = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "changelog.d").glob("*.md")}

    assert [name for name, text in fragments.items() if not text.rstrip().endswith(".")] == []
