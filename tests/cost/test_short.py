from tests.cost.stacks import Layer, stack_of
from torchstone.cost.short import LAST, MIDDLE, Change, Run, Short, Stretch
from torchstone.cost.shorten import shorten


def short_of(*runs: Run) -> Short:
    some = shorten(stack_of(Layer, 3))
    return Short(trace=some.trace, ends=some.ends, runs=runs)


def run(start: int, *, left_out: int = 3, own: tuple[tuple[int, int], ...] = ()) -> Run:
    """Blocks of two op calls, each of which makes two tensors in two storages."""
    rows, numbers = Stretch(start=start, step=2), Stretch(start=100 + start, step=2)
    return Run(ops=rows, calls=rows, tensors=numbers, storages=numbers, left_out=left_out, module_step=1, own=own)


def test_each_block_has_its_own_rows() -> None:
    assert [list(run(1).ops.of(block)) for block in (0, MIDDLE, LAST)] == [[1, 2], [3, 4], [5, 6]]


def test_the_block_in_the_middle_stands_for_those_left_out() -> None:
    short = short_of(run(1))

    assert short.times_of_rows()[:8] == [1, 1, 1, 4, 4, 1, 1, 1]


def test_memory_of_blocks_left_out_is_named() -> None:
    short = short_of(run(0, own=((15, 5), (102, 0))))

    assert short.storages_left_out() == {20, 25, 30}  # the first has 10, the middle 15, the last 35
    assert short.times_of_storages() == {15: 4, 102: 4, 103: 4}


def test_what_each_block_keeps_adds_up() -> None:
    held = [0, 10, 11, 20, 21, 30, 31, 5]  # one call, three blocks, one call

    spread = short_of(run(1)).spread(held, [Change(kept=100)])

    assert spread == [0, 10, 11, 20, 21, 120, 121, 220, 221, 320, 321, 330, 331, 305]


def test_what_each_block_frees_is_held_before() -> None:
    held = [0, 10, 11, 20, 21, 30, 31, 5]

    spread = short_of(run(1)).spread(held, [Change(freed=100)])

    assert spread == [300, 310, 311, 320, 321, 220, 221, 120, 121, 20, 21, 30, 31, 5]


def test_every_call_of_the_whole_trace_has_its_place() -> None:
    short = short_of(run(1), run(7))

    places = [short.moment(index) for index in range(13 + 13)]

    assert [place.row for place in places[:14]] == [0, 1, 2, *[3, 4] * 4, 5, 6, 7]
    assert [place.before[0] for place in places[:14]] == [0, 0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 3, 3, 3]
    assert [place.row for place in places[13:]] == [7, 8, *[9, 10] * 4, 11, 12, 13]
    assert {place.before[1] for place in places[:16]} == {0}


def test_without_runs_nothing_changes() -> None:
    short = short_of()

    assert short.spread([1, 2], []) == [1, 2]
    assert set(short.times_of_rows()) == {1}
    assert short.moment(-1).row == -1
