"""Logs on disk, for tests that start from a file."""

from pathlib import Path

from tests.memory.log_generator.device import Memory
from tests.memory.log_generator.run import Truth, generate
from tests.memory.log_generator.style import Style
from tests.memory.timelines import two_graphs


def log_in(
    folder: Path,
    *,
    seed: int = 3,
    passes: int = 2,
    name: str = "my_net.log",
    style: Style | None = None,
    memories: dict[str, Memory] | None = None,
) -> tuple[Path, Truth]:
    """A generated log as a file, with the truth about it."""
    text, truth = generate(two_graphs(seed), passes=passes, style=style, memories=memories)
    path = folder / name
    path.write_bytes(text)
    return path, truth
