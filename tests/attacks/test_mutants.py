"""Files that a reader once failed on, as tools/fuzz.py found them; and a short run of the fuzzer itself."""

import random
from pathlib import Path
from typing import Any

import pytest

from tests.architecture.repository import load_tool
from tests.attacks import mutations
from tests.attacks.readers import READERS

MUTANTS = sorted(path for path in (Path(__file__).parent / "mutants").rglob("*") if path.is_file())
MUTANTS_PER_READER = 60


@pytest.fixture(scope="module")
def fuzz() -> Any:
    return load_tool("fuzz")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_file_that_once_failed_is_rejected_or_read(mutant: Path, fuzz: Any) -> None:
    outcome = fuzz.attempt(READERS[mutant.parent.name].read, mutant.read_bytes(), None)

    assert outcome in (fuzz.REJECTED, fuzz.DIFFERENT)


@pytest.mark.parametrize("name", READERS)
def test_a_reader_survives_mutants_that_were_never_tried(name: str, fuzz: Any, tmp_path: Path) -> None:
    campaign = fuzz.Campaign(name, READERS[name], seed=7, failures=tmp_path)
    campaign.run(seconds=600, most=MUTANTS_PER_READER)

    assert dict(campaign.kinds) == {}
    assert campaign.mutants == MUTANTS_PER_READER


@pytest.mark.parametrize("name", ["trace", "bundle", "store", "journal", "log-gz", "safetensors", "npy"])
def test_mutation_is_reproducible_and_changes_the_file(name: str) -> None:
    reader = READERS[name]
    original = reader.corpus()[0]
    for mutate in (mutations.mutate_bytes, *reader.structures):
        first, second = ([mutate(original, random.Random(seed)) for seed in range(200)] for _ in range(2))  # noqa: S311
        assert first == second
        assert sum(one != original for one in first) > 150


@pytest.mark.parametrize("name", ["bundle", "npz", "log-gz", "store", "ttnn-database", "safetensors", "npy"])
def test_damage_inside_a_container_gets_past_its_checksums(name: str, fuzz: Any) -> None:
    """Otherwise a million mutants test nothing but the checksums."""
    reader = READERS[name]
    original = reader.corpus()[0]
    read = (reader.original or reader.read)(original)
    outcomes = {
        fuzz.attempt(reader.read, mutate(original, random.Random(seed)), read)  # noqa: S311
        for mutate in reader.structures
        for seed in range(300)
    }

    assert outcomes == {fuzz.REJECTED, fuzz.EQUAL, fuzz.DIFFERENT}


def test_a_reader_that_raises_hangs_or_lies_is_found(fuzz: Any) -> None:
    def raises(content: bytes) -> object:
        raise KeyError(content)

    assert fuzz.attempt(raises, b"x", None).startswith("failed: KeyError")
    assert fuzz.attempt(lambda content: content, b"x", b"x") == fuzz.EQUAL
    assert fuzz.attempt(lambda content: content, b"y", b"x") == fuzz.DIFFERENT
