import re

from tests.architecture.repository import ROOT, name_of, tracked_files

_HOME, _WORK = "ro" + "ot", "wo" + "rk"  # in parts, so that this file may say them
MACHINE_PATHS = re.compile(rf"(?<![\w.])/({_HOME}|{_WORK}|home/\w+)/")
REGISTRIES = re.compile("|".join(("py" + r"pi\.org", "files" + r"\.python" + "hosted", "download" + r"\.pytorch\.org")))
BIGGEST_BYTES = 1_000_000
SHIPPED_BYTES = {"src/torchstone/formula/module_db.json": 2_500_000}  # data of the package, written by a tool


def lines_with(pattern: re.Pattern[str]) -> list[str]:
    found = []
    for path in tracked_files():
        text = path.read_bytes().decode("utf-8", "replace")
        found += [
            f"{name_of(path)}:{number}" for number, line in enumerate(text.splitlines(), 1) if pattern.search(line)
        ]
    return found


def test_no_file_names_a_path_of_the_machine_it_was_written_on() -> None:
    assert lines_with(MACHINE_PATHS) == []


def test_no_file_names_a_package_registry() -> None:
    assert lines_with(REGISTRIES) == []


def test_no_large_file_is_tracked() -> None:
    sizes = {name_of(path): path.stat().st_size for path in tracked_files()}
    assert [name for name, size in sizes.items() if size > SHIPPED_BYTES.get(name, BIGGEST_BYTES)] == []


def test_every_hashed_package_has_the_version_that_is_pinned() -> None:
    pinned = dict(re.findall(r"(?m)^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text()))
    hashed = re.findall(
        r"(?m)^([\w.-]+)==(\S+) --hash=sha256:[0-9a-f]{64}$", (ROOT / "constraints-hashes.txt").read_text()
    )
    pins = {name.lower().replace("_", "-"): version for name, version in pinned.items()}

    assert len(hashed) > 50
    wrong = [name for name, found in hashed if pins.get(name.lower().replace("_", "-")) != found.partition("+")[0]]
    assert wrong == []
