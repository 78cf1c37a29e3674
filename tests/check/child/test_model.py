import pytest
from torch import nn

from tests.check.held import faulty
from torchstone.check.child import model as child_model
from torchstone.check.child.model import LoadedModel, backend_for, has_model, loaded_model, set_model, set_up_backend


@pytest.fixture(autouse=True)
def _nothing_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_model, "_models", [])
    monkeypatch.setattr(child_model, "_backends", {})


def test_a_process_without_a_model_says_so() -> None:
    assert not has_model()
    with pytest.raises(LookupError, match="no model was loaded"):
        loaded_model()


def test_the_newest_model_is_held() -> None:
    set_model(LoadedModel(nn.ReLU(), (), {}, {}))
    set_model(LoadedModel(nn.GELU(), (), {}, {}))

    assert isinstance(loaded_model().model, nn.GELU)


def test_a_backend_is_opened_once() -> None:
    payload = faulty({"fault": "wrong"}).backend_payload

    set_up_backend(payload)

    assert backend_for(payload) is backend_for(payload)


def test_other_options_are_another_backend() -> None:
    wrong = backend_for(faulty({"fault": "wrong"}).backend_payload)

    assert backend_for(faulty({"fault": "nan"}).backend_payload) is not wrong


def test_a_backend_that_cannot_run_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PATH", "CXX"):
        monkeypatch.setenv(name, "")

    with pytest.raises(RuntimeError, match=r"cannot run here: no C\+\+ compiler; it needs"):
        set_up_backend({"spec": "inductor", "options": {}})
