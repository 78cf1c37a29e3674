from pathlib import Path

import click

from torchstone.cli.main import run
from torchstone.cli.options import provider_options


def test_a_command_receives_the_provider_and_the_folder_of_answers(tmp_path: Path) -> None:
    seen: list[tuple[str, Path | None]] = []

    @click.command()
    @provider_options
    def command(provider: str, answers: Path | None) -> None:
        seen.append((provider, answers))

    assert run([], program=command) == 0
    assert run(["--provider", "replay", "--answers", str(tmp_path)], program=command) == 0
    assert seen == [("claude", None), ("replay", tmp_path)]
