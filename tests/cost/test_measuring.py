import pytest

from torchstone.cost import cpu_limits


def test_this_machine_has_limits_in_a_believable_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_limits, "_MATRIX", 128)
    monkeypatch.setattr(cpu_limits, "_VECTOR", 1 << 20)
    found = cpu_limits.measure_cpu("here")
    assert found.name == "here"
    assert 1e6 < found.peak_flops["float32"] < 1e14
    assert 1e6 < found.memory_bytes_per_s < 1e13
    assert 1e-8 < found.launch_s < 1.0
    assert found.memory_bytes > 1e8
    assert "measured with torch" in found.source
