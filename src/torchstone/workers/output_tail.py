"""Any amount of output -> its beginning and its end, in bounded memory."""


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
