"""Make the pictures of the documentation from a real report.

`PYTHONPATH=src:. python tools/docs_pictures.py FOLDER` takes a report folder (as
`torchstone inspect meta-llama/Llama-2-7b-hf --dir FOLDER` leaves it) and writes PNG files to docs/pictures. It needs
Chromium and playwright.
"""

import sys
from pathlib import Path

from tests.report.browser import Theme, chromium, opened
from torchstone.report.render import write_report

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
MAX_BYTES = 200_000
SHOTS: tuple[tuple[str, str, Theme], ...] = (
    ("overview-light", "", "light"),
    ("overview-dark", "", "dark"),
    ("modules-light", "#tab=modules&node=model.layers.0.self_attn", "light"),
    ("modules-dark", "#tab=modules&node=model.layers.0.self_attn", "dark"),
    ("operators-light", "#tab=operators&op=aten.mm.default", "light"),
    ("graph-light", "#tab=graph&at=4&box=6", "light"),
    ("graph-dark", "#tab=graph&at=4&box=6", "dark"),
)


def main() -> None:
    """Write every picture, each small enough for the repository."""
    page_path = write_report(Path(sys.argv[1]), source=False)
    PICTURES.mkdir(parents=True, exist_ok=True)
    with chromium() as browser:
        for name, address, theme in SHOTS:
            with opened(browser, page_path, address, theme=theme) as page:
                page.add_style_tag(content=".banner { display: none }")  # the banner has its own words in the docs
                page.wait_for_timeout(300)
                picture = page.screenshot()
            if len(picture) > MAX_BYTES:
                sys.exit(f"{name} takes {len(picture)} bytes, more than {MAX_BYTES}")
            (PICTURES / f"{name}.png").write_bytes(picture)
            print(f"{name}.png {len(picture) / 1000:.0f} kB")


if __name__ == "__main__":
    main()
