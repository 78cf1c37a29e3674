"""Any amount of output -> its beginning and its end, in bounded memory, for each of several tasks in a row."""

from collections import deque


class OutputTail:
    """Keeps the first and the last bytes of a stream and counts all of them."""

    def __init__(self, kept_bytes: int) -> None:
        self._head_room = kept_bytes // 2
        self._tail_room = kept_bytes - self._head_room
        self._head = bytearray()
        self._tail = bytearray()
        self.seen_bytes = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        self.seen_bytes += len(data)
        missing = self._head_room - len(self._head)
        self._head += data[:missing]
        self._tail += data[missing:][-self._tail_room :] if self._tail_room else b""
        if len(self._tail) > 2 * self._tail_room:  # now and then, not at every line
            del self._tail[: -self._tail_room]

    def text(self) -> str:
        """What was kept, with a word on what was not."""
        tail = bytes(self._tail[-self._tail_room :]) if self._tail_room else b""
        left_out = self.seen_bytes - len(self._head) - len(tail)
        if not left_out:
            return (bytes(self._head) + tail).decode("utf-8", "replace")
        between = f"\n[... {left_out:,} bytes left out ...]\n"
        return self._head.decode("utf-8", "replace") + between + tail.decode("utf-8", "replace")


class TaskOutputs:
    """One stream of several tasks in a row, a mark after each -> what each of them printed."""

    def __init__(self, mark: bytes, kept_bytes: int) -> None:
        self._mark = mark
        self._kept_bytes = kept_bytes
        self._tails: deque[OutputTail] = deque()  # of the tasks that have not been told, in their order
        self._ended = 0  # how many of these have printed all they had to
        self._nobodys = OutputTail(kept_bytes)  # what is printed while no task runs
        self._held = b""  # the beginning of a mark, perhaps

    @property
    def first(self) -> OutputTail:
        """What the first task has printed so far."""
        return self._tails[0] if self._tails else self._nobodys

    @property
    def first_has_ended(self) -> bool:
        """Whether that is all of it."""
        return self._ended > 0

    def expect(self, kept_bytes: int) -> None:
        """One more task will print."""
        self._tails.append(OutputTail(kept_bytes))

    def drop_first(self) -> None:
        """The first task has been told."""
        self._tails.popleft()
        self._ended = max(0, self._ended - 1)
        self._nobodys = OutputTail(self._kept_bytes)

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        *ended, rest = (self._held + data).split(self._mark)
        for part in ended:
            self._printing().feed(part)
            self._ended = min(self._ended + 1, len(self._tails))
        cut = len(rest) - _overlap(rest, self._mark)
        self._printing().feed(rest[:cut])
        self._held = rest[cut:]

    def finish(self) -> None:
        """Nothing more will come: what looked like a mark is none."""
        self._printing().feed(self._held)
        self._held = b""

    def _printing(self) -> OutputTail:
        return self._tails[self._ended] if self._ended < len(self._tails) else self._nobodys


def _overlap(data: bytes, mark: bytes) -> int:
    """How many of the last bytes are the beginning of a mark."""
    lengths = range(min(len(data), len(mark) - 1), 0, -1)
    return next((length for length in lengths if data.endswith(mark[:length])), 0)
