"""A small model, captured and with its values kept, without any process."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from torchstone.capture.capture_model import capture
from torchstone.check.child.fingerprint import fingerprint
from torchstone.check.child.model import LoadedModel, loaded_model, set_model
from torchstone.check.child.recording import keep
from torchstone.check.dependencies import dependencies_of
from torchstone.check.plan import Plan, plan
from torchstone.check.record_values import mark_recorded, read_unserializable, wanted_values
from torchstone.check.requests import Requests
from torchstone.check.settings import Folder, Settings
from torchstone.models.inputs import inputs_from_value
from torchstone.record.codec import save
from torchstone.record.trace import Trace


@dataclass(frozen=True)
class Kept:
    trace: Trace
    plan: Plan
    folder: Folder

    def requests(self, settings: Settings, *, runs_code: bool = True) -> Requests:
        found = dependencies_of(settings, fingerprint(loaded_model(), []))
        return Requests(
            self.trace, self.folder, settings, read_unserializable(self.folder), runs_code=runs_code, dependencies=found
        )


def kept_model(model: nn.Module, inputs: Any, path: Path, *, weights: bool = False) -> Kept:
    """Capture a model, keep its values in a folder, and hold it for the tasks of this process."""
    given = inputs_from_value(inputs, origin="test")
    trace = capture(model, given, "cpu", reuse=False)
    assert trace.failure is None
    folder = Folder(path=path)
    save(folder.trace, trace)
    held = LoadedModel(model, given.args, given.kwargs, {})
    found = plan(trace)
    mark_recorded(
        folder,
        keep(held, wanted_values(trace, {unit.row for unit in found.units.values()}, weights=weights), folder.values)[
            "unwritten"
        ],
    )
    set_model(held)
    return Kept(trace=trace, plan=found, folder=folder)


def faulty(*faults: dict[str, Any], **settings: Any) -> Settings:
    return Settings(backend="faulty", options={"faults": list(faults)}, exports_ir=False, **settings)
