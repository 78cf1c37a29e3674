import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.cli.programs import EXAMPLE, ROOT, torchstone
from torchstone.capture.capturing import capture
from torchstone.cli.check_run import prices_of


def test_a_check_ends_with_one_when_something_fails_and_writes_all_documents(tmp_path: Path) -> None:
    done = torchstone(
        "check", EXAMPLE, "--backend", "faulty", "--backend-option", "fault=crash",
        "--backend-option", "op=aten.gelu.*", "--dir", str(tmp_path), "--json",
    )  # fmt: skip

    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
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


def test_each_signature_has_its_price() -> None:
    trace = capture(nn.Linear(4, 8), torch.ones(2, 4), "cpu", reuse=False)

    prices = dict(zip([one.op for one in trace.ops.signatures], prices_of(trace), strict=True))

    assert prices["aten.addmm.default"] == 2 * 2 * 4 * 8 + 2 * 8


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
