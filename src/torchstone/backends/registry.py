"""Which backends there are and whether they can run: asked in the environment they live in, never in this process."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from torchstone.errors import InputError, TorchstoneError
from torchstone.record.task import BackendFacts, BackendListing

_SCRIPT = Path(__file__).with_name("lookup_child.py")
_DEADLINE_S = 600.0  # of wall-clock time: generous, as a busy machine must not look like a missing backend
_LAST_WORDS = 300


def describe_all(*, python: str | None = None) -> BackendListing:
    """All backends of an environment: the built-in ones and those of its packages."""
    return _ask({"specs": None}, python or sys.executable)


def describe(spec: str, *, options: Mapping[str, object] | None = None, python: str | None = None) -> BackendFacts:
    """One backend: a name, `file.py::Class` or `package.module:Class`."""
    return describe_some([spec], options=options, python=python).backends[0]


def describe_some(
    specs: Sequence[str], *, options: Mapping[str, object] | None = None, python: str | None = None
) -> BackendListing:
    """These backends of an environment, opened with these options; one that cannot be opened is wrong input."""
    listing = _ask({"specs": list(specs), "options": dict(options or {})}, python or sys.executable)
    for one in listing.backends:
        if not one.opened:
            raise InputError(one.reason)
    return listing


def read_options(texts: Sequence[str]) -> dict[str, object]:
    """Options of a backend from the command line, `name=value` each; a value that is JSON is read as that."""
    options: dict[str, object] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            msg = f"{text!r} is not a backend option; write name=value"
            raise InputError(msg)
        try:
            options[name] = json.loads(value)
        except (ValueError, RecursionError):  # of too many digits or brackets, too
            options[name] = value
    return options


def _ask(request: Mapping[str, object], python: str) -> BackendListing:
    reading, writing = os.pipe()
    command = [python, str(_SCRIPT), str(writing), json.dumps(request)]
    try:
        child = subprocess.Popen(  # noqa: S603 - the interpreter is the user's choice
            command, pass_fds=(writing,), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
    except OSError as error:
        os.close(reading)
        msg = f"{python} cannot be run: {error.strerror or error}; give the path of a Python interpreter"
        raise InputError(msg) from error
    finally:
        os.close(writing)
    with os.fdopen(reading, "rb") as pipe, child:
        try:
            said, _ = child.communicate(timeout=_DEADLINE_S)
        except subprocess.TimeoutExpired as error:
            msg = f"{python} did not say within {_DEADLINE_S:.0f} s which backends it has"
            raise InputError(msg) from error
        finally:
            child.kill()  # which does nothing once it has ended
        answer = pipe.read()
    if not answer:
        words = said.decode("utf-8", "replace").strip()[-_LAST_WORDS:]
        msg = f"{python} could not say which backends it has (exit code {child.returncode}): {words or 'no output'}"
        raise InputError(msg)
    return _listing(answer, python)


def _listing(answer: bytes, python: str) -> BackendListing:
    document = json.loads(answer)
    if "error" in document:
        msg = f"{python} cannot be used: {document['error']}"
        raise InputError(msg)
    try:
        return msgspec.convert(document, BackendListing)
    except msgspec.ValidationError as error:
        msg = f"the backends of {python} described themselves in a way that cannot be read: {error}"
        raise TorchstoneError(msg) from error
