"""What users rely on, as it was last agreed: Python names, command lines, exit codes and documents.

The listings are in tests/golden/stable_interface. A new line is an addition: `pytest --regenerate` writes it, and the
changelog tells it. A line that goes or changes breaks somebody's script: docs/stability.md says how that is done.
"""

import importlib
import pkgutil
import tomllib
from collections.abc import Iterator
from importlib import import_module
from inspect import Parameter, signature
from pathlib import Path

import click
import msgspec
import pytest

import torchstone
import torchstone as ts
from torchstone import errors
from torchstone.cli.main import COMMANDS, cli
from torchstone.record.base import Schema

ROOT = Path(__file__).parents[1]
LISTINGS = Path(__file__).parent / "golden" / "stable_interface"
STABILITY = ROOT / "docs" / "stability.md"
PROVISIONAL = ("map", "ttnn", "formula agent", "hardware measure")
# Names outside the package itself that existing scripts import.
KEPT_IMPORTS = (
    "torchstone.models.load", "torchstone.capture.capture", "torchstone.cost.price", "torchstone.cost.register_price",
    "torchstone.reference.compare", "torchstone.check.check", "torchstone.memory.parse_log",
    "torchstone.formula.compute_flops", "torchstone.formula.compute_memory", "torchstone.sweep.MasterConfigLoader",
    "torchstone.sweep.unpack_traced_config", "torchstone.sweep.unpack_binary_traced_config",
)  # fmt: skip
SIMPLE = (type(None), bool, int, float, str, tuple)


def python_names() -> Iterator[str]:
    for name in sorted(ts.__all__):
        yield f"torchstone.{name}({', '.join(_parameters(getattr(ts, name)))})"
    for path in KEPT_IMPORTS:
        module, _, name = path.rpartition(".")
        assert hasattr(import_module(module), name), path
        yield path
    backends = import_module("torchstone.backends")
    yield from (f"torchstone.backends.{name}" for name in sorted(backends.__all__))
    public = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, errors.TorchstoneError)]
    for one in sorted(public, key=lambda error: error.__name__):
        yield f"torchstone.errors.{one.__name__}({one.__bases__[0].__name__}), exit code {one.exit_code}"


def _parameters(function: object) -> Iterator[str]:
    assert callable(function)
    keyword_only = False
    for one in signature(function).parameters.values():
        if one.kind is Parameter.KEYWORD_ONLY and not keyword_only:
            keyword_only = True
            yield "*"
        stars = "**" if one.kind is Parameter.VAR_KEYWORD else "*" if one.kind is Parameter.VAR_POSITIONAL else ""
        shown = repr(one.default) if isinstance(one.default, SIMPLE) else "..."
        yield f"{stars}{one.name}" + ("" if one.default is Parameter.empty else f"={shown}")


def command_lines() -> Iterator[str]:
    codes = {name: value for name, value in vars(errors).items() if name.startswith("EXIT_")}
    yield from (f"exit code {value}: {name.removeprefix('EXIT_').lower()}" for name, value in codes.items())
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        yield from _command(name, command)
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]
    for name, home in scripts.items():
        if name != "torchstone":
            yield from _command(name, import_module(home.partition(":")[0]).command)


def _command(path: str, command: click.Command) -> Iterator[str]:
    if path in PROVISIONAL:
        yield f"{path}: provisional"
        return
    if isinstance(command, click.Group):
        default = getattr(command, "default", None)
        if default:
            yield f"{path}: {path} {default}"
        for name, inner in sorted(command.commands.items()):
            yield from _command(f"{path} {name}", inner)
        return
    for one in command.params:
        words = "/".join([*one.opts, *one.secondary_opts]) if isinstance(one, click.Option) else one.human_readable_name
        kind = "" if isinstance(one, click.Option) and one.is_flag else f" {one.type.name}"
        facts = {"required": one.required, "repeatable": one.multiple or one.nargs == -1}
        yield " ".join([f"{path}: {words}{kind}", *(word for word, holds in facts.items() if holds)])
        if isinstance(one.type, click.Choice):  # a line for each, so that one more is an addition
            yield from (f"{path}: {words} {choice}" for choice in one.type.choices)


def documents() -> Iterator[str]:
    """Each schema with the keys of its documents."""
    found: set[str] = set()
    for info in pkgutil.walk_packages(torchstone.__path__, "torchstone."):
        if info.name.startswith("torchstone.record.") and not info.ispkg:
            for one in vars(importlib.import_module(info.name)).values():
                schema = getattr(one, "schema", None)
                if isinstance(one, type) and isinstance(schema, Schema):
                    found.update(f"{schema.name}: {key.encode_name}" for key in msgspec.structs.fields(one))
    yield from sorted(found)


@pytest.mark.parametrize("listing", [python_names, command_lines, documents], ids=lambda one: one.__name__)
def test_nothing_that_users_rely_on_goes_or_changes(listing: object, request: pytest.FixtureRequest) -> None:
    assert callable(listing)
    path = LISTINGS / f"{listing.__name__}.txt"  # type: ignore[attr-defined]
    now = list(listing())
    if request.config.getoption("--regenerate"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(now) + "\n", encoding="utf-8")
    agreed = path.read_text("utf-8").splitlines()
    gone = [line for line in agreed if line not in now]
    new = [line for line in now if line not in agreed]
    assert not gone, (
        f"{path.name}: these lines went or changed, which breaks what users have written: {gone} (now: {new}). "
        "Keep them and deprecate them first, as docs/stability.md says; only a major version removes them."
    )
    assert not new, (
        f"{path.name}: these lines are new: {new}. If they should be stable from now on, run "
        "`pytest --regenerate tests/test_stable_interface.py`, commit the listing, and tell them in the changelog."
    )


def test_every_provisional_command_exists_and_is_named_in_the_documentation() -> None:
    text = STABILITY.read_text("utf-8")
    lines = set(command_lines())
    for path in PROVISIONAL:
        assert f"{path}: provisional" in lines
        assert f"`{path}`" in text
