from typing import Any

import pytest

from torchstone.mapping.child.footprint import highest


def node(kind: str, **params: Any) -> dict[str, Any]:
    return {"node_type": kind, "params": params}


def tensor(size: int, memory: str = "L1", kind: str = "buffer_allocate") -> dict[str, Any]:
    return node(kind, type=memory, max_size_per_bank=size)


def buffer(
    size: int, cores: str = "{[0-0 - 7-7]}", kind: str = "circular", chip: int = 0, **more: str
) -> dict[str, Any]:
    return node(f"{kind}_buffer_allocate", size=size, core_range_set=cores, device_id=chip, **more)


NEXT = node("circular_buffer_deallocate_all")


@pytest.mark.parametrize(
    ("nodes", "found"),
    [
        ([], (0, 0, 0)),
        ([tensor(64), NEXT, buffer(10), buffer(20, kind="dataflow")], (94, 30, 0)),
        # a temporary of the first program is gone before the second one needs its buffers
        ([tensor(100), NEXT, buffer(10), tensor(100, kind="buffer_deallocate"), NEXT, buffer(50)], (110, 10, 0)),
        ([tensor(8, "DRAM"), tensor(8, "DRAM"), tensor(8, "DRAM", "buffer_deallocate")], (0, 0, 16)),
        # buffers of different cores do not add up
        ([buffer(10, "{[0-0 - 3-7]}"), buffer(30, "{[4-0 - 7-7]}")], (30, 30, 0)),
        ([buffer(10, "{[0-0 - 3-7]}"), buffer(30, "{[3-0 - 7-7], [0-0 - 0-0]}")], (40, 40, 0)),
        # one of a tensor's own memory needs none, and a mesh lists each chip
        ([buffer(10, globally_allocated="1"), buffer(7), buffer(5, kind="dataflow", borrows_memory="1")], (7, 7, 0)),
        ([buffer(10, chip=1), buffer(10, chip=0), buffer(5, chip=1), buffer(5, chip=0)], (15, 15, 0)),
        # cores that cannot be read are taken as the same
        ([buffer(10, "all"), buffer(30, "others")], (40, 40, 0)),
    ],
)
def test_the_highest_moment_of_a_call(nodes: list[dict[str, Any]], found: tuple[int, int, int]) -> None:
    assert highest(nodes) == found
