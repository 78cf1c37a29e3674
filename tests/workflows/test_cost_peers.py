from pathlib import Path

import pytest

from tests.report.folders import folder_of
from tests.report.traces import transformer
from torchstone.errors import InputError
from torchstone.models.inputs import InputOptions
from torchstone.record.codec import decode, encode
from torchstone.record.cost import CostTable
from torchstone.record.task import Limits
from torchstone.workflows.cost import CostRequest, cost_model
from torchstone.workflows.cost_peers import _count_in_child, chosen_peers
from torchstone.workflows.model_source import ModelRequest


def test_the_comparison_is_part_of_the_table_and_of_its_document() -> None:
    model = ModelRequest(model="tiny:bert", options=InputOptions(seq_len=8))

    table = cost_model(CostRequest(model=model, compare_with="flop_counter")).table

    assert table.comparison is not None
    (compared,) = table.comparison.counters
    assert (compared.count.name, compared.count.error) == ("flop_counter", "")
    assert table.comparison.matmul_flops == table.totals.matmul_flops
    explained = sum(found.ours - found.theirs for found in compared.differences)
    assert compared.count.total_flops == table.totals.matmul_flops - explained
    assert decode(encode(table), CostTable, origin="here") == table


def test_counters_need_the_model_itself(tmp_path: Path) -> None:
    folder = folder_of(transformer(1), tmp_path)

    with pytest.raises(InputError, match="is a saved trace"):
        chosen_peers(ModelRequest(model=str(folder)), "flop_counter")


def test_a_backward_pass_is_not_compared_with_forward_ones() -> None:
    with pytest.raises(InputError, match="count a forward pass only; drop --backward"):
        chosen_peers(ModelRequest(model="tiny:bert", backward=True), "flop_counter")


def test_an_unknown_counter_is_refused_before_the_model_is_loaded() -> None:
    with pytest.raises(InputError, match="unknown counter 'abacus'"):
        cost_model(CostRequest(model=ModelRequest(model="no/such-model"), compare_with="abacus"))


def installed(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """A package of the name of a counter, found before any other."""
    package = folder / "thop"
    package.mkdir()
    (package / "__init__.py").write_text(f"import os, time\n\ndef profile(*args, **kwargs):\n    {body}\n")
    monkeypatch.syspath_prepend(str(folder))


def test_a_counter_that_never_answers_is_ended_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, monkeypatch, "time.sleep(100_000)")

    count = _count_in_child("thop", ModelRequest(model="tiny:bert"), "cpu", Limits(deadline_s=3.0))

    assert count.total_flops is None
    assert "had not answered after" in count.error


def test_a_counter_that_ends_its_process_gets_a_row_and_its_noise_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    installed(tmp_path, monkeypatch, "os.write(1, b'noise'); os.write(2, b'noise'); os._exit(7)")

    count = _count_in_child("thop", ModelRequest(model="tiny:bert"), "cpu")

    assert (count.total_flops, count.error) == (None, "ended its process (exit code 7)")
    assert capfd.readouterr() == ("", "")


def test_a_model_that_a_counter_cannot_be_given_is_the_error_of_its_row() -> None:
    count = _count_in_child("flop_counter", ModelRequest(model="no/such-model"), "cpu")

    assert "no/such-model" in count.error
