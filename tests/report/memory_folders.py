"""Report folders made from generated memory logs."""

from pathlib import Path

from torchstone.memory.folder import folder_for, write_folder
from torchstone.memory.read_log import parse_log
from torchstone.report.section import ReportFolder


def memory_folder(log: bytes, path: Path) -> ReportFolder:
    """The folder that `memory parse` would write for a log."""
    write_folder(folder_for("net.log", directory=path), parse_log(log.splitlines(keepends=True)))
    return ReportFolder(path)
