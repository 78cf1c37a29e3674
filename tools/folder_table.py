"""Write folders and layers into docs/how-it-works/architecture.md; `--check` only compares."""

import ast
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "torchstone"
PAGE = ROOT / "docs" / "how-it-works" / "architecture.md"


def arrow_of(folder: Path) -> str:
    """What a folder does: the first line of its docstring."""
    docstring = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0]


def folders() -> list[Path]:
    """The folders of the package, by name."""
    return sorted(path.parent for path in PACKAGE.glob("*/__init__.py"))


def layers() -> list[str]:
    """The layers that import-linter holds, top to bottom."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    return [layer for contract in contracts if contract["type"] == "layers" for layer in contract["layers"]]


def page_with_table(text: str) -> str:
    """The page with the folders and layers of today."""
    rows = [f"| `{folder.name}/` | {arrow_of(folder)} |" for folder in folders()]
    table = "\n".join(["| folder | in -> out |", "|---|---|", *rows])
    return _with_block(_with_block(text, "folders", table), "layers", "\n".join(["```text", *layers(), "```"]))


def _with_block(text: str, name: str, content: str) -> str:
    block = re.compile(rf"<!-- {name} -->\n.*?<!-- /{name} -->", re.DOTALL)
    return block.sub(lambda _: f"<!-- {name} -->\n{content}\n<!-- /{name} -->", text)


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
