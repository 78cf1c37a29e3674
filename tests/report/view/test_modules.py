from tests.report.traces import TraceBuilder, transformer
from torchstone.report.view.modules import attributes_text, folded_rows, module_rows


def test_a_row_says_what_its_module_was_first_called_with() -> None:
    rows = {row.path: row for row in module_rows(transformer(2))}
    gate = rows["model.layers.1.mlp.gate"]

    assert (gate.name, gate.class_name, gate.class_path) == ("gate", "Linear", "torch.nn.Linear")
    assert [str(spec) for spec in (*gate.inputs, *gate.outputs)] == ["float32[1, 16, 64]", "float32[1, 16, 256]"]
    assert (gate.parameters, gate.parameter_bytes, gate.calls, gate.depth) == (256 * 64, 256 * 64 * 4, 1, 5)


def test_a_module_that_was_never_called_has_no_call_and_no_shapes() -> None:
    rows = {row.path: row for row in module_rows(transformer(3, fails_in=1))}
    never = rows["model.layers.2"]

    assert (never.calls, never.inputs, never.outputs, never.first_call) == (0, (), (), -1)


def test_the_way_to_a_failure_is_marked_and_nothing_else() -> None:
    failed = [row.path for row in module_rows(transformer(3, fails_in=1)) if row.failed]

    assert failed == ["", "model", "model.layers", "model.layers.1", "model.layers.1.attention",
                      "model.layers.1.attention.q_proj"]  # fmt: skip


def test_folded_rows_show_each_run_once_and_lose_no_module() -> None:
    rows = module_rows(transformer(8))
    shown = list(folded_rows(rows))

    assert [row.path for row in shown if row.repeats > 1] == ["model.layers.0"]
    assert not any(row.path.startswith("model.layers.1") for row in shown)
    per_layer = sum(row.path.startswith("model.layers.0") for row in shown)
    assert len(shown) + 7 * per_layer == len(rows)


def test_a_very_long_attribute_is_cut_and_says_so() -> None:
    build = TraceBuilder()
    build.module("", "Net", attributes=(("short", 1), ("long", "x" * 1000)))

    text = attributes_text(build.build(), 0)

    assert text.startswith("short=1, long='xxx")
    assert text.endswith("…")
    assert len(text) < 300
