"""The chart library, from the installed `plotly` package; a page without charts does not carry it."""

from importlib.util import find_spec
from pathlib import Path

EXTRA = "report"  # pip install 'torchstone[report]'


def plotly_source() -> str | None:
    """The library's code; None where the package is not installed."""
    spec = find_spec("plotly")
    if spec is None or spec.origin is None:
        return None
    bundle = Path(spec.origin).parent / "package_data" / "plotly.min.js"
    return bundle.read_text(encoding="utf-8") if bundle.is_file() else None
