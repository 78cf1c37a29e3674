import re
from pathlib import Path

from tests.architecture.repository import PACKAGE, ROOT, load_tool, name_of, settings
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


def test_every_page_of_a_command_shows_its_help_of_today() -> None:
    tool = load_tool("command_pages")
    pages = {name: (DOCS / "commands" / f"{name}.md").read_text(encoding="utf-8") for name in COMMANDS}

    assert [name for name, page in pages.items() if f"<!-- help: torchstone {name} -->" not in page] == []
    assert [name for name, page in pages.items() if tool.page_with_help(page) != page] == [], "run `make docs`"


def test_the_table_of_folders_is_that_of_today() -> None:
    tool = load_tool("folder_table")
    page = tool.PAGE.read_text(encoding="utf-8")

    assert "<!-- folders -->" in page
    assert "<!-- layers -->" in page
    assert tool.page_with_table(page) == page, "run `make docs`"


def test_the_readme_shows_every_command() -> None:
    assert [name for name in COMMANDS if f"torchstone {name}" not in README] == []


def test_the_readme_gives_the_two_commands_that_do_everything() -> None:
    assert "make demo" in README
    assert "make test" in README


def commands_shown_on(page: Path) -> set[str]:
    blocks = "".join(_CODE.findall(page.read_text(encoding="utf-8")))
    return {found["name"] for found in _COMMAND.finditer(blocks)}


def broken_links_of(page: Path) -> list[str]:
    targets = [found["target"] for found in _LINK.finditer(page.read_text(encoding="utf-8"))]
    local = [target for target in targets if "://" not in target and not target.startswith("mailto:")]
    return [target for target in local if not (page.parent / target).exists()]


def test_the_pages_show_only_commands_that_exist() -> None:
    unknown = {name_of(page): commands_shown_on(page) - set(COMMANDS) for page in PAGES}

    assert {name: commands for name, commands in unknown.items() if commands} == {}


def test_the_links_of_the_pages_lead_somewhere() -> None:
    broken = {name_of(page): broken_links_of(page) for page in PAGES}

    assert {name: targets for name, targets in broken.items() if targets} == {}


def test_the_make_targets_that_are_written_about_exist() -> None:
    written = {name for page in PAGES for name in re.findall(r"`make ([a-z-]+)`", page.read_text("utf-8"))}
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)

    assert written
    assert sorted(written - set(targets)) == []


def test_changelog_fragments_have_names_that_towncrier_reads() -> None:
    kinds = {kind["directory"] for kind in settings()["tool"]["towncrier"]["type"]}
    names = [path.name for path in (ROOT / "changelog.d").iterdir() if path.name != "template.md.jinja"]

    assert [name for name in names if not re.fullmatch(rf"[a-z0-9-]+\.({'|'.join(kinds)})\.md", name)] == []


def test_changelog_fragments_are_sentences() -> None:
    fragments = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "changelog.d").glob("*.md")}

    assert [name for name, text in fragments.items() if not text.rstrip().endswith(".")] == []


def files_named_on(page: Path) -> set[str]:
    """Files of the package as pages about the code name them: `capture/ops.py`."""
    named = re.findall(r"`([a-z_]+)/([a-z_0-9/]+\.py)`", page.read_text(encoding="utf-8"))
    return {f"{folder}/{file}" for folder, file in named if (PACKAGE / folder).is_dir()}


def test_the_source_files_that_pages_name_exist() -> None:
    named = {name_of(page): files_named_on(page) for page in (DOCS / "how-it-works").glob("*.md")}
    gone = {page: {file for file in files if not (PACKAGE / file).exists()} for page, files in named.items()}

    assert {page: files for page, files in gone.items() if files} == {}
