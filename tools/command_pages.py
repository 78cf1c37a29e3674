"""Write the --help text of every command into its page under docs/commands; `--check` only compares."""

import re
import sys
from pathlib import Path

import click

from torchstone.cli import tt_memory_profiler, tt_model_analysis, ttmem
from torchstone.cli.main import cli

PAGES = Path(__file__).parent.parent / "docs" / "commands"
_PROGRAMS: dict[str, click.Command] = {
    "torchstone": cli,
    "ttmem": ttmem.command,
    "tt-memory-profiler": tt_memory_profiler.command,
    "tt-model-analysis": tt_model_analysis.command,
}
_WIDTH = 100
_BLOCK = re.compile(r"<!-- help: (?P<words>[^>]+?) -->\n.*?<!-- /help -->", re.DOTALL)


def page_with_help(text: str) -> str:
    """A page with the help text of each command it marks."""
    return _BLOCK.sub(lambda found: _block(found["words"]), text)


def _block(words: str) -> str:
    return f"<!-- help: {words} -->\n```text\n{help_of(words)}\n```\n<!-- /help -->"


def help_of(words: str) -> str:
    """What a command prints for --help, at the width the pages have."""
    program, *path = words.split()
    command = _PROGRAMS[program]
    context = click.Context(command, info_name=program, terminal_width=_WIDTH, **command.context_settings)
    for name in path:
        found = command.get_command(context, name) if isinstance(command, click.Group) else None
        if found is None:
            msg = f"a page marks the help of `{words}`, but there is no command {name}"
            raise SystemExit(msg)
        command = found
        context = click.Context(command, info_name=name, parent=context, **command.context_settings)
    return command.get_help(context)


def main() -> int:
    """Rewrite the pages, or with --check say which are out of date."""
    stale = []
    for page in sorted(PAGES.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        fresh = page_with_help(text)
        if fresh != text:
            stale.append(page.name)
            if "--check" not in sys.argv:
                page.write_text(fresh, encoding="utf-8")
    if stale:
        print(f"{'out of date' if '--check' in sys.argv else 'rewritten'}: {', '.join(stale)}")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
