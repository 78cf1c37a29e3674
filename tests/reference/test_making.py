import pytest
import torch
from torch import Tensor, nn

from tests.reference.nets import Counting, Growing, Noisy, Replacing, TwoLayers
from torchstone.errors import InputError
from torchstone.models.inputs import InputOptions
from torchstone.record.reference import Determinism, Role, Saved
from torchstone.reference.make import Request, make_golden


class Sparse(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.to_sparse()


class Half(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used = nn.Linear(4, 4)
        self.unused = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.used(x)


def test_the_golden_output_is_what_the_model_gives() -> None:
    model, x = TwoLayers(), torch.randn(2, 4)

    golden = make_golden(model, x)

    assert torch.equal(golden.tensors["outputs"], model(x).detach())
    assert golden.data.outputs == Saved(name="outputs")
    assert golden.data.versions["torch"] == torch.__version__
    assert golden.data.dtypes == ("float32",)


@pytest.mark.parametrize(
    ("model", "found"),
    [
        (TwoLayers(), Determinism.EQUAL),
        (Noisy(), Determinism.SEEDED),
        (Counting(), Determinism.DIFFERS),
        (Replacing(), Determinism.EQUAL),
    ],
)
def test_how_sure_the_data_is_stands_in_it(model: nn.Module, found: Determinism) -> None:
    data = make_golden(model, torch.ones(2, 4)).data

    assert data.determinism is found
    assert [drift.name for drift in data.drifts] == ([] if found is Determinism.EQUAL else ["outputs"])


def test_the_drift_of_a_model_that_counts_is_measured() -> None:
    (drift,) = make_golden(Counting(), torch.zeros(2)).data.drifts

    assert drift.max_abs == 2  # the first run adds 1, the second, with another seed, 2, the third 3


def test_modules_that_were_asked_for_and_did_not_run_are_named() -> None:
    request = Request(intermediates="all", watched=("used", "unused"))

    data = make_golden(Half(), torch.ones(1, 4), request).data

    assert data.not_called == ("unused",)
    assert {one.module for one in data.tensors if one.role is Role.MODULE_OUTPUT} == {"used"}


def test_a_tensor_whose_values_cannot_be_kept_is_listed_with_the_reason() -> None:
    golden = make_golden(Sparse(), torch.eye(2))

    (output,) = (one for one in golden.data.tensors if one.role is Role.OUTPUT)
    assert "sparse" in output.reason
    assert "outputs" not in golden.tensors


def test_what_is_needed_to_build_it_again_is_kept() -> None:
    options = InputOptions(seed=7, seq_len=9)

    data = make_golden(TwoLayers(), torch.ones(1, 4), Request(model="net.py::load_model", options=options)).data

    assert data.rebuild.model == "net.py::load_model"
    assert InputOptions(**data.rebuild.options) == options  # type: ignore[arg-type]
    assert data.seed == 7


def test_a_model_without_values_is_refused() -> None:
    with pytest.raises(InputError, match="no golden data"):
        make_golden(nn.Linear(2, 2, device="meta"), torch.ones(1, 2))


def test_training_mode_and_buffers_that_a_run_changes_are_told() -> None:
    notes = make_golden(Growing(), torch.zeros(2)).data.notes

    assert [note.split(";")[0] for note in notes] == [
        "the model is in training mode, and so is the golden data",
        "a run changes 1 buffer (counted)",
    ]
    assert make_golden(TwoLayers().eval(), torch.ones(1, 4)).data.notes == ()
