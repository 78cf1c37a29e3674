"""A finding -> a script that reproduces it, with shapes as small as possible, run once to be sure."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

from torchstone.check.localize import Cause, named_places
from torchstone.check.plan import Unit
from torchstone.check.programs import program_of_steps
from torchstone.check.requests import Requests
from torchstone.check.runner import Request, Runner, fails_alike, reproduces
from torchstone.check.settings import Folder, Settings
from torchstone.numerics.standalone import source_of_difference
from torchstone.numerics.tolerance import tolerance_for
from torchstone.record.base import Record
from torchstone.record.check import Blame, Outcome, UnitResult
from torchstone.record.codec import write_atomically
from torchstone.record.task import Ending, Task
from torchstone.record.trace import Trace
from torchstone.workers.shrink import Sizes, one_by_one, shrink_sizes

# --- Programs with smaller shapes ---


Description = dict[str, Any]

_NO_SIZES = ("dim", "dims", "dilation", "stride", "padding", "output_padding", "kernel_size", "output_mask", "axes")
_SINGLE_SIZES = ("end", "length", "split_size", "size", "num_classes")


def smaller_program(program: Description, sizes: Mapping[int, int]) -> Description:
    """The program with the sizes among its arguments changed alike."""
    steps = [
        {**step, "kwargs": {name: _smaller(name, value, sizes) for name, value in step["kwargs"].items()}}
        for step in program["steps"]
    ]
    return {**program, "steps": steps}


def smaller_shape(shape: Sequence[int], sizes: Mapping[int, int]) -> tuple[int, ...]:
    """A shape after shrinking."""
    return tuple(sizes.get(size, size) for size in shape)


def _smaller(name: str, value: object, sizes: Mapping[int, int]) -> Any:
    if type(value) is int and name in _SINGLE_SIZES:
        return sizes.get(value, value)
    if isinstance(value, dict) and name not in _NO_SIZES:
        return {
            kind: [sizes.get(item, item) if type(item) is int else item for item in items]
            if kind in ("list", "tuple")
            else items
            for kind, items in value.items()
        }
    return value


# --- Scripts ---


_TEMPLATES = Path(__file__).with_name("templates")
_OF_TORCH = ("aten", "prims", "prim")


class Repro(Record, frozen=True, kw_only=True):
    """A finished script."""

    file: str = ""  # relative to the folder of results
    shapes: str = ""
    needs: str = ""
    confirmed: bool = False


class ModelSource(Record, frozen=True, kw_only=True):
    """Where the model comes from, for scripts that must load it; no name: it cannot be loaded by one."""

    model: str = ""
    inputs: str | None = None
    options: dict[str, Any] = {}


class Repros:
    """Writes the scripts of one check."""

    def __init__(
        self, trace: Trace, requests: Requests, runner: Runner, *, folder: Folder, settings: Settings,
        source: ModelSource,
    ) -> None:  # fmt: skip
        self._trace = trace
        self._requests = requests
        self._runner = runner
        self._folder = folder
        self._settings = settings
        self._source = source

    def write(self, cause: Cause, unit: Unit, number: int) -> Repro:
        """The script of one cause; none where it needs a model that cannot be loaded again."""
        if cause.blame is not Blame.MODULE:
            return self._of_ops(cause, number)
        if not self._source.model or not self._requests.runs_code(unit):
            return Repro()
        return self._of_module(cause, number)

    def _of_ops(self, cause: Cause, number: int) -> Repro:
        program = self._requests.program(cause.row)
        ops = [program.steps[place].op for place in cause.places]
        name = f"{number:03}_{_file_name(ops)}"
        small = _Smaller(cause, self._trace, self._requests, self._runner)
        sizes, tensors = small.shrink(self._settings.most_shrinking_runs)
        file = self._folder.path / "repros" / f"{name}.py"
        written = small.source(sizes, tensors, values_file=file.with_suffix(".safetensors"))
        if written is None:
            return Repro()
        needs = written["needs"]
        if written["needs_file"] and "torchstone" not in needs:
            needs = f"{needs}, and torchstone to read the values beside it"
        if self._registered(ops):
            needs = f"{needs}, and the code of the model, which brings the op"
        text = _filled(
            "repro_ops.txt",
            title=self._title(cause, ops),
            reason=_one_line(cause.result.reason),
            where=self._where(cause),
            shapes=written["shapes"] or "none",
            needs=needs,
            source=written["source"],
            registered=self._registered(ops),
            constants="".join(f", self.constant{number}" for number in range(written["constants"])),
            compiled=written["compiled"],
            tensors_in=written["tensors_in"],
            inputs=str(written["inputs"]),
            difference=source_of_difference(),
            limits=repr(_limits(cause.result)),
        )
        write_atomically(file, text.encode())
        return Repro(
            file=f"repros/{name}.py",
            shapes=written["shapes"],
            needs=needs,
            confirmed=self._confirm(cause, file, name),
        )

    def _of_module(self, cause: Cause, number: int) -> Repro:
        module = self._trace.modules[self._trace.module_calls.modules[cause.row]]
        name = f"{number:03}_{_file_name([module.class_name.rpartition('.')[2]])}"
        file = self._folder.path / "repros" / f"{name}.py"
        tolerance = self._settings.tolerances.for_names((module.path, module.class_name.rpartition(".")[2]))
        text = _filled(
            "repro_module.txt",
            title=f"{module.class_name} ({module.path or 'the model itself'}) on {self._settings.backend}: "
            f"{cause.result.outcome.value}.",
            reason=_one_line(cause.result.reason),
            needs_more=f" with the backend {self._settings.backend}",
            values=repr(str(self._folder.values_of(cause.row).relative_to(self._folder.path))),
            model=repr(self._source.model),
            model_inputs=repr(self._source.inputs),
            options=repr(self._source.options),
            path=repr(module.path),
            backend=repr(self._settings.backend),
            backend_options=repr(self._settings.options),
            tolerance=repr(tolerance),
            profile=repr(self._settings.profile),
        )
        write_atomically(file, text.encode())
        return Repro(
            file=f"repros/{name}.py",
            needs=f"torchstone with the backend {self._settings.backend}, and the model",
            confirmed=self._confirm(cause, file, name),
        )

    def _confirm(self, cause: Cause, file: Path, name: str) -> bool:
        """Run the script; it must fail, and in the way it was found."""
        task = Task(
            id=f"confirm:{name}", entry="torchstone.check.child.repro:run_script", payload={"script": str(file)}
        )
        return reproduces(self._runner.answer(Request(task=task)), cause.result)

    def _registered(self, ops: Sequence[str]) -> str:
        """How a script gets ops that torch does not have: from the code that the model came with."""
        if all(op.partition(".")[0] in _OF_TORCH for op in ops):
            return ""
        module, _, _ = self._source.model.rpartition("::")
        if module or self._source.model.endswith(".py"):
            file = str(Path(module or self._source.model).resolve())
            return f"\nimport runpy\n\nrunpy.run_path({file!r})  # makes the ops that torch does not have\n\n"
        package = self._source.model.partition(":")[0] if "." in self._source.model else "transformers"
        return f"\nimport {package}  # makes the ops that torch does not have\n\n"

    def _title(self, cause: Cause, ops: Sequence[str]) -> str:
        what = ops[0] if len(ops) == 1 else f"{len(ops)} ops together ({', '.join(dict.fromkeys(ops))})"
        return f"{what} on {self._settings.backend}: {cause.result.outcome.value}."

    def _where(self, cause: Cause) -> str:
        module = self._trace.modules[self._trace.module_calls.modules[cause.row]]
        return f"{module.path or 'the model itself'} ({module.class_name.rpartition('.')[2]})"


class _Smaller:
    """The program of one cause with smaller shapes."""

    def __init__(self, cause: Cause, trace: Trace, requests: Requests, runner: Runner) -> None:
        self._cause = cause
        self._requests = requests
        self._runner = runner
        self._program = program_of_steps(requests.program(cause.row), cause.places)
        names = (*self._program["inputs"], *self._program["constants"])
        self._shapes = [trace.tensors[int(name[1:])].spec.shape for name in names]
        self._runs = 0

    def shrink(self, most_runs: int) -> tuple[Sizes, str]:
        """The smallest sizes, and whether random values show the failure as well as the recorded ones."""
        if self._cause.result.outcome is Outcome.TIMED_OUT:  # each try takes the whole deadline
            with_random_values = one_by_one(lambda sizes: self.still_fails(sizes, tensors="random"))
            sizes = shrink_sizes(self._shapes, with_random_values, most_runs=1)
            return sizes, "random" if sizes else "recorded"
        sizes = shrink_sizes(self._shapes, one_by_one(self.still_fails), most_runs=most_runs)
        return sizes, "random" if self.still_fails(sizes, tensors="random") else "recorded"

    def still_fails(self, sizes: Sizes, tensors: str = "recorded") -> bool:
        name = f"smaller:{self._cause.unit}:{named_places(self._cause.places)}:{self._runs}"
        self._runs += 1
        result = self._runner.answer(self._request(name, sizes, tensors))
        return result.failed and fails_alike(result, self._cause.result)

    def source(self, sizes: Sizes, tensors: str, *, values_file: Path) -> Mapping[str, Any] | None:
        request = self._request("source", sizes, tensors, values_file=str(values_file))
        task = Task(id="source", entry="torchstone.check.child.repro:write_source", payload=request.task.payload)
        ended = self._runner.fetch(task)
        return ended.answer if ended.ending is Ending.ANSWERED and isinstance(ended.answer, dict) else None

    def _request(self, name: str, sizes: Sizes, tensors: str, **more: object) -> Request:
        return self._requests.for_steps(
            name,
            self._cause.row,
            self._cause.places,
            smaller=smaller_program(self._program, sizes),
            sizes={str(size): target for size, target in sizes.items()},
            tensors=tensors,
            **more,
        )


def write_rerun(folder: Folder, *, deadline_s: float) -> None:
    """A pytest file that runs every script again."""
    text = _filled("rerun.txt", deadline_s=f"{deadline_s:g}")
    write_atomically(folder.path / "tests" / "test_failures.py", text.encode())


def _limits(result: UnitResult) -> dict[str, float | None]:
    """What a script judges by: the relative error that noise explains, or the tolerance that the user asked for."""
    usual = tolerance_for("float32", "float32").limits()
    if "pcc" not in result.tolerance and "relative_l2" in result.tolerance:
        return {"pcc": None, "relative_l2": float(result.tolerance["relative_l2"]), "rtol": 0.0, "atol": 0.0}
    return {name: float(result.tolerance.get(name, limit)) for name, limit in usual.items()}


def _filled(template: str, **values: str) -> str:
    return Template((_TEMPLATES / template).read_text(encoding="utf-8")).substitute(values)


def _file_name(ops: Sequence[str]) -> str:
    words = ops[0] if len(ops) == 1 else f"{len(ops)}_ops_{ops[0]}"
    return re.sub(r"[^A-Za-z0-9_]+", "_", words)[:60]


def _one_line(text: str) -> str:
    """Safe inside a docstring."""
    return " ".join(text.replace("\\", "/").replace('"""', "'''").split())[:300] or "no words"
