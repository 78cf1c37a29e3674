"""Defaults of options from pyproject.toml: [tool.torchstone.COMMAND], with the names that the command line has."""

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

import click

from torchstone.cli.options import DefaultCommandGroup
from torchstone.errors import InputError, UnreadableFileError

FILE = "pyproject.toml"
_ONLY_ON_THE_COMMAND_LINE = ("trust",)  # it lets data run code, which no file that lies in a folder may decide
_MOST_BYTES = 4 << 20


class ProjectSettings(NamedTuple):
    """The table [tool.torchstone] of a file."""

    file: Path
    table: Mapping[str, object]

    def defaults(self, name: str, command: click.Command) -> dict[str, object]:
        """What click takes as the defaults of a command: by the names of its parameters, subcommands nested.

        Raises InputError for an unknown option, or a value of the wrong kind.
        """
        where = f"tool.torchstone.{name}"
        return self._read(where, self._table(where, self.table.get(name, {})), command)

    def _table(self, where: str, found: object) -> Mapping[str, object]:
        if not isinstance(found, Mapping):
            msg = f"{self.file}: {where} is {found!r}; options of a command stand in a table"
            raise InputError(msg)
        return found

    def _read(self, where: str, table: Mapping[str, object], command: click.Command) -> dict[str, object]:
        if not isinstance(command, click.Group):
            return {
                parameter.name or "": value
                for key, given in table.items()
                for parameter, value in [self._option(where, key, given, command)]
            }
        found: dict[str, dict[str, object]] = {}
        own = {key: value for key, value in table.items() if key not in command.commands}
        if isinstance(command, DefaultCommandGroup):  # `check MODEL` is `check run MODEL`
            found[command.default] = self._read(where, own, command.commands[command.default])
        elif own:
            msg = f"{self.file}: [{where}] has no command {next(iter(own))!r}; it has {', '.join(command.commands)}"
            raise InputError(msg)
        for key in table.keys() - own.keys():
            inner = self._table(f"{where}.{key}", table[key])
            found[key] = {**found.get(key, {}), **self._read(f"{where}.{key}", inner, command.commands[key])}
        return {**found}

    def _option(self, where: str, key: str, given: object, command: click.Command) -> tuple[click.Option, object]:
        options = {
            flag.removeprefix("--"): parameter
            for parameter in command.params
            if isinstance(parameter, click.Option)
            for flag in parameter.opts
            if flag.startswith("--")
        }
        name = key.replace("_", "-")
        if name in _ONLY_ON_THE_COMMAND_LINE:
            msg = f"{self.file}: [{where}] sets {key!r}, which only the command line may set"
            raise InputError(msg)
        if name not in options:
            near = get_close_matches(name, options, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            msg = f"{self.file}: [{where}] has no option {key!r}{hint}"
            raise InputError(msg)
        return options[name], self._value(f"[{where}] {key}", given, options[name])

    def _value(self, where: str, given: object, option: click.Option) -> object:
        values = given if isinstance(given, list) else [given]
        kinds = (bool,) if option.is_flag else (str, int, float)
        fits = all(isinstance(one, kinds) and (option.is_flag or not isinstance(one, bool)) for one in values)
        fits = fits and "\0" not in str(given)
        if not fits or (isinstance(given, list) and not option.multiple):
            wanted = "true or false" if option.is_flag else "a text or a number"
            msg = f"{self.file}: {where} is {given!r}; it takes {wanted}" + (" or a list" if option.multiple else "")
            raise InputError(msg)
        if isinstance(option.type, click.Path):
            values = [str(self.file.parent / str(one)) for one in values]
        return values if option.multiple else values[0]


def find_settings(start: Path) -> ProjectSettings | None:
    """The settings of the nearest pyproject.toml in a folder or above it; None where there are none."""
    file = next((folder / FILE for folder in (start, *start.parents) if (folder / FILE).is_file()), None)
    if file is None:
        return None
    from torchstone.record.files import parse_toml  # most commands run where no file has settings

    try:
        with file.open("rb") as opened:
            content = opened.read(_MOST_BYTES)
        if b"torchstone" not in content:
            return None
        table = parse_toml(content.decode(), origin=str(file)).get("tool", {}).get("torchstone")
    except (OSError, UnicodeDecodeError, UnreadableFileError, AttributeError) as error:
        if isinstance(error, OSError):
            return None  # a file that cannot be read sets nothing
        msg = f"{file} cannot be read: {error}"
        raise InputError(msg) from error
    if table is None:
        return None
    if not isinstance(table, Mapping):
        msg = f"{file}: tool.torchstone is {table!r}; it must be a table"
        raise InputError(msg)
    return ProjectSettings(file, table)
