import json
from pathlib import Path

import pytest

from tests.check.results import check_result, finding
from tests.cli.programs import torchstone
from torchstone.record.codec import save


@pytest.fixture
def two(tmp_path: Path) -> tuple[str, str]:
    save(tmp_path / "good" / "check.json", check_result())
    save(tmp_path / "bad" / "check.json", check_result(finding()))
    return str(tmp_path / "good"), str(tmp_path / "bad")


def test_what_breaks_is_a_finding(two: tuple[str, str]) -> None:
    done = torchstone("check", "compare", *two)

    assert done.returncode == 1
    assert "✗ failed" in done.stdout


def test_what_was_mended_is_none(two: tuple[str, str]) -> None:
    done = torchstone("check", "compare", *reversed(two), "--json")

    assert done.returncode == 0
    assert json.loads(done.stdout)["schema"] == "torchstone/check_comparison/1"


def test_a_page_is_written_where_asked(two: tuple[str, str], tmp_path: Path) -> None:
    torchstone("check", "compare", *two, "--dir", str(tmp_path / "page"))

    assert "check_comparison.json" in {path.name for path in (tmp_path / "page").iterdir()}
    assert (tmp_path / "page" / "report.html").is_file()


def test_one_folder_is_no_comparison(two: tuple[str, str]) -> None:
    done = torchstone("check", "compare", two[0])

    assert done.returncode == 2
    assert "give two or more folders" in done.stderr
