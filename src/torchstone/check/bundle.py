"""A finding as a zip to send: script, IR, environment and the text of a bug report; and such zips run again later."""

import contextlib
import os
import platform
import re
import signal
import subprocess
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath

import msgspec

from torchstone.backends.registry import describe
from torchstone.check.bug_report import SCRIPT, Reported, ScriptRun, report_text
from torchstone.check.summary import find_finding, read_result
from torchstone.errors import InputError, TorchstoneError, UnreadableFileError
from torchstone.record.base import Record
from torchstone.record.check import CheckResult, Finding
from torchstone.record.files import parse_json, problem_of_archive, require_regular_file, shortened
from torchstone.record.task import Ending, Limits
from torchstone.temporary import replacing, temporary_folder
from torchstone.workers.limits import wait_within

ABOUT = "bundle.json"
REPORT = "report.md"
_SCHEMA = "torchstone/check_bundle/1"
_NUMBER = re.compile(r"\d+(\.\d+)?(e[+-]?\d+)?")
_MLIR = re.compile(r"\bfunc\.func\b|\bstablehlo\.|\bttir\.|\bttnn\.")
_MOST_LINES = 20
_MOST_BYTES = 200_000_000  # of a bundle when it is read: a zip may be a bomb
_COULD_NOT_TRY = 2  # exit code of a script
_UNREADABLE = (  # what the reader of archives raises for damage of every kind
    OSError, zipfile.BadZipFile, zlib.error, KeyError, ValueError, NotImplementedError, RuntimeError, EOFError,
    msgspec.ValidationError,
)  # fmt: skip


class Bundle(Reported, frozen=True, kw_only=True, omit_defaults=False):
    """The document bundle.json."""

    schema: str = _SCHEMA


class Watched(Record, frozen=True, kw_only=True, omit_defaults=False):
    """A bundle that was run again."""

    bundle: str
    state: str  # fixed, still fails, changed, could not run
    detail: str = ""


def write_bundle(
    folder: Path,
    name: str,
    target: Path | None,
    *,
    python: str = "",
    deadline_s: float = 600.0,
    say: Callable[[str], None] = lambda _: None,
) -> Path:
    """Write the zip of one finding of the check in a folder.

    With an interpreter, the script is run once more before, and under each of the settings that its backend lists. The
    folder may come from somebody else: without one nothing that it contains is executed, and the interpreter that
    check.json names is never started. `say` receives what is going to be executed. Raises InputError where check.json
    names a file outside the folder.
    """
    result = read_result(folder)
    finding = find_finding(result, name)
    script = _inside(folder, finding.repro) if finding.repro else None
    run = None
    if python and script is not None and script.is_file():
        say(f"executing {script} with {python} ...")
        run = run_script(script, python, deadline_s)
    about = Bundle(
        model=result.model,
        backend=result.backend,
        backend_version=result.backend_version,
        backend_options=result.backend_options,
        python=platform.python_version(),
        platform=platform.platform(),
        finding=finding,
        run=run,
        variants={} if run is None or script is None else _under_variants(result, script, python, deadline_s),
    )
    target = target or folder / "bundles" / f"{finding.id}.zip"
    irs = _irs(result, finding, folder)
    with replacing(target) as file_of_bundle, zipfile.ZipFile(file_of_bundle, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(ABOUT, msgspec.json.format(msgspec.json.encode(about), indent=2))
        report = report_text(about, sorted(irs))
        for member, file in _other_scripts(finding).items():
            report = report.replace(file, member)
        archive.writestr(REPORT, report)
        if script is not None and script.is_file():
            archive.writestr(SCRIPT, script.read_bytes())
            for data in sorted(script.parent.glob(f"{script.stem}.*")):
                if data != script:
                    archive.writestr(data.name, data.read_bytes())
        for member, file in _other_scripts(finding).items():
            path = _inside(folder, file)
            if path.is_file():
                archive.writestr(member, path.read_bytes())
        for file, text in irs.items():
            archive.writestr(file, text)
    return target


def _inside(folder: Path, file: str) -> Path:
    """A file that check.json names; it may not be outside the folder, also not through a link."""
    path = folder / file
    if not path.resolve().is_relative_to(folder.resolve()):
        msg = f"check.json names {file!r}, which is outside {folder}; run the check again to write it anew"
        raise InputError(msg)
    return path


def _other_scripts(finding: Finding) -> dict[str, str]:
    """The other forms of a failure and the script that passes: their names in the zip, and where they are."""
    return {f"repro_{PurePosixPath(file).name}": file for file in finding.files if file != finding.repro}


def _under_variants(result: CheckResult, script: Path, python: str, deadline_s: float) -> dict[str, ScriptRun]:
    """The script under each of the settings that its backend lists."""
    try:
        variants = describe(result.backend, python=python).variants
    except TorchstoneError:  # a backend from a file that is gone: nothing is known of its settings
        return {}
    return {name: run_script(script, python, deadline_s, variables=given) for name, given in variants.items()}


def _irs(result: CheckResult, finding: Finding, folder: Path) -> dict[str, str]:
    """The IR of the modules that a finding was found in; MLIR gets the suffix that its tools want."""
    found = {}
    for module in result.modules:
        if module.id in finding.modules:
            for file in module.irs:
                path = _inside(folder, file)
                if path.is_file():
                    text = path.read_text(encoding="utf-8", errors="replace")
                    suffix = ".mlir" if _MLIR.search(text) else ".txt"
                    found[str(PurePosixPath(file).with_suffix(suffix))] = text
    return found


# --- Scripts in processes of their own ---


def run_script(
    script: Path, python: str, deadline_s: float, *, variables: Mapping[str, str] | None = None
) -> ScriptRun:
    """Run a script in its folder; a deadline, without the time it waits for a CPU, ends it and all that it started."""
    python = str(Path(python).absolute()) if os.sep in python else python  # it is started in another folder
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(  # noqa: S603 - the user asked to run this script with this interpreter
                [python, script.name], cwd=script.parent, stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True, env={**os.environ, **(variables or {})},
            )  # fmt: skip
        except OSError as error:
            msg = f"{python} cannot be run: {error.strerror or error}; give the path of a Python interpreter"
            raise InputError(msg) from error
        try:
            stopped = wait_within(process, Limits(deadline_s=deadline_s))
        finally:
            _end_group(process)
        code = process.returncode if stopped is None else None
        output.seek(0)
        lines = output.read().decode("utf-8", "replace").strip().splitlines()[-_MOST_LINES:]
    states = {0: "passes", None: "hangs", _COULD_NOT_TRY: "could not run"}
    if stopped is Ending.TOO_BUSY:
        busy = "the machine was too busy to run it"
        return ScriptRun(state="could not run", last_lines="\n".join([*lines, busy]))
    return ScriptRun(state=states.get(code, "fails"), exit_code=code, last_lines="\n".join(lines))


def _end_group(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


# --- Bundles again, on another version ---


def watch(bundles: Sequence[Path], python: str, *, deadline_s: float, say: Callable[[str], None]) -> list[Watched]:
    """Run the scripts of bundles with an interpreter: fixed, still fails, changed, or could not run."""
    found = []
    for bundle in bundles:
        say(f"running {bundle.name}")
        with temporary_folder("bundle") as temporary:
            about = unpack(bundle, temporary)
            script = temporary / SCRIPT
            if not script.is_file():
                found.append(Watched(bundle=str(bundle), state="could not run", detail="it has no script"))
                continue
            found.append(_compared(bundle, about.run, run_script(script, python, deadline_s)))
    return found


def _compared(bundle: Path, before: ScriptRun | None, now: ScriptRun) -> Watched:
    last = now.last_lines.splitlines()[-1] if now.last_lines else f"exit code {now.exit_code}"
    if now.state in ("passes", "could not run"):
        state = "fixed" if now.state == "passes" else "could not run"
        return Watched(bundle=str(bundle), state=state, detail="" if state == "fixed" else last)
    # where it was not run before, all that is known is that it failed
    same = before is None or (
        (now.state, now.exit_code) == (before.state, before.exit_code) and _words(now) == _words(before)
    )
    return Watched(bundle=str(bundle), state="still fails" if same else "changed", detail=last)


def _words(run: ScriptRun) -> str:
    """The last line without numbers, which differ from run to run."""
    return _NUMBER.sub("", run.last_lines.splitlines()[-1]) if run.last_lines else ""


def unpack(bundle: Path, folder: Path) -> Bundle:
    """Unpack a bundle; raises UnreadableFileError for what is not one."""
    require_regular_file(bundle)
    try:
        with zipfile.ZipFile(bundle) as archive:
            names = archive.infolist()
            if sum(one.file_size for one in names) > _MOST_BYTES:
                msg = f"{bundle} unpacks to more than {_MOST_BYTES:,} bytes; it is not a bundle of a finding"
                raise UnreadableFileError(msg)
            if problem := problem_of_archive(archive, bundle.stat().st_size):
                msg = f"{bundle} is not a bundle of `torchstone check bundle`: {problem}"
                raise UnreadableFileError(msg)
            document = parse_json(archive.read(ABOUT), origin=f"{ABOUT} in {bundle}")
            for one in names:
                if PurePosixPath(one.filename).name == one.filename:  # only files at the top, never a path
                    (folder / one.filename).write_bytes(archive.read(one))
        schema = document.get("schema") if isinstance(document, dict) else None
        if schema != _SCHEMA:
            msg = f"{bundle} has the schema {str(schema)[:80]!r}, not {_SCHEMA!r}"
            raise UnreadableFileError(msg)
        return msgspec.convert(document, Bundle)
    except _UNREADABLE as error:
        msg = f"{bundle} is not a bundle of `torchstone check bundle`: {shortened(error)}"
        raise UnreadableFileError(msg) from error
