import csv
import io

from tests.report.traces import transformer
from torchstone.report.reference.documents import hierarchy_txt, parameters_csv, tensors_csv


def rows_of(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content.decode())))


def test_every_tensor_has_a_line_with_its_shape_and_origin() -> None:
    trace = transformer(2)
    rows = rows_of(tensors_csv(trace))

    assert [int(row["tensor"]) for row in rows] == list(range(len(trace.tensors)))
    assert sum(row["kind"] == "intermediate" for row in rows) == len(trace.ops)
    made = next(row for row in rows if row["op"] == "aten.silu.default")
    assert (made["shape"], made["module"]) == ("1x16x256", "model.layers.0.mlp")


def test_the_hierarchy_shows_every_module_unfolded() -> None:
    trace = transformer(3)

    assert len(hierarchy_txt(trace).decode().splitlines()) == 1 + len(trace.modules)


def test_a_tied_parameter_names_its_twin() -> None:
    rows = {row["name"]: row for row in rows_of(parameters_csv(transformer(1, tied=True)))}

    assert rows["lm_head.weight"]["tied_to"] == "model.embed.weight"
    assert rows["model.embed.weight"]["tied_to"] == ""
    assert rows["model.embed.weight"]["shape"] == "1000x64"
    assert int(rows["model.embed.weight"]["bytes"]) == 4 * 64_000
