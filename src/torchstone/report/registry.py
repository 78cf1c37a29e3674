"""The table of sections, in the order of the page's tabs. A new section is one row here."""

from torchstone.report.section import TRACE_FILE, Section
from torchstone.report.sections import (
    check,
    check_comparison,
    cost,
    cost_sweep,
    graph,
    memory_comparison,
    memory_inputs,
    memory_padding,
    memory_peaks,
    memory_timeline,
    modules,
    operators,
    overview,
    port,
    reference,
    sweep,
    sweep_vectors,
)
from torchstone.report.view import memory

SECTIONS: tuple[Section, ...] = (
    Section(name=overview.NAME, files=(TRACE_FILE,), build=overview.build),
    Section(name=modules.NAME, files=(TRACE_FILE,), build=modules.build),
    Section(name=operators.NAME, files=(TRACE_FILE,), build=operators.build),
    Section(name=graph.NAME, files=(TRACE_FILE,), build=graph.build),
    Section(name=cost.NAME, files=(TRACE_FILE, cost.FILE), build=cost.build),
    Section(name=cost_sweep.NAME, files=(cost_sweep.FILE,), build=cost_sweep.build),
    Section(name=check.NAME, files=(TRACE_FILE, check.FILE), build=check.build),
    Section(name=check_comparison.NAME, files=(check_comparison.FILE,), build=check_comparison.build),
    Section(name=reference.NAME, files=(TRACE_FILE, *reference.FILES), build=reference.build),
    Section(name=port.NAME, files=(TRACE_FILE, port.FILE), build=port.build),
    Section(name=sweep.NAME, files=(sweep.FILE,), build=sweep.build),
    Section(name=sweep_vectors.NAME, files=(sweep.FILE,), build=sweep_vectors.build),
    Section(name=memory_timeline.NAME, files=memory.FILES, build=memory_timeline.build),
    Section(name=memory_peaks.NAME, files=memory.FILES, build=memory_peaks.build),
    Section(name=memory_padding.NAME, files=memory.FILES, build=memory_padding.build),
    Section(name=memory_inputs.NAME, files=memory.FILES, build=memory_inputs.build),
    Section(name=memory_comparison.NAME, files=memory_comparison.FILES, build=memory_comparison.build),
)
