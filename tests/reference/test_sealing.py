from hashlib import sha256
from pathlib import Path

from torchstone.record.reference import Checklist
from torchstone.reference.golden_files import changed_files, checksums, sha256_of


def sealed(folder: Path) -> Checklist:
    for name in ("a.csv", "b.csv", "c.csv"):
        (folder / name).write_text(name)
    found = checksums(folder, ("a.csv", "b.csv", "c.csv", "never.csv"))
    return Checklist(model="net", complete=True, boxes=(), seals=found)


def test_the_seal_is_the_sha256_of_the_file(tmp_path: Path) -> None:
    checklist = sealed(tmp_path)

    assert list(checklist.seals) == ["a.csv", "b.csv", "c.csv"]
    assert checklist.seals["a.csv"] == sha256_of(tmp_path / "a.csv") == sha256(b"a.csv").hexdigest()
    assert changed_files(tmp_path, checklist) == []


def test_files_that_were_changed_or_are_gone_are_named(tmp_path: Path) -> None:
    checklist = sealed(tmp_path)
    (tmp_path / "a.csv").write_text("other")
    (tmp_path / "b.csv").unlink()

    assert changed_files(tmp_path, checklist) == [
        "a.csv was changed after it was checked",
        "b.csv was deleted after it was checked",
    ]
