"""Report folders made from generated memory logs."""

from pathlib import Path

from tests.memory.log_generator.graphs import random_graph
from tests.memory.log_generator.run import generate
from torchstone.memory.folder import folder_for, write_folder
from torchstone.memory.read_log import parse_log
from torchstone.report.section import ReportFolder


def memory_folder(log: bytes, path: Path) -> ReportFolder:
    """The folder that `memory parse` would write for a log."""
    write_folder(folder_for("net.log", directory=path), parse_log(log.splitlines(keepends=True)))
    return ReportFolder(path)


def long_log(ops: int) -> bytes:
    """A log of many passes: the last pass of each graph, over and over."""
    graphs = [random_graph(7, num_ops=60), random_graph(1007, module="SyncTensorsGraph.2", num_ops=60)]
    log, _ = generate(graphs, passes=3)
    start = f"{'RuntimeTTNN':>23} | {'DEBUG':>8} | Starting execution of program: main\n".encode()
    warm = start + start.join(log.split(start)[-2:])
    return log + warm * (ops // warm.count(b"Executing operation: "))
