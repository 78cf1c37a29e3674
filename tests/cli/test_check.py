from tests.cli.programs import torchstone
from torchstone.cli.check import command


def test_a_model_without_a_subcommand_is_run() -> None:
    context = command.make_context("check", ["tiny:bert"], resilient_parsing=True)

    assert command.resolve_command(context, ["run", "tiny:bert"])[0] == "run"
    assert torchstone("check", "tiny:bert").stderr.splitlines()[0].startswith("Usage: torchstone check run")


def test_the_help_names_all_that_there_is() -> None:
    done = torchstone("check", "--help")

    assert done.returncode == 0
    for name in ("run", "compare", "export-ir"):
        assert f"  {name} " in done.stdout
