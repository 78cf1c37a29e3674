"""What the results of a check depend on beside its settings, and what of it has changed since an earlier run."""

import json
import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

import torchstone
from torchstone.backends.source_digest import own_digest
from torchstone.check.record_values import answer_of
from torchstone.check.settings import Folder, Settings
from torchstone.record.base import Record
from torchstone.record.codec import load_kept, write_atomically
from torchstone.record.task import BackendFacts, Limits, Task
from torchstone.workers.executor import Executor

_PATIENCE = Limits(deadline_s=3600.0)
_FINGERPRINT = "torchstone.check.child.fingerprint"
_ROOT_ROW = 0  # of the module calls: the call of the whole model
# Variables that describe a terminal, a login or a shell. Any other one may decide what a backend does.
_IGNORED = frozenset({
    "_", "BASH_ENV", "COLORTERM", "COLUMNS", "DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "EDITOR", "ENV", "FORCE_COLOR",
    "HISTCONTROL", "HISTFILE", "HISTSIZE", "HOSTNAME", "LESS", "LESSCLOSE", "LESSOPEN", "LINES", "LOGNAME",
    "LS_COLORS", "MAIL", "MANPATH", "MOTD_SHOWN", "NO_COLOR", "OLDPWD", "PAGER", "PROMPT_COMMAND", "PS1", "PS2", "PWD",
    "PYTEST_CURRENT_TEST", "PYTEST_VERSION", "PYTEST_XDIST_TESTRUNUID", "PYTEST_XDIST_WORKER",
    "PYTEST_XDIST_WORKER_COUNT", "SHELL", "SHLVL", "STY", "TERM", "TERM_PROGRAM", "TERM_PROGRAM_VERSION", "TMPDIR",
    "TMUX", "TMUX_PANE", "TTY", "USER", "VIRTUAL_ENV_PROMPT", "VISUAL", "WINDOW", "WINDOWID", "XAUTHORITY",
    "XDG_CACHE_HOME",
})  # fmt: skip
_IGNORED_PREFIXES = ("BASH_FUNC_", "GIT_", "SSH_", "SUDO_", "VSCODE_", "XDG_SESSION", "XDG_SEAT", "XDG_VTNR", "LC_")


class Dependencies(Record, frozen=True, kw_only=True):
    """Digests; two checks with the same settings and the same dependencies have the same results."""

    backend: str  # of its source and of the packages that it imports
    backend_version: str
    torchstone: str
    torch: str
    environment: dict[str, str]  # variable -> digest of its value
    files: dict[str, str]  # the model's and the inputs' file, and the local files that they import
    weights: dict[str, str]
    inputs: str

    def changes_since(self, before: "Dependencies") -> str:
        """What changed, in words; "" when nothing did."""
        for name, words in _WORDS.items():
            if getattr(self, name) != getattr(before, name):
                return words
        for name, words in _WORDS_OF_MANY.items():
            changed = _changed(getattr(before, name), getattr(self, name))
            if changed:
                more = f" and {len(changed) - 1} more" if changed[1:] else ""
                return f"{words} {Path(changed[0]).name if name == 'files' else changed[0]}{more}"
        return ""

    def key(self, weights: set[str] | None = None) -> str:
        """One digest for a request; `weights` are those that it reads, None: all of them."""
        used = {name: digest for name, digest in self.weights.items() if weights is None or name in weights}
        document = msgspec.to_builtins(self) | {"weights": used, "files": sorted(self.files.values())}
        return sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


_WORDS = {
    "backend": "the source of the backend",
    "backend_version": "the version of the backend",
    "torchstone": "torchstone itself",
    "torch": "the version of torch",
}
_WORDS_OF_MANY = {"environment": "the environment variable", "files": "the file", "weights": "the weight"}


def _changed(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    return sorted(name for name in {*before, *now} if before.get(name) != now.get(name))


def dependencies_of(settings: Settings, digests: Mapping[str, Any]) -> Dependencies:
    """The dependencies of a check whose model has these digests (`child.fingerprint`)."""
    variables = {
        name: sha256(value.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        for name, value in sorted(os.environ.items())
        if name not in _IGNORED and not name.startswith(_IGNORED_PREFIXES)
    }
    return Dependencies(
        backend=settings.digest,
        backend_version=settings.version,
        torchstone=f"{torchstone.__version__} {own_digest()}",
        environment=variables,
        **digests,
    )


def ask_dependencies(pool: Executor, settings: Settings, files: list[str]) -> Dependencies:
    """The dependencies of a check whose model the pool holds; `files` are those that the user named."""
    return dependencies_of(settings, _ask(pool, f"{_FINGERPRINT}:fingerprint_task", {"files": files}))


def ask_facts(pool: Executor) -> BackendFacts:
    """What the backend that a pool has opened says of itself."""
    return msgspec.convert(_ask(pool, "torchstone.check.child.model:backend_facts", {}), BackendFacts)


def change_since_interruption(pool: Executor, folder: Folder, now: Dependencies) -> str:
    """What makes the results in a folder stale, in words; "" when they still hold, or when there are none."""
    before = read_dependencies(folder)
    if before is None:
        return "what its results depended on, which was not recorded," if folder.journal.is_file() else ""
    changed = now.changes_since(before) or ("" if now.inputs == before.inputs else "the inputs")
    if changed or not folder.recorded_marker.is_file() or not folder.values_of(_ROOT_ROW).is_file():
        return changed
    same = _ask(pool, f"{_FINGERPRINT}:same_outputs_task", {"values": str(folder.values_of(_ROOT_ROW))})
    return "" if same else "what the model computes"


def read_dependencies(folder: Folder) -> Dependencies | None:
    """What the results in a folder depended on; None where it is not there or cannot be read."""
    return load_kept(folder.dependencies, Dependencies)


def write_dependencies(folder: Folder, found: Dependencies) -> None:
    """Keep them for the run that resumes this one."""
    write_atomically(folder.dependencies, msgspec.json.encode(found))


def _ask(pool: Executor, entry: str, payload: dict[str, object]) -> Any:
    pool.submit(Task(id=entry, entry=entry, payload=payload, limits=_PATIENCE))
    (ended,) = pool.results()
    return answer_of(ended, "reading the weights and inputs of the model")
