"""Files that were checked, and whether they are still what they were."""

from collections.abc import Iterable
from hashlib import file_digest
from pathlib import Path

from torchstone.record.checklist import Checklist


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def seals(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """The SHA-256 of each file by name; a file that is not there has none."""
    return {name: sha256_of(folder / name) for name in names if (folder / name).is_file()}


def broken_seals(folder: Path, checklist: Checklist) -> list[str]:
    """What has become of the checked files, in words; nothing when all are as they were."""
    now = seals(folder, checklist.seals)
    return [
        f"{name} was changed after it was checked" if name in now else f"{name} was checked, and is gone"
        for name, sealed in checklist.seals.items()
        if now.get(name) != sealed
    ]
