import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.memory.log_generator.device import MIB, wormhole
from tests.memory.log_generator.graphs import random_graph
from tests.memory.log_generator.run import generate
from tests.memory.log_generator.style import Style
from tests.memory.timelines import study_of
from torchstone.memory.dialects.tt_runtime import TTRuntime
from torchstone.memory.documents import memory_json, operations_json, registry_document, show_document
from torchstone.memory.read_log import parse_log
from torchstone.memory.study import Study

styles = st.builds(
    Style,
    level=st.sampled_from(["program", "operation", "any"]),
    info_only=st.booleans(),
    dumps=st.booleans(),
    ansi=st.booleans(),
    prints=st.booleans(),
    ranks=st.sampled_from([0, 2]),
)


def document(pieces: Iterator[bytes]) -> Any:
    return json.loads(b"".join(pieces))


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 10**6), level=st.sampled_from(["any", "operation"]))
def test_both_documents_have_one_element_per_op_and_every_digit(seed: int, level: str) -> None:
    study, truth = study_of(seed, style=Style(level=level))

    memory, operations = document(memory_json(study, "x")), document(operations_json(study, "x"))

    assert [row["index"] for row in memory["operations"]] == list(range(len(truth.rows)))
    for row, row_json, op in zip(truth.rows, memory["operations"], operations["operations"], strict=True):
        dram = row_json["memory"]["DRAM"]
        numbers = [dram[f"{name}_mb_per_bank"] for name in ("allocated", "free", "largest_free")]
        assert numbers == [number / 1000 for number in row.memory["DRAM"]]
        assert row_json["effect"]["DRAM"] == (row.effect["DRAM"] / 1000 if row.effect else None)
        assert (op["index"], op["name"], op["op_type"]) == (row_json["index"], row.name, row.op_type)
        assert (op["program"], op["pass"], op["graph"]) == (row.program, row.pass_index, row.graph)
        assert (op["const_eval"], op["retained"]) == (row.const_eval, row.retained)
    assert memory["summary"]["peak"]["DRAM"]["allocated_mb_per_bank"] == truth.peak("DRAM") / 1000
    assert memory["summary"]["passes"] == truth.passes
    assert memory["schema"] == "torchstone/memory/1"


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 100), style=styles, damage=st.data())
def test_no_damage_breaks_the_analysis(seed: int, style: Style, damage: st.DataObject) -> None:
    lines = generate([random_graph(seed)], style=style, memories=wormhole(dram_bytes=MIB))[0].split(b"\n")
    for _ in range(damage.draw(st.integers(1, 8))):
        at = damage.draw(st.integers(0, len(lines) - 1))
        match damage.draw(st.sampled_from(["drop", "double", "cut", "splice"])):
            case "drop":
                del lines[at : at + 3]
                lines = lines or [b""]
            case "double":
                lines.insert(at, lines[at])
            case "cut":
                lines[at] = lines[at][: len(lines[at]) // 2]
            case _:
                lines[at] = lines[at][:40] + lines[-at] + lines[at][40:]

    assume(TTRuntime().is_spoken_in(b"\n".join(lines)))

    study = Study(parse_log(lines))

    shown = show_document(study)
    assert len(document(memory_json(study, "x"))["operations"]) == shown["summary"]["operations"]
    assert len(document(operations_json(study, "x"))["operations"]) == shown["summary"]["operations"]


def test_a_log_without_op_lines_says_so_in_every_row() -> None:
    study, _ = study_of(3, style=Style(info_only=True))

    operations = document(operations_json(study, "x"))["operations"]

    assert {row["name"] for row in operations} == {None}
    assert operations[0]["op_type"] == "LoadCachedOp"


def test_the_registry_lists_the_arguments_of_each_graph() -> None:
    study, _ = study_of(3)

    arguments = registry_document(study, "x")["arguments"]

    assert {row["graph"] for row in arguments} == {0, 1}
    assert {row["kind"] for row in arguments} == {"parameter", "constant", "input"}
    assert all(row["bytes"] > 0 for row in arguments)


def test_a_failure_stands_in_the_shown_document() -> None:
    study, truth = study_of([random_graph(3)], memories=wormhole(dram_bytes=MIB // 12))

    oom = show_document(study)["oom"]

    assert truth.out_of_memory is not None
    assert oom["operation_index"] == truth.failed_row
    assert oom["needed_bytes"] == truth.out_of_memory.bank_bytes
    assert oom["verdict"] in {"capacity", "fragmentation", "oversized"}


def test_the_samples_shown_document_is_the_ground_truth(sample_log: Path) -> None:
    shown = show_document(Study(parse_log(sample_log)))

    assert shown["oom"] is None
    assert shown["summary"]["peak"]["DRAM"]["allocated_mb_per_bank"] == 12.939
    assert shown["summary"]["peak"]["L1"]["allocated_mb_per_bank"] == 0.25
    assert (shown["summary"]["passes"], shown["summary"]["graphs"]) == (4, 2)
    assert (shown["padding"][0]["logical_bytes"], shown["padding"][0]["padded_bytes"]) == (4096000, 65536000)
