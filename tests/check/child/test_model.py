import pytest
from torch import nn

from tests.check.held import faulty
from torchstone.check.child import model as child_model
from torchstone.check.child.model import HeldModel, backend_for, held_model, hold_backend, hold_model, holds_model


@pytest.fixture(autouse=True)
def _nothing_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_model, "_models", [])
    monkeypatch.setattr(child_model, "_backends", {})


def test_a_process_without_a_model_says_so() -> None:
    assert not holds_model()
    with pytest.raises(LookupError, match="holds no model"):
        held_model()


def test_the_newest_model_is_held() -> None:
    hold_model(HeldModel(nn.ReLU(), (), {}, {}))
    hold_model(HeldModel(nn.GELU(), (), {}, {}))

    assert isinstance(held_model().model, nn.GELU)


def test_a_backend_is_opened_once() -> None:
    payload = faulty({"fault": "wrong"}).backend_payload

    hold_backend(payload)

    assert backend_for(payload) is backend_for(payload)


def test_other_options_are_another_backend() -> None:
    wrong = backend_for(faulty({"fault": "wrong"}).backend_payload)

    assert backend_for(faulty({"fault": "nan"}).backend_payload) is not wrong


def test_a_backend_that_cannot_run_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PATH", "CXX"):
        monkeypatch.setenv(name, "")

    with pytest.raises(RuntimeError, match=r"cannot run here: no C\+\+ compiler; it needs"):
        hold_backend({"spec": "inductor", "options": {}})
