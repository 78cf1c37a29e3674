"""The options --junit and --github, and what they write."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING

import click

from torchstone.cli.options import F, with_options

if TYPE_CHECKING:
    from torchstone.report.ci import CiResults


@dataclass(frozen=True, slots=True, kw_only=True)
class CiOptions:
    """Where the results go in continuous integration."""

    junit: Path | None
    github: bool


def ci_options(function: F) -> F:
    """Add --junit and --github; the command gets one `ci`."""

    @wraps(function)
    def gather(*args: object, junit: Path | None, github: bool, **rest: object) -> object:
        return function(*args, ci=CiOptions(junit=junit, github=github), **rest)

    file = click.Path(path_type=Path, dir_okay=False)
    return with_options(gather, (  # type: ignore[return-value]  # click passes what the decorators name
        click.option("--junit", type=file, metavar="FILE", help="Write the results as JUnit XML."),
        click.option("--github", is_flag=True, help="Write annotations and a step summary for GitHub Actions."),
    ))  # fmt: skip


def write_for_ci(options: CiOptions, results: "Callable[[], CiResults]") -> None:
    """Write the files and print the annotations that were asked for.

    Annotations go to stderr, which GitHub reads as well, so that stdout holds nothing but the result.
    """
    from torchstone.report.ci import github_annotations, github_summary, junit_xml
    from torchstone.workflows.result_folder import writing_to

    if options.junit is not None:
        write_file(options.junit, "--junit", junit_xml(results()))
    if not options.github:
        return
    for line in github_annotations(results()):
        click.echo(line, err=True)
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if not summary:
        click.echo(github_summary(results()), err=True)
        return
    with writing_to(Path(summary), "GITHUB_STEP_SUMMARY"), Path(summary).open("a", encoding="utf-8") as file:
        file.write(github_summary(results()))


def write_file(path: Path, option: str, text: str) -> None:
    """Write one file that an option names, whole or not at all."""
    from torchstone.record.codec import write_atomically
    from torchstone.workflows.result_folder import writing_to

    with writing_to(path, option):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text.encode())
