"""A finding with a script -> the same failure in the other forms that its backend takes, and its passing twin.

Every script is run before it is written. It runs in a copy of the process that has torch and the backend loaded: the
first script of a finding has already run in a fresh one.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from torchstone.check.causes import DEADLY, Cause
from torchstone.check.repro import Repro, Repros, filled, one_line, script_limits
from torchstone.check.runner import Request, reproduces
from torchstone.record.base import Record
from torchstone.record.check import Outcome, Rung, Twin, UnitResult
from torchstone.record.codec import write_atomically
from torchstone.record.task import Ending, Limits, Task

TORCH, EXPORTED, ONNX, MLIR, STABLEHLO = "torch", "exported program", "ONNX", "MLIR", "StableHLO"
_MOST_FINDINGS = 8  # the others keep their script alone
_MOST_DEADLY_TRIES = 4  # each costs a deadline where it fails
_USUAL_ERROR = 1e-2  # relative, by which a text is wrong when no noise was measured
_SCRIPT_MEMORY_BYTES = 64 << 30
_REFUSALS = (Outcome.UNSUPPORTED, Outcome.COMPILE_ERROR, Outcome.RAISED)
_TWINS, _FORMS = "torchstone.check.child.twins", "torchstone.check.child.other_forms"
_EXPORTED_SOURCE = '''

def compiled(module, args):
    """The backend gets the exported program of Part:

{graph}
    """
    with torch.no_grad():
        program = torch.export.export(module, tuple(args), strict=False)
    return on_backend(program.module(), args)
'''


class TextForm(Record, frozen=True, kw_only=True):
    """A form that a backend reads as text: the task that writes it, and how a script runs it."""

    form: str
    task: str
    needs: str
    imports: str
    run: str


_RUN_ONNX = """\
def run(text, inputs):
    model = onnx.parser.parse_model(text)
    feeds = {one.name: value for one, value in zip(model.graph.input, inputs)}
    try:
        given = onnx.reference.ReferenceEvaluator(model).run(None, feeds)
        agrees = not any(difference(one, numpy.asarray(other)) for one, other in zip(EXPECTED, given))
        print(f"the reference evaluator of onnx {'agrees' if agrees else 'does not agree'} with PyTorch")
    except Exception as error:
        print(f"the reference evaluator of onnx cannot run it: {type(error).__name__}: {error}")
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)
"""
_RUN_MLIR = """\
def run(text, inputs):
    flags = ["--iree-input-type=torch", "--iree-llvmcpu-target-cpu=host", "--iree-input-demote-f64-to-f32=false"]
    binary = iree.compiler.tools.compile_str(text.encode(), target_backends=["llvm-cpu"], extra_args=flags)
    config = iree.runtime.Config("local-sync")
    loaded = iree.runtime.load_vm_module(iree.runtime.VmModule.copy_buffer(config.vm_instance, binary), config)
    given = loaded["main"](*inputs)
    return [one.to_host() for one in (given if isinstance(given, (tuple, list)) else [given])]
"""
_TEXT_FORMS = {
    "onnxruntime": TextForm(
        form=ONNX, task=f"{_FORMS}:onnx_parts", needs="numpy, onnx and onnxruntime", run=_RUN_ONNX,
        imports="    import onnx.parser\n    import onnx.reference\n    import onnxruntime",
    ),
    "iree": TextForm(
        form=MLIR, task=f"{_FORMS}:mlir_parts", needs="numpy, iree-base-compiler and iree-base-runtime", run=_RUN_MLIR,
        imports="    import iree.compiler.tools\n    import iree.runtime",
    ),
}  # fmt: skip
_IN_A_COPY = "torchstone.check.child.repro:run_script_here"  # of a process that has torch and the backend loaded
_AS_ITS_READER = "torchstone.check.child.repro:run_script"  # a process of its own: a text needs no torch
_NO_TEXT = {  # backends that read StableHLO, and why there is no script of that form
    "stablehlo": "JAX has no public function that compiles StableHLO text; the text itself is among the IR",
    "xla": "torch_xla has no public function that compiles StableHLO text; the text itself is among the IR",
    "tt": "the plugin reads StableHLO from torch_xla alone; the text itself is among the IR",
}


def write_scripts(repros: Repros, causes: Sequence[Cause]) -> list[Repro]:
    """The scripts of all causes in order, with their other forms."""
    ladder = Ladder(repros)
    return [ladder.extended(cause, repros.write(cause, number)) for number, cause in enumerate(causes, start=1)]


class Ladder:
    """Adds the other forms and the twin to the scripts of one check."""

    def __init__(self, repros: Repros) -> None:
        self._repros = repros
        self._runner = repros.runner
        self._settings = repros.settings
        self._left = _MOST_FINDINGS

    def extended(self, cause: Cause, script: Repro) -> Repro:
        """A script with its other forms; as it is where it was not confirmed or is no part of a graph."""
        if not script.file:
            return script
        outcome = cause.result.outcome.value if script.confirmed else ""
        first = Rung(
            form=TORCH, file=script.file, outcome=outcome, reason="" if outcome else "it was not seen to fail again"
        )
        if not cause.places or not script.confirmed or self._settings.backward or not self._left:
            return msgspec.structs.replace(script, ladder=(first,))
        self._left -= 1
        rungs = (first, self._exported(cause, script), *self._text_forms(cause, script))
        return msgspec.structs.replace(script, ladder=rungs, twin=self._twin(cause, script))

    def _exported(self, cause: Cause, script: Repro) -> Rung:
        found = self._ask(cause, script, f"{_FORMS}:exported_text")
        if "text" not in found:
            return Rung(form=EXPORTED, reason=f"torch.export makes none: {found.get('why', 'its process ended')}")
        graph = "\n".join(f"    {line}".rstrip() for line in str(found["text"]).strip().splitlines())
        source = _EXPORTED_SOURCE.format(graph=graph.replace("\\", "/").replace('"""', "'''"))
        compiled = script.parts["compiled"].replace("def compiled(", "def on_backend(", 1) + source
        text = self._repros.text(cause, {**script.parts, "compiled": compiled})
        return self._tried(cause, script, EXPORTED, text)

    def _text_forms(self, cause: Cause, script: Repro) -> tuple[Rung, ...]:
        backend = self._settings.backend
        if backend in _NO_TEXT:
            return (Rung(form=STABLEHLO, reason=_NO_TEXT[backend]),)
        form = _TEXT_FORMS.get(backend)
        if form is None:
            return ()
        if cause.result.outcome in DEADLY:
            return (Rung(form=form.form, reason=f"not written for what ends as {cause.result.outcome.value}"),)
        found = self._ask(cause, script, form.task)
        if "text" not in found:
            return (Rung(form=form.form, reason=f"there is no such text: {found.get('why', 'its process ended')}"),)
        text = filled(
            "repro_text.txt",
            title=f"{self._repros.title(cause)[:-1]}, as {form.form}.",
            reason=one_line(cause.result.reason), form=form.form, needs=form.needs, imports=form.imports, run=form.run,
            limit=repr(_relative_limit(script)), text=_literal(str(found["text"])),
            inputs=str(found["inputs"]), expected=str(found["expected"]),
        )  # fmt: skip
        return (self._tried(cause, script, form.form, text),)

    def _tried(self, cause: Cause, script: Repro, form: str, text: str) -> Rung:
        """A form whose script was run: written where it fails as it was found."""
        # A script that is called onnx.py would import itself in place of the package.
        file = f"{script.file.removesuffix('.py')}/as_{form.partition(' ')[0].lower()}.py"
        result = self._run(text, file, entry=_IN_A_COPY if form == EXPORTED else _AS_ITS_READER)
        if result.outcome is Outcome.PASSED:
            return Rung(form=form, outcome=result.outcome.value, reason="it passes in this form")
        if not _fails_so(result, cause.result):
            return Rung(form=form, reason=f"it ends in another way: {result.outcome.value}, {one_line(result.reason)}")
        write_atomically(self._repros.folder.path / file, text.encode())
        return Rung(form=form, file=file, outcome=cause.result.outcome.value, reason=_remark(result.reason))

    # --- The twin ---

    def _twin(self, cause: Cause, script: Repro) -> Twin:
        """The smallest change with which the script passes."""
        if cause.result.outcome in DEADLY:
            return self._twin_in_processes(cause, script)
        found = self._ask(cause, script, f"{_TWINS}:find_twin")
        if "change" not in found:
            return Twin(why="the process that tried changes did not answer")
        fails_with = tuple(found["fails_with"])
        if not found["change"] or not found.get("source"):
            return Twin(fails_with=fails_with)
        return self._passing(cause, script, found) or Twin(fails_with=(*fails_with, found["change"]))

    def _twin_in_processes(self, cause: Cause, script: Repro) -> Twin:
        fails_with: list[str] = []
        for number in range(2 if cause.result.outcome is Outcome.TIMED_OUT else _MOST_DEADLY_TRIES):
            found = self._ask(cause, script, f"{_TWINS}:changed_source", change=number)
            if not found.get("change"):
                break
            twin = self._passing(cause, script, found) if found.get("source") else None
            if twin is not None:
                return msgspec.structs.replace(twin, fails_with=tuple(fails_with))
            fails_with += [found["change"]] if found.get("source") else []
        return Twin(fails_with=tuple(fails_with))

    def _passing(self, cause: Cause, script: Repro, found: Mapping[str, Any]) -> Twin | None:
        file = f"{script.file.removesuffix('.py')}/passes.py"
        title = f"{self._repros.title(cause)[:-1]}; it passes {found['change']}."
        text = self._repros.text(cause, {**found, "tolerance": script.parts["tolerance"]}, title=title)
        if self._run(text, file).outcome is not Outcome.PASSED:
            return None
        write_atomically(self._repros.folder.path / file, text.encode())
        return Twin(change=found["change"], file=file, fails_with=tuple(found.get("fails_with", ())))

    # --- Asking and running ---

    def _ask(self, cause: Cause, script: Repro, entry: str, **more: object) -> dict[str, Any]:
        found = {"outcome": cause.result.outcome.value, "reason": cause.result.reason}
        task = self._repros.graph_task(
            cause, entry, chosen_steps=list(cause.places), found=found, script_sizes=script.parts["sizes"],
            script_values=script.parts["values"], ops=list(self._repros.ops_of(cause)), **more,
        )  # fmt: skip
        ended = self._runner.fetch(task)
        return ended.answer if ended.ending is Ending.ANSWERED and isinstance(ended.answer, dict) else {}

    def _run(self, text: str, name: str, entry: str = _IN_A_COPY) -> UnitResult:
        trial = self._repros.folder.work / "scripts" / Path(name).parent.name / Path(name).name
        write_atomically(trial, text.encode())
        task = Task(
            id=f"form:{name}",
            entry=entry,
            payload={"script": str(trial), "deadline_s": self._repros.deadline_s},
            limits=Limits(deadline_s=self._repros.deadline_s, memory_bytes=_SCRIPT_MEMORY_BYTES, retries_timeout=False),
        )
        return self._runner.answer(Request(task=task))


def _relative_limit(script: Repro) -> float:
    """The relative error that noise explains, where the script is judged by it."""
    limits = script_limits(script.parts["tolerance"])
    return float(limits["relative_l2"] or 0.0) if limits["pcc"] is None else _USUAL_ERROR


def _fails_so(script: UnitResult, found: UnitResult) -> bool:
    """As it was found; a text is refused in the words of another layer."""
    return reproduces(script, found) or (script.outcome is Outcome.RAISED and found.outcome in _REFUSALS)


def _remark(printed: str) -> str:
    """What a script says beside its verdict: whether another evaluator agrees."""
    lines = (line for line in printed.split(" <- ") if line.startswith("the reference evaluator"))
    return next(lines, "")


def _literal(text: str) -> str:
    """A long text as a raw string, or escaped where it cannot be one."""
    plain = "'''" not in text and not text.endswith(("\\", "'"))
    return f"r'''\n{text.strip()}\n'''.strip()" if plain else repr(text)
