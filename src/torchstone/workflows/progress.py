"""Progress of a workflow, for whoever waits: the command line shows it, the Python API stays silent."""

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol


class Progress(Protocol):
    """Receives what a workflow is doing."""

    def step(self, title: str) -> AbstractContextManager[None]:
        """A context that lasts as long as the step that `title` names, such as "loading gpt2"."""

    def note(self, text: str) -> None:
        """One line that the user should see: a file that was written, a hint what to do next."""


class Silent:
    """Progress that nobody watches."""

    def step(self, title: str) -> AbstractContextManager[None]:  # noqa: ARG002 - the protocol's signature
        """Do nothing."""
        return nullcontext()

    def note(self, text: str) -> None:
        """Do nothing."""


SILENT = Silent()
