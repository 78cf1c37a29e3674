"""All documents of a reference that a trace and its prices give, written to a folder."""

from collections.abc import Sequence
from pathlib import Path

from torchstone.record.codec import write_atomically
from torchstone.record.cost import CostTable
from torchstone.record.functions import FunctionUse
from torchstone.record.trace import Trace
from torchstone.report.reference.graph_files import GraphFiles, graph_files
from torchstone.report.reference.memory_needs import DEFAULT_LENGTHS
from torchstone.report.reference.operator_list import functions_csv, operators_csv, operators_json
from torchstone.report.reference.shapes import hierarchy_txt, parameters_csv, tensors_csv
from torchstone.report.reference.summary import memory_csv, summarise, summary_csv, summary_json, summary_text


def write_documents(
    folder: Path,
    trace: Trace,
    macs: CostTable,
    lengths: Sequence[int] = DEFAULT_LENGTHS,
    functions: Sequence[FunctionUse] = (),
) -> tuple[GraphFiles, ...]:
    """Write summary, operators, functions, shapes, hierarchy, parameters and graphs; gives the graphs."""
    summary = summarise(trace, macs, lengths)
    graphs = graph_files(trace)
    files = {
        "summary.txt": summary_text(summary, trace).encode(),
        "summary.json": summary_json(summary),
        "summary.csv": summary_csv(summary),
        "memory.csv": memory_csv(summary),
        "operators.json": operators_json(trace, functions),
        "operators.csv": operators_csv(trace),
        "functions.csv": functions_csv(functions),
        "tensors.csv": tensors_csv(trace),
        "hierarchy.txt": hierarchy_txt(trace),
        "parameters.csv": parameters_csv(trace),
    }
    for one in graphs:
        files |= one.files
    for name, content in files.items():
        write_atomically(folder / name, content)
    return graphs
