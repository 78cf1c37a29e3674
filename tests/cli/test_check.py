import json
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.check.results import check_result, finding
from tests.cli.programs import EXAMPLE, ROOT, torchstone
from torchstone.cli.check import RunOptions, command, read_size, settings_from
from torchstone.errors import InputError
from torchstone.record.codec import save

OPTIONS = RunOptions(
    backend="faulty",
    pairs=("fault=wrong", "seconds=2"),
    interpreter=None,
    deadline_s=5.0,
    memory_limit="2GiB",
    jobs=3,
    pcc=("0.9",),
    no_ir=True,
)


def test_a_model_without_a_subcommand_is_run() -> None:
    context = command.make_context("check", ["tiny:bert"], resilient_parsing=True)

    assert command.resolve_command(context, ["run", "tiny:bert"])[0] == "run"
    assert "give --backend NAME" in torchstone("check", "tiny:bert").stderr


def test_the_help_names_all_that_there_is() -> None:
    done = torchstone("check", "--help")

    assert done.returncode == 0
    for name in ("run", "compare", "export-ir"):
        assert f"  {name} " in done.stdout


def test_options_become_settings() -> None:
    settings = settings_from(OPTIONS)

    assert settings.options == {"fault": "wrong", "seconds": 2}
    assert (settings.limits.deadline_s, settings.limits.memory_bytes) == (5.0, 2 << 30)
    assert settings.tolerances.for_names(())["pcc"] == 0.9
    assert not settings.exports_ir
    assert settings.reuse == ""


def test_only_the_root_means_no_ops_and_no_depth() -> None:
    settings = settings_from(replace(OPTIONS, root_only=True))

    assert (settings.granularity.value, settings.max_depth) == ("module", 0)


@pytest.mark.parametrize(
    ("text", "size"), [("4GiB", 4 << 30), ("512M", 512 << 20), ("1.5k", 1536), ("100", 100), (None, None)]
)
def test_sizes_are_read(text: str | None, size: int | None) -> None:
    assert read_size(text) == size


@pytest.mark.parametrize("text", ["much", "-1G", "0", "4XB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not a size"):
        read_size(text)


def test_a_check_ends_with_one_when_something_fails_and_writes_all_documents(tmp_path: Path) -> None:
    done = torchstone(
        "check", EXAMPLE, "--backend", "faulty", "--backend-option", "fault=crash",
        "--backend-option", "op=aten.gelu.*", "--dir", str(tmp_path), "--json", "--github",
        "--junit", str(tmp_path / "ci.xml"),
    )  # fmt: skip

    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    assert "::error title=aten.gelu.default on faulty" in done.stderr
    assert '<testcase classname="faulty.' in (tmp_path / "ci.xml").read_text()
    assert document["schema"] == "torchstone/check/1"
    assert [finding["ops"] for finding in document["findings"]] == [["aten.gelu.default"]]
    assert document["findings"][0]["confirmed"]
    unique = json.loads((tmp_path / "unique_modules.json").read_text())
    assert {module["status"] for module in unique["modules"]} >= {"success", "failed", "inherited_success", "skipped"}
    for name in (
        "summary.md",
        "analysis_report.html",
        "report.html",
        "tests/test_failures.py",
        document["findings"][0]["repro"],
    ):
        assert (tmp_path / name).is_file()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nothing", "--backend", "eager"), "is neither a file nor in the zoo"),
        (("nowhere/net.py::load", "--backend", "eager"), "the file nowhere/net.py does not exist"),
        ((EXAMPLE, "--backend", "nothing"), "there is no backend 'nothing'"),
        ((EXAMPLE, "--backend", "eager", "--resume"), "--resume needs the --dir"),
        ((EXAMPLE, "--backend", "eager", "--python", "/nowhere/python"), "cannot be run"),
        ((EXAMPLE,), "--backend"),
    ],
)
def test_wrong_input_is_told_in_a_sentence(arguments: tuple[str, ...], words: str) -> None:
    done = torchstone("check", *arguments)

    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.heavy
def test_the_tutorial_leads_to_the_op(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "tutorials" / "my-model-fails-on-inductor.md").read_text(encoding="utf-8")
    model, mended = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    commands = [line for line in page.splitlines() if line.startswith("torchstone check")]
    (tmp_path / "net.py").write_text(model)

    found = torchstone(*shlex.split(commands[0])[1:], cwd=tmp_path, timeout_s=600)

    assert found.returncode == 1, found.stderr
    expected = next(line for line in page.splitlines() if line.startswith("Fix this group of ops"))
    assert expected in found.stdout
    script = tmp_path / re.findall(r"^python (out/repros/\S+)", page, re.MULTILINE)[0]
    assert subprocess.run([sys.executable, script], cwd=tmp_path, check=False, timeout=600).returncode == 1

    lying = re.search(r"^@running_max\.register_fake\n.*?\n\n", model, re.MULTILINE | re.DOTALL)
    assert lying is not None
    (tmp_path / "net.py").write_text(model.replace(lying[0], mended))
    assert subprocess.run([sys.executable, script], cwd=tmp_path, check=False, timeout=600).returncode == 0
    whole = torchstone(*shlex.split(commands[1])[1:], cwd=tmp_path, timeout_s=600)
    assert whole.returncode == 0, whole.stdout


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


@pytest.mark.heavy
def test_the_ir_of_one_module_is_written(tmp_path: Path) -> None:
    made = torchstone("check", EXAMPLE, "--backend", "eager", "--root-only", "--no-ir", "--dir", str(tmp_path))
    assert made.returncode == 0, made.stderr

    modules = str(tmp_path / "unique_modules.json")
    done = torchstone("check", "export-ir", "--module-id", "mod_000", "--modules-json", modules)
    told = torchstone("check", "export-ir", "--module-id", "mod_000", "--modules-json", modules, "--json")

    assert (done.returncode, done.stdout.strip()) == (0, str(tmp_path / "irs/mod_000_root/aten.txt")), done.stderr
    assert json.loads(told.stdout)["result"]["irs"] == ["irs/mod_000_root/aten.txt"]


def test_a_file_that_no_check_wrote_is_refused(tmp_path: Path) -> None:
    (tmp_path / "unique_modules.json").write_text("{}")

    done = torchstone(
        "check", "export-ir", "--module-id", "mod_000", "--modules-json", str(tmp_path / "unique_modules.json")
    )

    assert done.returncode == 2
    assert "has no check to export from" in done.stderr
