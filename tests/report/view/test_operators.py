from tests.report.traces import TraceBuilder, empty_model, one_op, spec, transformer
from torchstone.report.view.overview import NO_MODULE, operator_rows, use_rows, variant_rows


def test_operators_are_counted_most_called_first_and_the_calls_add_up() -> None:
    trace = transformer(4)
    rows = operator_rows(trace)

    assert [row.calls for row in rows] == sorted((row.calls for row in rows), reverse=True)
    assert sum(row.calls for row in rows) == len(trace.ops)
    assert (rows[0].op, rows[0].calls, rows[0].variants) == ("aten.mm.default", 4 * 7 + 1, 4)
    assert rows[0].modules == 4 * 7 + 1
    assert rows[0].dtypes == "float32"


def test_variants_and_uses_add_up_to_the_same_calls() -> None:
    trace = transformer(4)

    assert sum(row.calls for row in variant_rows(trace)) == len(trace.ops)
    assert sum(row.calls for row in use_rows(trace)) == len(trace.ops)


def test_a_variant_shows_arguments_and_result() -> None:
    (row,) = variant_rows(one_op())

    assert (row.arguments, row.output) == ("self=float32[2, 3]", "float32[2, 3]")


def test_an_op_outside_any_module_is_kept_and_belongs_to_none() -> None:
    build = TraceBuilder()
    build.module("", "Net")
    build.op("aten.relu.default", [build.tensor(spec(1), kind="input", name="x")], spec(1))
    trace = build.build()

    assert [(use.module, use.calls) for use in use_rows(trace)] == [(NO_MODULE, 1)]
    assert operator_rows(trace)[0].modules == 0


def test_a_model_without_ops_has_no_rows() -> None:
    assert operator_rows(empty_model()) == ()
