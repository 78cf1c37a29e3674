"""Write the --help text of every command into its page under docs/commands; `--check` only compares."""

import re
import subprocess
import sys
from pathlib import Path

PAGES = Path(__file__).parent.parent / "docs" / "commands"
_BLOCK = re.compile(r"<!-- help: (?P<words>[^>]+?) -->\n.*?<!-- /help -->", re.DOTALL)


def page_with_help(text: str) -> str:
    """A page with the help text of each command it marks."""
    return _BLOCK.sub(lambda found: _block(found["words"]), text)


def _block(words: str) -> str:
    return f"<!-- help: {words} -->\n```text\n{help_of(words)}```\n<!-- /help -->"


def help_of(words: str) -> str:
    """What a command prints for --help, at the width the pages have."""
    command = [str(Path(sys.executable).parent / words.split(maxsplit=1)[0]), *words.split()[1:], "--help"]
    environment = {"COLUMNS": "100", "TERMINAL_WIDTH": "100", "PATH": "", "LANG": "C.UTF-8", "HOME": ""}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)  # noqa: S603 - ours
    return done.stdout


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
