"""What every page is made with: assets, templates, and what the browser may do with it."""

from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

import jinja2
import msgspec
from markupsafe import Markup


@cache
def asset(name: str) -> str:
    """The text of a file in report/assets."""
    return (files("torchstone.report") / "assets" / name).read_text(encoding="utf-8")


@cache
def templates() -> jinja2.Environment:
    """The templates; what goes into them is escaped, and a name that is missing is an error."""
    loader = jinja2.PackageLoader("torchstone.report")
    return jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)


def policy(*scripts: str) -> str:
    """What the browser may do with a page: run exactly these scripts, fetch nothing."""
    hashes = " ".join(f"'sha256-{_digest(text)}'" for text in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "form-action 'none'; base-uri 'none'"
    )


def for_script(document: dict[str, Any]) -> Markup:
    """JSON that is safe inside a script element: no `<` can end it."""
    text = msgspec.json.encode(document).decode().replace("<", "\\u003c").replace(">", "\\u003e")
    return Markup(text)  # noqa: S704 - escaped in the line above


def _digest(text: str) -> str:
    return b64encode(sha256(text.encode()).digest()).decode("ascii")
