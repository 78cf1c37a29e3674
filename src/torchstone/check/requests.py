"""Units, ops and groups of ops -> requests that a child can answer."""

import json
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any

import msgspec

from torchstone.check.dependencies import Dependencies
from torchstone.check.plan import Unit
from torchstone.check.programs import CallProgram, program_of_call, program_of_steps
from torchstone.check.runner import Request
from torchstone.check.settings import Folder, Settings
from torchstone.record.codec import write_atomically
from torchstone.record.task import Task
from torchstone.record.trace import Trace

_PROGRAMS_IN_MEMORY = 16
_EXPORT_ENTRY = "torchstone.check.child.run:export_unit"


class Requests:
    """Makes the requests of one check; the ops of a module call are written down when they are first needed."""

    def __init__(
        self, trace: Trace, folder: Folder, settings: Settings, unwritten: Mapping[str, str], *, runs_code: bool,
        dependencies: Dependencies | None = None,
    ) -> None:  # fmt: skip
        self._trace = trace
        self._folder = folder
        self._settings = settings
        self._runs_code = runs_code
        self._dependencies = dependencies  # None: no result is reused
        self._unwritten = dict(unwritten)  # rows whose arguments have no written form -> why
        self._values_digest = lru_cache(maxsize=None)(self._recorded_values_digest)
        self.program = lru_cache(maxsize=_PROGRAMS_IN_MEMORY)(self._program)

    def add_unwritten(self, rows: Mapping[str, str]) -> None:
        """Further rows whose arguments have no written form."""
        self._unwritten |= rows

    def runs_code(self, unit: Unit) -> bool:
        """Whether the module's own code runs; its recorded ops do otherwise."""
        return self._runs_code and str(unit.row) not in self._unwritten

    def no_code_reason(self, unit: Unit) -> str:
        """Why only the recorded ops of a module run; "" when its code does."""
        if self.runs_code(unit):
            return ""
        reason = self._unwritten.get(str(unit.row)) if self._runs_code else None
        return f"its recorded ops ran, not its code: {reason}" if reason else ""

    def for_unit(self, unit: Unit) -> Request:
        """Whether a module works."""
        module = self._trace.modules[self._trace.module_calls.modules[unit.row]]
        name = f"unit:{unit.id}"
        program = self.program(unit.row)
        steps = range(len(program.steps))
        tolerance = self._settings.tolerances.for_names((module.path, module.class_name.rpartition(".")[2]))
        payload = self._payload(name, tolerance)
        ir_folder = f"irs/{unit.id}" if self._settings.exports_ir else ""
        code = self.runs_code(unit)
        if code:
            payload |= {"path": module.path, "values": str(self._folder.values_of(unit.row))}
        else:
            payload |= self._steps(unit.row, steps)
        with_ir = payload | {"irs": str(self._folder.path / ir_folder)} if ir_folder else {}
        at_once = bool(with_ir) and self._settings.ir_of_passing
        entry = "torchstone.check.child.run:run_module" if code else "torchstone.check.child.run:run_program"
        return Request(
            task=Task(id=name, entry=entry, payload=with_ir if at_once else payload),
            ir_task=self._export_task(unit, with_ir) if with_ir and not at_once else None,
            stage_file=payload["stage_file"],
            ir_folder=ir_folder,
            reuse_key=self._reuse_key(unit.row, steps, tolerance, extra="code" if code else "ops"),
        )

    def again(self, unit: Unit, number: int) -> Request:
        """The same module in one more process."""
        request = self.for_unit(unit)
        task = msgspec.structs.replace(request.task, id=f"{request.task.id}:again{number}")
        return msgspec.structs.replace(request, task=task, ir_task=None, reuse_key="")

    def _export_task(self, unit: Unit, payload: dict[str, object]) -> Task:
        limits = msgspec.structs.replace(self._settings.limits, retries_timeout=False)
        return Task(id=f"ir:{unit.id}", entry=_EXPORT_ENTRY, payload=payload, limits=limits)

    def for_steps(self, name: str, row: int, chosen: Sequence[int]) -> Request:
        """Whether some recorded ops of a module call work, together."""
        program = self.program(row)
        tolerance = self._settings.tolerances.for_names([program.steps[place].op for place in chosen])
        payload = self._payload(name, tolerance) | self._steps(row, chosen)
        return Request(
            task=Task(id=name, entry="torchstone.check.child.run:run_program", payload=payload),
            stage_file=payload["stage_file"],
            reuse_key=self._reuse_key(row, chosen, tolerance, extra="ops"),
        )

    def for_graph(self, unit: Unit, name: str, entry: str, **more: object) -> Request:
        """Something about the graph that the backend receives for a module call; about its ops where it has none."""
        module = self._trace.modules[self._trace.module_calls.modules[unit.row]]
        tolerance = self._settings.tolerances.for_names((module.path, module.class_name.rpartition(".")[2]))
        payload = self._payload(name, tolerance)
        program = self.program(unit.row)
        if program.replayable:
            payload |= self._steps(unit.row, range(len(program.steps)))
        if self.runs_code(unit):
            payload |= {"path": module.path, "values": str(self._folder.values_of(unit.row))}
        return Request(task=Task(id=name, entry=entry, payload=payload | more), stage_file=payload["stage_file"])

    def progress_file(self, unit: Unit) -> Path:
        """Where a sweep over the steps of a unit says how far it came."""
        return self._folder.stage_of(f"sweep:{unit.id}")

    def _payload(self, name: str, tolerance: dict[str, object]) -> dict[str, Any]:
        stage = self._folder.stage_of(name)
        stage.parent.mkdir(parents=True, exist_ok=True)
        return {
            "backend": self._settings.backend_payload,
            "tolerance": tolerance,
            "profile": self._settings.profile,
            "stage_file": str(stage),
            "backward": self._settings.backward,
            "deadline_s": self._settings.limits.deadline_s,
        }

    def _steps(self, row: int, chosen: Sequence[int]) -> dict[str, object]:
        self._write_program(row)
        return {
            "call": str(self._folder.program_of(row)),
            "values": str(self._folder.values_of(row)),
            "weights": str(self._folder.values / "weights.safetensors"),
            "program": program_of_steps(self.program(row), chosen),
            "chosen": list(chosen),
        }

    def _program(self, row: int) -> CallProgram:
        return program_of_call(self._trace, row)

    def _write_program(self, row: int) -> None:
        path = self._folder.program_of(row)
        if path.is_file():
            return
        program = self.program(row)
        document = {
            "steps": [step.description for step in program.steps],
            "externals": {name: external.parameter_path for name, external in program.externals.items()},
        }
        write_atomically(path, json.dumps(document).encode())

    def _reuse_key(self, row: int, chosen: Collection[int], tolerance: dict[str, object], *, extra: str) -> str:
        """Equal where the same ops meet the same values on the same backend, whatever model they are in.

        Earlier ops of the call compute the values that the chosen ops read: all of its ops count.
        """
        if not self._settings.reuse or self._dependencies is None:
            return ""
        program = self.program(row)
        calls = [self._trace.ops[step.op_call] for step in program.steps]
        first: dict[int, int] = {}
        flow = [[first.setdefault(number, len(first)) for number in (*call.inputs, *call.outputs)] for call in calls]
        read = {one.parameter_path for one in program.externals.values() if one.parameter_path is not None}
        weights = None if extra == "code" else {*read, *(f"buffer {name}" for name in read)}
        parts = {
            "ops": [repr(call.signature) for call in calls],
            "flow": flow,
            "chosen": sorted(chosen),
            "values": self._values_digest(row),
            "depends on": self._dependencies.key(weights),
            "backend": [self._settings.backend, sorted(self._settings.options.items()), self._settings.python],
            "limits": msgspec.to_builtins(self._settings.limits),
            "tolerance": tolerance,
            "profile": self._settings.profile,
            "backward": self._settings.backward,
            "form": extra,
        }
        text = json.dumps(parts, sort_keys=True, default=str)
        return f"r3-{sha256(text.encode()).hexdigest()}"

    def _recorded_values_digest(self, row: int) -> str:
        digest = sha256()
        for path in (self._folder.values_of(row), self._folder.values_of(row).with_suffix(".json")):
            with path.open("rb") as file:
                digest.update(file_digest(file, "sha256").digest())
        return digest.hexdigest()
