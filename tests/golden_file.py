"""Output that is kept in a file and compared."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenFile:
    """The kept output of one test; `pytest --regenerate` writes it anew, and the diff is reviewed."""

    path: Path
    regenerate: bool

    def check(self, text: str) -> None:
        if self.regenerate:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(text + "\n", encoding="utf-8")
        kept = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
        assert text + "\n" == kept, f"not as kept in {self.path.name}; if it should be so: pytest --regenerate"
