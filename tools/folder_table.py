"""Write the table of folders, one arrow each, into docs/how-it-works/architecture.md; `--check` only compares."""

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "torchstone"
PAGE = ROOT / "docs" / "how-it-works" / "architecture.md"
_BLOCK = re.compile(r"<!-- folders -->\n.*?<!-- /folders -->", re.DOTALL)


def arrow_of(folder: Path) -> str:
    """What a folder does: the first line of its docstring."""
    docstring = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0]


def folders() -> list[Path]:
    """The folders of the package, by name."""
    return sorted(path.parent for path in PACKAGE.glob("*/__init__.py"))


def page_with_table(text: str) -> str:
    """The page with the table as the folders say it today."""
    rows = [f"| `{folder.name}/` | {arrow_of(folder)} |" for folder in folders()]
    table = "\n".join(["| folder | in -> out |", "|---|---|", *rows])
    return _BLOCK.sub(lambda _: f"<!-- folders -->\n{table}\n<!-- /folders -->", text)


def main() -> int:
    """Rewrite the page, or with --check say whether it is out of date."""
    text = PAGE.read_text(encoding="utf-8")
    fresh = page_with_table(text)
    if fresh == text:
        return 0
    if "--check" in sys.argv:
        print(f"out of date: {PAGE.name}")
        return 1
    PAGE.write_text(fresh, encoding="utf-8")
    print(f"rewritten: {PAGE.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
