"""What the documentation site needs beside mkdocs.yml: its navigation from folders, and links that leave docs/.

mkdocs calls the functions here (see `hooks` in mkdocs.yml).
"""

import re
from pathlib import Path, PurePosixPath
from typing import Any

_LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)#]+)(?:#[^)]*)?\)")
_FENCE = re.compile(r"^```", re.MULTILINE)


def on_config(config: Any) -> Any:
    """Fill the navigation: a name of a folder stands for its pages; Explanation lists what no other part has."""
    docs = Path(config["docs_dir"])
    for entry in config["nav"]:
        ((part, pages),) = entry.items()
        for place, page in enumerate(pages):
            if page == {"Commands": "commands"}:
                pages[place] = {"Commands": [f"commands/{name}" for name in _pages(docs / "commands")]}
        if part == "Explanation":
            named = {"architecture.md", "formats.md"}
            pages += [f"how-it-works/{name}" for name in _pages(docs / "how-it-works") if name not in named]
            pages += ["security.md", {"Decisions": [f"decisions/{name}" for name in _pages(docs / "decisions")]}]
            pages.append({"Coming from": [f"coming-from/{name}" for name in _pages(docs / "coming-from")]})
    return config


def _pages(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.md") if path.name != "README.md")


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links to files outside docs/ (the source, the examples) become their text: the site does not have them."""
    del config, files
    folder = PurePosixPath(page.file.src_uri).parent

    def plain(found: re.Match[str]) -> str:
        steps = found[2].count("../")
        return found[0] if steps <= len(folder.parts) else f"`{found[2].replace('../', '')}`"

    parts = _FENCE.split(markdown)  # every second part is code
    return "```".join(part if number % 2 else _LINK.sub(plain, part) for number, part in enumerate(parts))
