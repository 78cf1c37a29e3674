"""What `torchstone sweep run` prints, and the files that it writes for CI."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from torchstone.cli.options import Session
from torchstone.cli.progress import TerminalProgress

if TYPE_CHECKING:
    from torchstone.record.vector import SweepRun


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeOptions:
    """What becomes of the results: files for CI, and the exit code."""

    strict: bool
    junit: Path | None
    sarif: Path | None
    github: bool


def write_for_ci(finished: "SweepRun", outcome: OutcomeOptions) -> None:
    """Write the files that CI reads, and print annotations for GitHub."""
    from torchstone.record.codec import write_atomically
    from torchstone.report.sweep_ci import github_annotations, github_summary, junit_xml, sarif_json
    from torchstone.workflows.result_folder import writing_to

    for option, path, made in (("--junit", outcome.junit, junit_xml), ("--sarif", outcome.sarif, sarif_json)):
        if path is not None:
            with writing_to(path, option):
                path.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(path, made(finished).encode())
    if outcome.github:
        for line in github_annotations(finished):
            click.echo(line)
        summary = os.environ.get("GITHUB_STEP_SUMMARY")
        if summary:
            with writing_to(Path(summary), "GITHUB_STEP_SUMMARY"), Path(summary).open("a", encoding="utf-8") as file:
                file.write(github_summary(finished))
        else:
            click.echo(github_summary(finished))


def print_run(session: Session, finished: "SweepRun", folder: Path, *, as_json: bool) -> None:
    """Print a run, and what to do next."""
    from torchstone.record.vector import FAILED, SweepRun
    from torchstone.report.json_document import json_document
    from torchstone.report.sweep_text import run_text, short_id
    from torchstone.report.text import coloured, plain

    if as_json:
        counts = {
            "counts": finished.counts, "outcomes": finished.outcomes, "suspicious": len(finished.suspicious)
        }  # fmt: skip
        click.echo(json_document(SweepRun.schema.name, finished, counts))
        return
    click.echo(run_text(finished, paint=coloured if session.uses_color else plain))
    progress = TerminalProgress(session)
    failed = next((one for one in finished.results if one.status in FAILED and one.configuration), None)
    if failed is not None:
        progress.note(f"next: torchstone sweep repro {short_id(failed.id)} --dir {folder}")
    progress.note(f"next: torchstone sweep report --dir {folder} --html")
