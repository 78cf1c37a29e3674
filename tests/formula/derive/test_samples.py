from tests.formula.derive.benches import bench, seeded
from torchstone.formula.derive.samples import sample_module


def test_a_class_is_sampled_with_every_switch_in_every_type() -> None:
    samples = list(sample_module("Linear", bench(), random=seeded(0), count=1))

    assert [sample.trace.ops[len(sample.trace.ops) - 1].op for sample in samples].count("aten.addmm.default") == 2
    assert len(samples) == 4
