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


SILENT = Silent()
