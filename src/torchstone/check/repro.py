"""A finding -> a script that reproduces it, with shapes as small as possible, run once to be sure."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

from torchstone.check.causes import DEADLY, Cause
from torchstone.check.localize import Search
from torchstone.check.runner import Request, Runner, reproduces
from torchstone.check.settings import Folder, Settings
from torchstone.numerics.standalone import source_of_difference
from torchstone.numerics.tolerance import tolerance_for
from torchstone.record.base import Record
from torchstone.record.check import Outcome, Rung, Twin, UnitResult
from torchstone.record.codec import write_atomically
from torchstone.record.task import Ending, Limits, Task
from torchstone.record.trace import Trace
from torchstone.units import many

_TEMPLATES = Path(__file__).with_name("templates")
_OF_TORCH = ("aten", "prims", "prim", "torch", "_operator")
_USUAL_MEMORY_BYTES = 4 << 30
_SCRIPT_MEMORY_BYTES = 64 << 30  # it starts a Python of its own, and limits itself where memory is the finding
_MOST_CALLS = 8
_START_S = 30.0  # a new Python with torch


class Repro(Record, frozen=True, kw_only=True):
    """A finished script."""

    file: str = ""  # relative to the folder of results
    shapes: str = ""
    needs: str = ""
    confirmed: bool = False
    nodes: int = 0  # calls in the script
    parts: dict[str, Any] = {}  # what it was made of, and with which sizes and values
    ladder: tuple[Rung, ...] = ()
    twin: Twin | None = None


class ModelSource(Record, frozen=True, kw_only=True):
    """Where the model comes from, for scripts that must load it; no name: it cannot be loaded by one."""

    model: str = ""
    inputs: str | None = None
    options: dict[str, Any] = {}


class Repros:
    """Writes the scripts of one check."""

    def __init__(
        self, trace: Trace, search: Search, runner: Runner, *, folder: Folder, settings: Settings, source: ModelSource
    ) -> None:
        self._trace = trace
        self._requests = search.requests
        self.runner = runner
        self._search = search
        self.folder = folder
        self.settings = settings
        self._source = source

    def write(self, cause: Cause, number: int) -> Repro:
        """The script of one cause; none where it needs a model that cannot be loaded again."""
        unit = self._search.units[cause.unit]
        if cause.places:
            return self._of_steps(cause, number)
        if not self._source.model or not self._requests.runs_code(unit):
            return Repro()
        return self._of_module(cause, number)

    def _of_steps(self, cause: Cause, number: int) -> Repro:
        """The first that fails as it was found: with small sizes, with random values, with the recorded ones."""
        ops = self._search.ops_of(cause)
        name = f"{number:03}_{_file_name(ops)}"
        file = self.folder.path / "repros" / f"{name}.py"
        kinds = ("random", "recorded") if cause.result.outcome in DEADLY else ("smallest", "recorded")
        for kind in kinds:
            parts = self._parts(cause, kind)
            if parts is None or not parts["source"]:
                continue
            text = self.text(cause, parts)
            trial = self.folder.work / "scripts" / f"{name}_{kind}.py"
            write_atomically(trial, text.encode())
            confirmed = self._confirm(cause, trial, f"{name}:{kind}")
            if confirmed or kind == kinds[-1]:
                write_atomically(file, text.encode())
                return Repro(
                    file=f"repros/{name}.py", shapes=parts["shapes"],
                    needs=self._needs(ops, parts["needs"], parts["registered_by"]),
                    confirmed=confirmed, nodes=parts["nodes"], parts=dict(parts),
                )  # fmt: skip
        return Repro()

    def ops_of(self, cause: Cause) -> tuple[str, ...]:
        """The ops of a cause in order."""
        return self._search.ops_of(cause)

    def graph_task(self, cause: Cause, entry: str, **more: object) -> Task:
        """A task about the graph of a cause."""
        return self._search.graphs.task(self._search.units[cause.unit], f"source:{entry}", entry, **more)

    @property
    def deadline_s(self) -> float:
        """Of a run that may hang."""
        limits = self.settings.limits
        return min(limits.deadline_s, (self._search.graphs.limits or limits).deadline_s)

    def _parts(self, cause: Cause, kind: str) -> Mapping[str, Any] | None:
        found = {"outcome": cause.result.outcome.value, "reason": cause.result.reason}
        entry = "torchstone.check.child.repro:part_source"
        task = self.graph_task(cause, entry, chosen_steps=list(cause.places), tensors=kind, found=found)
        ended = self.runner.fetch(task)
        return ended.answer if ended.ending is Ending.ANSWERED and isinstance(ended.answer, dict) else None

    def text(self, cause: Cause, parts: Mapping[str, Any], *, title: str = "") -> str:
        """A script of these parts."""
        limits, ops = self.settings.limits, self._search.ops_of(cause)
        out_of_memory = cause.result.outcome is Outcome.OUT_OF_MEMORY
        return filled(
            "repro_ops.txt",
            title=title or self.title(cause),
            reason=one_line(cause.result.reason),
            where=self._where(cause),
            shapes=parts["shapes"] or "none",
            needs=self._needs(ops, parts["needs"], parts["registered_by"]),
            deadline_s=f"{self.deadline_s:g}",
            memory_bytes=repr((limits.memory_bytes or _USUAL_MEMORY_BYTES) if out_of_memory else None),
            calls=str(_calls(cause.result)),
            source=parts["source"],
            registered=self._registered(ops, parts["registered_by"]),
            compiled=parts["compiled"],
            tensors_in=parts["tensors_in"],
            outputs_of=parts["outputs_of"],
            difference=source_of_difference(),
            limits=repr(script_limits(parts["tolerance"] or cause.result.tolerance)),
        )

    def _needs(self, ops: Sequence[str], needs: str, registered_by: Sequence[str]) -> str:
        if registered_by:
            return f"{needs}, and {', '.join(registered_by)}, which makes the op"
        code = self._registered(ops, registered_by)
        return f"{needs}, and the code of the model, which makes the op" if code else needs

    def _of_module(self, cause: Cause, number: int) -> Repro:
        module = self._trace.modules[self._trace.module_calls.modules[cause.row]]
        name = f"{number:03}_{_file_name([module.class_name.rpartition('.')[2]])}"
        file = self.folder.path / "repros" / f"{name}.py"
        tolerance = self.settings.tolerances.for_names((module.path, module.class_name.rpartition(".")[2]))
        text = filled(
            "repro_module.txt",
            title=f"{module.class_name} ({module.path or 'the model itself'}) on {self.settings.backend}: "
            f"{cause.result.outcome.value}.",
            reason=one_line(cause.result.reason),
            needs_more=f" with the backend {self.settings.backend}",
            values=repr(str(self.folder.values_of(cause.row).resolve())),
            model=repr(self._source.model),
            model_inputs=repr(self._source.inputs),
            options=repr(self._source.options),
            path=repr(module.path),
            backend=repr(self.settings.backend),
            backend_options=repr(self.settings.options),
            tolerance=repr(tolerance),
            profile=repr(self.settings.profile),
        )
        write_atomically(file, text.encode())
        return Repro(
            file=f"repros/{name}.py",
            needs=f"torchstone with the backend {self.settings.backend}, and the model",
            confirmed=self._confirm(cause, file, name),
        )

    def _confirm(self, cause: Cause, file: Path, name: str) -> bool:
        """Run the script in an empty folder; it must fail, and in the way it was found."""
        limits = self.settings.limits
        deadline_s = 2 * (self._search.graphs.limits or limits).deadline_s + _START_S
        task = Task(
            id=f"confirm:{name}",
            entry="torchstone.check.child.repro:run_script",
            payload={"script": str(file), "deadline_s": deadline_s},
            limits=Limits(deadline_s=deadline_s + _START_S, memory_bytes=_SCRIPT_MEMORY_BYTES),
        )
        return reproduces(self.runner.answer(Request(task=task)), cause.result)

    def _registered(self, ops: Sequence[str], registered_by: Sequence[str]) -> str:
        """How a script gets ops that torch does not have: from the module that makes them, or the model's own code."""
        if all(op.partition(".")[0] in _OF_TORCH for op in ops):
            return ""
        if registered_by:
            imports = "\n".join(f"import {one}  # makes ops that torch does not have" for one in registered_by)
            return f"\n{imports}\n\n"
        module, _, _ = self._source.model.rpartition("::")
        if module or self._source.model.endswith(".py"):
            file = str(Path(module or self._source.model).resolve())
            return f"\nimport runpy\n\nrunpy.run_path({file!r})  # makes the ops that torch does not have\n\n"
        package = self._source.model.partition(":")[0] if "." in self._source.model else "transformers"
        return f"\nimport {package}  # makes the ops that torch does not have\n\n"

    def title(self, cause: Cause) -> str:
        """What fails how, in one sentence."""
        ops = self._search.ops_of(cause)
        what = ops[0] if len(ops) == 1 else f"{many(len(ops), 'op')} together ({', '.join(dict.fromkeys(ops))})"
        return f"{what} on {self.settings.backend}: {cause.result.outcome.value}."

    def _where(self, cause: Cause) -> str:
        module = self._trace.modules[self._trace.module_calls.modules[cause.row]]
        line = self._search.line_of(cause)
        where = f"{module.path or 'the model itself'} ({module.class_name.rpartition('.')[2]})"
        return f"{where}, {one_line(line)}" if line else where


def _calls(found: UnitResult) -> int:
    """How often a script calls what it compiled: more than once where the first call does not tell."""
    return _MOST_CALLS if found.outcome is Outcome.VARIES else 2 if "second on" in found.reason else 1


def write_rerun(folder: Folder, *, deadline_s: float) -> None:
    """A pytest file that runs every script again."""
    text = filled("rerun.txt", deadline_s=f"{deadline_s:g}")
    write_atomically(folder.path / "tests" / "test_failures.py", text.encode())


def script_limits(tolerance: Mapping[str, float | bool]) -> dict[str, float | None]:
    """What a script judges by: the relative error that noise explains, or the tolerance that the user asked for."""
    usual = tolerance_for("float32", "float32").limits()
    if "pcc" not in tolerance and "relative_l2" in tolerance:
        return {"pcc": None, "relative_l2": float(tolerance["relative_l2"]), "rtol": 0.0, "atol": 0.0}
    return {name: float(tolerance.get(name, limit)) for name, limit in usual.items()}


def filled(template: str, **values: str) -> str:
    """A template with its values."""
    return Template((_TEMPLATES / template).read_text(encoding="utf-8")).substitute(values)


def _file_name(ops: Sequence[str]) -> str:
    words = ops[0] if len(ops) == 1 else f"{len(ops)}_ops_{ops[0]}"
    return re.sub(r"[^A-Za-z0-9_]+", "_", words)[:60]


def one_line(text: str) -> str:
    """Safe inside a docstring."""
    return " ".join(text.replace("\\", "/").replace('"""', "'''").split())[:300] or "no words"
