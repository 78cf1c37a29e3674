"""Export the IR of one module of an earlier check, in a process of its own."""

from pathlib import Path
from typing import Any

import msgspec

from torchstone.check.check_model import Subject, opened_pool, runs_code
from torchstone.check.plan import Plan, plan
from torchstone.check.record_values import read_unserializable
from torchstone.check.requests import Requests
from torchstone.check.runner import unit_result
from torchstone.check.settings import Folder, Settings
from torchstone.errors import InputError, UnreadableFileError
from torchstone.models.inputs import InputOptions
from torchstone.record.check import UnitResult
from torchstone.record.codec import load
from torchstone.record.files import read_json
from torchstone.record.trace import Trace


def export_ir(modules_json: Path, module_id: str, settings: Settings) -> tuple[str, UnitResult]:
    """Export the IR of a module, by its id or the beginning of it; gives the whole id and how it went."""
    folder = Folder(path=modules_json.resolve().parent)
    about = read_about(folder)
    subject = Subject(model=about["model"], inputs=about["inputs"], options=InputOptions(**about["options"]))
    trace = load(folder.trace, Trace)
    found = plan(trace)
    unit = found.units[_find(found, module_id)]
    code = runs_code(subject, settings)
    exporting = msgspec.structs.replace(settings, exports_ir=True, ir_of_passing=False)
    requests = Requests(trace, folder, exporting, read_unserializable(folder), runs_code=code)
    request = requests.for_unit(unit)
    with opened_pool(settings, subject if code else None) as pool:
        pool.submit(request.ir_task or request.task)
        (ended,) = pool.results()
    stage = Path(request.stage_file)
    return unit.id, unit_result(
        ended, stage=stage.read_text(encoding="ascii") if stage.is_file() else "", ir_folder=request.ir_folder
    )


def read_about(folder: Folder) -> dict[str, Any]:
    """What the check in a folder was made with."""
    if not folder.about.is_file() or not folder.recorded_marker.is_file() or not folder.trace.is_file():
        msg = f"{folder.path} has no check to export from; run `torchstone check MODEL --dir {folder.path}` first"
        raise UnreadableFileError(msg)
    about: object = read_json(folder.about)
    if not isinstance(about, dict) or not about.get("model"):
        msg = f"the check in {folder.path} is of a module in memory, which cannot be loaded again; check a named model"
        raise InputError(msg)
    return about


def settings_with(settings: Settings, about: dict[str, object]) -> Settings:
    """The settings of an earlier check, where no backend is given."""
    if settings.backend:
        return settings
    return msgspec.structs.replace(
        settings, backend=about["backend"], options=about["backend_options"], python=about["python"]
    )


def _find(found: Plan, module_id: str) -> str:
    if module_id in found.units:
        return module_id
    near = [name for name in found.units if name.startswith(f"{module_id}_")]
    if not near:
        known = [module.id for module in found.unique if module.id.startswith(module_id)]
        what = f"{known[0]} was never called" if known else f"there is no module {module_id!r}"
        msg = f"{what}; the ids stand in unique_modules.json, such as {found.root}"
        raise InputError(msg)
    return near[0]
