import msgspec
import pytest

from torchstone.record.codec import encode
from torchstone.record.cost import Category, Conventions, Traffic


def test_all_bytes_moved_are_those_read_and_written() -> None:
    traffic = Traffic(read_bytes={Category.WEIGHTS: 3, Category.KV_CACHE: 4}, written_bytes={Category.ACTIVATIONS: 5})
    assert traffic.total_bytes == 12


def test_conventions_are_written_out_even_where_they_are_the_usual_ones() -> None:
    document = msgspec.json.decode(msgspec.json.encode(Conventions()))
    assert (document["multiply_add"], document["causal"]) == (2, "full")


@pytest.mark.torch
def test_the_document_of_a_table_has_the_keys_that_programs_rely_on() -> None:
    from torch import nn

    from tests.cost.test_rollup import table_of

    document = msgspec.json.decode(encode(table_of(nn.Identity())))
    assert document["schema"] == "torchstone/cost/1"
    assert document["totals"].keys() >= {
        "flops", "matmul_flops", "bytes_read", "bytes_written", "peak_bytes", "parameter_bytes",
    }  # fmt: skip
    assert document["unpriced"] == {}
    assert document["modules"][0].keys() >= {"path", "class", "flops", "self_flops", "bytes_read", "bytes_written"}
    assert "conventions" in document
