from torchstone.record.memory_findings import LiveBuffer, LiveSet, Origin, PaddedOp


def buffer(logical: int | None) -> LiveBuffer:
    return LiveBuffer(
        origin=Origin.ACTIVATION,
        owner="x",
        value="%1",
        op=0,
        type=0,
        bank_bytes=10,
        padded_bytes=100,
        logical_bytes=logical,
    )


def test_what_no_buffer_accounts_for_is_unexplained() -> None:
    live = LiveSet(memory="DRAM", op=0, measured_bytes=25, buffers=(buffer(40), buffer(None)))

    assert (live.explained_bytes, live.unexplained_bytes) == (20, 5)
    assert (live.padded_bytes, live.logical_bytes) == (200, 140)


def test_overhead_is_what_padding_adds() -> None:
    padded = PaddedOp(op=0, runs=1, type=0, logical_bytes=3, padded_bytes=10, reason="")

    assert padded.overhead_bytes == 7
