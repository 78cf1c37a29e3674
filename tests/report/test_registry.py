import pytest

from torchstone.report.render import SECTIONS, section_module
from torchstone.report.section import TRACE_FILE
from torchstone.report.view import memory


def test_the_tabs_start_with_the_overview_and_no_name_is_used_twice() -> None:
    names = [section.name for section in SECTIONS]

    assert names[0] == "overview"
    assert len(set(names)) == len(names)


MODULES = {
    "backends": "check_comparison", "vectors": "sweep_vectors", "memory": "memory_timeline", "peaks": "memory_peaks",
    "buffers": "memory_buffers",
    "padding": "memory_padding", "inputs": "memory_inputs", "comparison": "memory_comparison",
}  # fmt: skip


@pytest.mark.parametrize("name", [section.name for section in SECTIONS])
def test_the_table_names_each_section_and_its_files_as_the_section_does(name: str) -> None:
    section = next(section for section in SECTIONS if section.name == name)
    module = section_module(MODULES.get(name, name))
    own_files = getattr(module, "FILES", None) or ((module.FILE,) if hasattr(module, "FILE") else ())

    assert name == module.NAME
    shown_for = tuple(file for file in section.files if file != TRACE_FILE)
    assert shown_for == (memory.FILES if name in {"memory", "peaks", "buffers", "padding", "inputs"} else own_files)
