from pathlib import Path

import pytest

from torchstone.cost.roofline import find_hardware, hardware_toml, presets
from torchstone.errors import InputError

WANTED = {"n150", "n300", "p150", "galaxy", "a100", "h100", "h200", "b200", "mi300x", "l40s", "tpu-v5e"}

MINE = """
[mine]
peak_tflops = { bfloat16 = 2 }
memory_gb = 4
bandwidth_gb_per_s = 100
"""


def test_every_preset_names_its_source_and_has_sane_limits() -> None:
    found = presets()
    assert found.keys() >= WANTED
    for hardware in found.values():
        assert len(hardware.source) > 10
        assert 1e12 < max(hardware.peak_flops.values()) < 1e17
        assert 1e11 < hardware.memory_bytes_per_s < 1e14
        assert 10**10 < hardware.memory_bytes < 10**12
        assert hardware.vector_flops <= max(hardware.peak_flops.values())


def test_a_name_is_found_in_any_case() -> None:
    assert find_hardware("N150").title == "Tenstorrent Wormhole n150"


def test_a_file_describes_another_device(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(MINE)
    found = find_hardware(str(path))
    assert (found.peak_flops, found.memory_bytes, found.launch_s) == ({"bfloat16": 2e12}, 4 * 10**9, 0)
    assert found.link_bytes_per_s is None


def test_what_is_printed_can_be_read_back(tmp_path: Path) -> None:
    path = tmp_path / "copy.toml"
    for hardware in presets().values():
        path.write_text(hardware_toml(hardware))
        assert find_hardware(str(path)) == hardware


def test_names_and_titles_may_hold_quotes_and_spaces(tmp_path: Path) -> None:
    path = tmp_path / "odd.toml"
    path.write_text(MINE.replace("[mine]", '["my card"]\ntitle = "a \\"fast\\" one"'))
    found = find_hardware(str(path))
    assert (found.name, found.title) == ("my card", 'a "fast" one')
    path.write_text(hardware_toml(found))
    assert find_hardware(str(path)) == found


def test_a_file_with_several_devices_wants_a_name(tmp_path: Path) -> None:
    path = tmp_path / "two.toml"
    path.write_text(MINE + MINE.replace("[mine]", "[other]"))
    assert find_hardware(f"{path}::other").name == "other"
    with pytest.raises(InputError, match="holds mine, other"):
        find_hardware(str(path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[a]\nmemory_gb = 1", "lacks peak_tflops"),
        (MINE + "speed = 3", "unknown key 'speed'"),
        (MINE.replace("= 100", "= -1"), "above zero, not -1"),
        (MINE.replace("= 100", "= 0"), "bandwidth_gb_per_s in .* above zero, not 0"),
        (MINE.replace("= 100", "= inf"), "above zero, not inf"),
        (MINE.replace("= 2 }", "= nan }"), "bfloat16 in .* above zero, not nan"),
        (MINE + "vector_tflops = 0", "vector_tflops in .* above zero"),
        (MINE + "launch_us = -1", "launch_us in .* above zero"),
        (MINE.replace("{ bfloat16 = 2 }", "{}"), "must name rates by element type"),
        (MINE.replace("{ bfloat16 = 2 }", "100"), "must name rates by element type"),
        ("", "describes no device"),
        ("a = 3", "not a value"),
        ("[a", "not a TOML file"),
    ],
)
def test_a_file_that_cannot_be_used_is_told_in_a_sentence(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        find_hardware(str(path))


def test_a_name_nobody_knows_is_answered_with_the_list() -> None:
    with pytest.raises(InputError, match="choose one of n150"):
        find_hardware("gpu")
    with pytest.raises(InputError, match="cannot read the hardware file"):
        find_hardware("missing.toml")
