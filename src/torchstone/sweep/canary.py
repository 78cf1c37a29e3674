"""Is it the vector or the device? After a process died, an op that always works is run on the same backend.

When that fails too, the device is reset, and it is tried once more. When it still fails, no vector is at fault: those
that died since the canary last passed, and all that did not run yet, are reported as not run.
"""

import subprocess
from typing import Any

from torchstone.record.base import Record
from torchstone.record.task import Ending, Limits, Task, TaskResult
from torchstone.record.vector import Vector, VectorResult

_PREFIX = "canary "
_RESET_S = 300.0
CALL: dict[str, Any] = {
    "op": "aten.add.Tensor",
    "arguments": {"self": {"tensor": "i0"}, "other": {"tensor": "i1"}, "alpha": 1},
    "inputs": [
        {"name": f"i{number}", "shape": [2], "dtype": "float32", "stride": [1], "offset": 0, "memory": number,
         "facts": {"lowest": 2.0, "highest": 2.0}}
        for number in range(2)
    ],
}  # fmt: skip


class Verdict(Record, frozen=True, kw_only=True):
    """What the canary means for the run."""

    fault: str = ""  # why the run cannot continue
    send_again: Task | None = None
    blamed: tuple[tuple[Vector, VectorResult], ...] = ()  # died, and it was not their doing


def is_canary(task_id: str) -> bool:
    """Whether a task is a canary's."""
    return task_id.startswith(_PREFIX)


class Canary:
    """Sent after each death; knows who died since the last good sign."""

    def __init__(
        self, *, entry: str, extra: dict[str, Any], deadline_s: float, reset_command: tuple[str, ...] = ()
    ) -> None:
        self.resets = 0
        self._entry = entry
        self._extra = extra
        self._deadline_s = deadline_s
        self._reset_command = reset_command
        self._sent = 0
        self._suspects: dict[str, tuple[Vector, VectorResult]] = {}

    def task_after(self, vector: Vector, result: VectorResult) -> Task:
        """The canary to send after a vector died."""
        self._suspects[vector.id] = (vector, result)
        return self._task()

    def heard(self, task: TaskResult) -> Verdict:
        """What its ending means; a reset happens in here."""
        answer = task.answer if task.ending is Ending.ANSWERED and isinstance(task.answer, dict) else {}
        if answer.get("outcome") == "passed":
            self._suspects.clear()
            return Verdict()
        why = str(answer.get("detail") or task.evidence.error or task.ending.value)
        if not self.resets and self._reset_command:
            self.resets += 1
            trouble = self._reset()
            if not trouble:
                return Verdict(send_again=self._task())
            why = f"{why}; {trouble}"
        fault = f"not the vector's fault: an op that always works fails here, too ({why})"
        return Verdict(fault=fault, blamed=tuple(self._suspects.values()))

    def _task(self) -> Task:
        self._sent += 1
        limits = Limits(deadline_s=self._deadline_s)
        return Task(id=f"{_PREFIX}{self._sent}", entry=self._entry, payload={**CALL, **self._extra}, limits=limits)

    def _reset(self) -> str:
        """Run the user's command that resets the device; what went wrong, or nothing."""
        try:
            done = subprocess.run(  # noqa: S603 - the user's own command
                self._reset_command, capture_output=True, text=True, check=False, timeout=_RESET_S
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"the reset command failed: {error}"
        return "" if done.returncode == 0 else f"the reset command ended with exit code {done.returncode}"
