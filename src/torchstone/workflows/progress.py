"""Progress of a workflow: the command line shows it, the Python API stays silent."""

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol


class Progress(Protocol):
    """Receives the steps and notes of a workflow while it runs; called in the thread of the workflow."""

    def step(self, title: str) -> AbstractContextManager[None]:
        """A context that is open while the step runs that `title` names, such as "loading gpt2"."""

    def note(self, text: str) -> None:
        """One line for the user: a file that was written, a warning, or a hint what to do next."""


class Silent:
    """Progress that is not shown."""

    def step(self, title: str) -> AbstractContextManager[None]:  # noqa: ARG002 - the protocol's signature
        """Do nothing."""
        return nullcontext()

    def note(self, text: str) -> None:
        """Do nothing."""


class NotesOnce:
    """Progress of several workflows as one: a line that was shown is not shown again."""

    def __init__(self, shown: Progress) -> None:
        self._shown = shown
        self._said: set[str] = set()

    def step(self, title: str) -> AbstractContextManager[None]:
        """As it is."""
        return self._shown.step(title)

    def note(self, text: str) -> None:
        """One line, once."""
        if text not in self._said:
            self._said.add(text)
            self._shown.note(text)


SILENT = Silent()
