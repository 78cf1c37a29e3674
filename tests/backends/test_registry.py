import subprocess
import sys
from pathlib import Path

import pytest

from torchstone.backends.lookup import BUILT_IN
from torchstone.backends.registry import describe, describe_all, read_options
from torchstone.errors import InputError
from torchstone.record.task import Origin


def test_all_built_in_backends_are_described() -> None:
    listing = describe_all()

    assert [one.name for one in listing.backends if one.origin is Origin.BUILT_IN] == list(BUILT_IN)
    assert listing.backends[0].usable
    assert listing.backends[0].version.startswith("torch ")
    assert all(one.usable or one.reason for one in listing.backends)
    assert all(one.summary for one in listing.backends)


def test_asking_does_not_bring_torch_into_this_process() -> None:
    program = "import sys; from torchstone.backends.registry import describe_all; describe_all(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], check=True, timeout=600, capture_output=True, text=True)

    assert "torchstone.backends.registry" in done.stdout.split()
    assert "torch" not in done.stdout.split()


def test_one_backend_is_described_with_its_options() -> None:
    facts = describe("aot_eager", options={"fullgraph": True})

    assert facts.usable
    assert facts.options == ("fullgraph",)


@pytest.mark.parametrize(
    ("spec", "options", "told"),
    [
        ("tensorrt", {}, r"^there is no backend 'tensorrt'; known are eager, "),
        ("inductor", {"fullgraf": True}, r"^backend inductor has no option 'fullgraf'; it takes fullgraph, config$"),
    ],
)
def test_what_cannot_be_opened_is_wrong_input(spec: str, options: dict[str, object], told: str) -> None:
    with pytest.raises(InputError, match=told):
        describe(spec, options=options)


def test_a_path_that_is_no_interpreter_is_wrong_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be run: No such file"):
        describe_all(python=str(tmp_path / "python"))


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("#!/bin/sh\necho no module named encodings >&2; exit 3\n", r"exit code 3\): no module named encodings"),
        ("#!/bin/sh\nexit 0\n", r"exit code 0\): no output"),
        (
            '#!/usr/bin/env bash\neval "echo \'{\\"error\\": \\"it is Python 3.8\\"}\' >&$2"\n',
            "cannot be used: it is Python 3.8",
        ),
    ],
)
def test_an_interpreter_that_does_not_answer_is_wrong_input(script: str, said: str, tmp_path: Path) -> None:
    stand_in = tmp_path / "python"
    stand_in.write_text(script, encoding="utf-8")
    stand_in.chmod(0o755)

    with pytest.raises(InputError, match=said):
        describe_all(python=str(stand_in))


def test_options_are_read_as_json_where_they_are_json() -> None:
    assert read_options(["fullgraph=true", "op=aten.mm.*", "shape=[2, 3]", "name=a=b"]) == {
        "fullgraph": True,
        "op": "aten.mm.*",
        "shape": [2, 3],
        "name": "a=b",
    }


@pytest.mark.parametrize("text", ["fullgraph", "=1", "a b=1"])
def test_an_option_without_a_name_or_value_is_wrong_input(text: str) -> None:
    with pytest.raises(InputError, match="write name=value"):
        read_options([text])
