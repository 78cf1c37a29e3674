"""Make the pictures of the documentation from real reports.

`PYTHONPATH=src:. python tools/docs_pictures.py KIND=FOLDER ...` writes PNG files to docs/pictures, and needs Chromium
and playwright. The kinds are `inspect` (of meta-llama/Llama-2-7b-hf, with --dir), `analyze` (of `make demo`) and `diff`
(with --dir).
"""

import sys
from pathlib import Path

from tests.report.browser import Theme, chromium, opened
from torchstone.report.render import write_report

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
MAX_BYTES = 200_000
SHOTS: dict[str, tuple[tuple[str, str, Theme], ...]] = {
    "inspect": (
        ("overview-light", "", "light"),
        ("overview-dark", "", "dark"),
        ("modules-light", "#tab=modules&node=model.layers.0.self_attn", "light"),
        ("modules-dark", "#tab=modules&node=model.layers.0.self_attn", "dark"),
        ("operators-light", "#tab=operators&op=aten.mm.default", "light"),
        ("graph-light", "#tab=graph&at=4&box=6", "light"),
        ("graph-dark", "#tab=graph&at=4&box=6", "dark"),
    ),
    "analyze": (("answers-light", "", "light"), ("answers-dark", "", "dark")),
    "diff": (("side-by-side-light", "#tab=panes", "light"), ("side-by-side-dark", "#tab=panes", "dark")),
}


def main() -> None:
    """Write every picture, each small enough for the repository."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    for given in sys.argv[1:]:
        kind, _, folder = given.partition("=")
        _take(write_report(Path(folder), source=kind != "inspect"), SHOTS[kind])


def _take(page_path: Path, shots: tuple[tuple[str, str, Theme], ...]) -> None:
    with chromium() as browser:
        for name, address, theme in shots:
            with opened(browser, page_path, address, theme=theme) as page:
                page.add_style_tag(content="body > .banner { display: none }")  # the note about names left out
                page.wait_for_timeout(300)
                picture = page.screenshot()
            if len(picture) > MAX_BYTES:
                sys.exit(f"{name} takes {len(picture)} bytes, more than {MAX_BYTES}")
            (PICTURES / f"{name}.png").write_bytes(picture)
            print(f"{name}.png {len(picture) / 1000:.0f} kB")


if __name__ == "__main__":
    main()
