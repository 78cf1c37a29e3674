import os
import subprocess
import sys
from pathlib import Path
from signal import SIGINT

import pytest

import torchstone
from torchstone.cli.main import run
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINE


def test_serve_prints_its_address_and_ends_at_once_on_ctrl_c(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-c",
        "from torchstone.cli.main import main; main()",
        "serve",
        str(tmp_path),
        "--port",
        "23456",
    ]
    environment = os.environ | {"PYTHONPATH": str(Path(torchstone.__file__).parents[1])}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    ) as server:
        assert server.stdout is not None
        assert server.stderr is not None
        assert server.stdout.readline().startswith("http://127.0.0.1:234")
        hints = server.stderr.readline()
        server.send_signal(SIGINT)
        try:
            assert server.wait(timeout=600) == EXIT_FINE
        finally:
            server.kill()

    assert "ssh -L" in hints


def test_an_open_host_without_a_token_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", str(tmp_path), "--host", "0.0.0.0"]) == EXIT_BAD_INPUT  # noqa: S104 - refused
    assert "add --token" in capsys.readouterr().err
