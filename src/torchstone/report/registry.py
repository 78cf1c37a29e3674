"""The table of sections, in the order of the page's tabs. A new section is one row here."""

from torchstone.report.section import TRACE_FILE, Section
from torchstone.report.sections import modules, operators, overview

SECTIONS: tuple[Section, ...] = (
    Section(name=overview.NAME, files=(TRACE_FILE,), build=overview.build),
    Section(name=modules.NAME, files=(TRACE_FILE,), build=modules.build),
    Section(name=operators.NAME, files=(TRACE_FILE,), build=operators.build),
)
