"""Write a page under docs/findings for every kind of finding of a check; `--check` only compares."""

import sys
from pathlib import Path

from torchstone.check.known_findings import explanation, finding_kinds

PAGES = Path(__file__).parent.parent / "docs" / "findings"
_MARK = "<!-- written by tools/finding_pages.py from src/torchstone/check/findings.toml -->\n\n"
_HEAD = """# Findings

Every finding of [`torchstone check`](../commands/check.md) has the id of its kind. `torchstone check explain ID` prints
the text of its page. An id never changes its meaning.

"""


def pages() -> dict[str, str]:
    """The text of every page by its file name."""
    rows = [f"- [{code}]({code}.md): {kind.title}" for code, kind in finding_kinds().items()]
    found = {f"{code}.md": _MARK + explanation(code) for code in finding_kinds()}
    return found | {"README.md": _MARK + _HEAD + "\n".join(rows) + "\n"}


def main() -> int:
    """Rewrite the pages, or with --check say which are out of date."""
    wanted = pages()
    PAGES.mkdir(exist_ok=True)
    known = {path.name: path.read_text(encoding="utf-8") for path in PAGES.glob("*.md")}
    stale = sorted(name for name in {*wanted, *known} if wanted.get(name) != known.get(name))
    if "--check" not in sys.argv:
        for name in stale:
            if name in wanted:
                (PAGES / name).write_text(wanted[name], encoding="utf-8")
            else:
                (PAGES / name).unlink()
    if stale:
        print(f"{'out of date' if '--check' in sys.argv else 'rewritten'}: {', '.join(stale)}")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
