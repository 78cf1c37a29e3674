from tests.report.traces import TraceBuilder, empty_model, spec, transformer
from torchstone.report.view.overview import overview, totals


def test_totals_count_each_parameter_tensor_once() -> None:
    found = totals(transformer(2))
    per_layer = 4 * 64 * 64 + 3 * 64 * 256 + 2 * 64

    assert found.parameters == 1000 * 64 + 2 * per_layer + 64
    assert found.parameter_bytes == 4 * found.parameters
    assert found.trainable_parameters == found.parameters
    assert (found.modules, found.ops, found.distinct_ops) == (30, 2 * 18 + 5, 7)


def test_equal_layers_are_one_distinct_module() -> None:
    assert totals(transformer(2)).unique_modules == totals(transformer(20)).unique_modules


def test_an_empty_model_has_totals_of_zero() -> None:
    found = totals(empty_model())

    assert (found.parameters, found.modules, found.ops, found.unique_modules) == (0, 1, 0, 1)


def test_what_is_not_known_is_said() -> None:
    build = TraceBuilder()
    root = build.module("", "Net")
    build.module("unused", "torch.nn.Linear", parent=root, weights=[("weight", spec(2, dtype="odd"))])
    build.op("aten.relu.default", [build.tensor(spec(1), kind="input", name="x")], spec(1))

    unknown = overview(build.build(notes=("x was generated",))).unknown

    assert unknown == (
        "x was generated",
        "2 of 2 modules were never called in this run",
        "1 op call ran outside any module",
        "1 parameter tensor has a dtype of unknown size",
    )


def test_without_source_no_file_line_or_command_is_named() -> None:
    trace = transformer(2, fails_in=1)
    told, withheld = repr(overview(trace)), repr(overview(trace, source=False))

    assert "/models/net.py:31" in told
    assert "torchstone inspect" in told
    assert "/models/net.py" not in withheld
    assert "torchstone inspect" not in withheld
    assert "cannot be multiplied" in withheld
