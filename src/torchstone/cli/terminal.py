"""What is written to the terminal: text of data as text, and no control characters but those of torchstone itself.

Names, log lines and error texts come from files that others wrote. An escape sequence in them could retitle the
terminal, move the cursor over lines that were printed before, or worse. Everything that a command prints goes through
one of these streams, so that no command has to think of it.
"""

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

import click

from torchstone.report.text import OWN_CODE

MAX_ERROR_CHARACTERS = 2_000
_SHOWN_WARNINGS = 5

REDRAWN = f"\r\x1b[{OWN_CODE};2K"  # before a line of progress, which takes the place of the one before
# What data contain is never one of torchstone's own codes: those have a number in them that no file can know
_CONTROL = re.compile(
    rf"(\r?\x1b\[){OWN_CODE};(\d+[mK])"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_CONTROL_BYTES = re.compile(
    rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xd8\x9c|\xe2\x80[\x8e\x8f\xaa-\xae]|\xe2\x81[\xa6-\xa9]"
)
_COLOUR_IN_DATA = re.compile(r"\x1b\[[0-9;]*m")


def visible(text: str) -> str:
    """Text with each control character, and each half of a character, written out as JSON does: JSON stays JSON."""
    return _CONTROL.sub(_written_out, text)


def _written_out(found: re.Match[str]) -> str:
    return f"{found[1]}{found[2]}" if found[1] else f"\\u{ord(found[0]):04x}"


def one_line(text: str) -> str:
    """An error as one line of limited length, without any control character or colour."""
    line = limited(" ".join(_COLOUR_IN_DATA.sub("", text).split("\n")).strip())
    return visible(line.replace("\x1b", "\\u001b"))


def limited(text: str) -> str:
    """The beginning of a text that is longer than an error may be: a note quotes names, too."""
    return text if len(text) <= MAX_ERROR_CHARACTERS else f"{text[:MAX_ERROR_CHARACTERS]}…"


def warn(problems: Sequence[str]) -> None:
    """Print problems that a result is given in spite of, in quiet sessions too: the first ones, and how many more."""
    for problem in problems[:_SHOWN_WARNINGS]:
        click.echo(f"torchstone: warning: {one_line(problem)}", err=True)
    if len(problems) > _SHOWN_WARNINGS:
        click.echo(f"torchstone: warning: and {len(problems) - _SHOWN_WARNINGS:,} more of this kind", err=True)


class _PlainBuffer:
    """The bytes of a stream; JSON has no control characters in it but those that change the direction of text."""

    def __init__(self, stream: BinaryIO) -> None:
        self.as_it_is = stream  # for the output of the user's own programs

    def write(self, content: bytes, /) -> int:
        """Write UTF-8."""
        if _CONTROL_BYTES.search(content):
            self.as_it_is.write(visible(content.decode("utf-8", "surrogateescape")).encode())
        else:
            self.as_it_is.write(content)
        return len(content)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.as_it_is, name)


class PlainStream:
    """A text stream in front of another one, which makes control characters visible; all else is that of the other."""

    def __init__(self, stream: TextIO, *, may_fail: bool = False) -> None:
        self._stream = stream
        self._ignored: tuple[type[Exception], ...] = (OSError, ValueError) if may_fail else ()  # ValueError: closed
        self.errors = getattr(stream, "errors", None) or "strict"  # click unwraps streams that do not say so

    def write(self, text: str, /) -> int:
        """Write text; characters that the encoding does not have are written as escape sequences."""
        shown = visible(text)
        with suppress(*self._ignored):
            try:
                self._stream.write(shown)
            except UnicodeEncodeError:
                encoding = self._stream.encoding
                self._stream.write(shown.encode(encoding, "backslashreplace").decode(encoding))
        return len(text)

    @property
    def buffer(self) -> "_PlainBuffer":
        """Where documents are written as bytes."""
        return _PlainBuffer(self._stream.buffer)

    def flush(self) -> None:
        """Send what was written."""
        with suppress(*self._ignored):
            self._stream.flush()

    def close(self) -> None:
        """Send what was written; the stream stays open, since the user's code cannot know who else needs it."""
        self.flush()

    @property
    def behind(self) -> TextIO:
        """Where it all goes."""
        return self._stream

    def reopen_closed(self, descriptor: int) -> None:
        """Go on where the user's code closed the stream behind this one."""
        if getattr(self._stream, "closed", False):
            with suppress(OSError):  # the descriptor was closed, too
                self._stream = os.fdopen(descriptor, "w", encoding=self._stream.encoding, closefd=False)

    def writelines(self, lines: Iterable[str], /) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def plain_output() -> Iterator[Callable[[], None]]:
    """While open, stdout and stderr make control characters visible; gives what opens them again if they were closed.

    A stream that the process was started without leads nowhere. What cannot be written to stderr is lost: a note must
    not end a command, and there is no other place to report it.
    """
    before = sys.stdout, sys.stderr
    with ExitStack() as opened:
        out, err = (one or opened.enter_context(Path(os.devnull).open("w", encoding="utf-8")) for one in before)
        streams = PlainStream(out), PlainStream(err, may_fail=True)
        sys.stdout, sys.stderr = cast("TextIO", streams[0]), cast("TextIO", streams[1])

        def reopen_closed() -> None:
            for descriptor, stream in enumerate(streams, start=1):
                stream.reopen_closed(descriptor)

        try:
            yield reopen_closed
        finally:  # the streams as they were, or those that take their place
            sys.stdout, sys.stderr = (one.behind if was else was for one, was in zip(streams, before, strict=True))
