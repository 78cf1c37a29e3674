from torchstone.cost.repeats import LAST, MIDDLE, NOTHING_LEFT_OUT, Change, Numbers, Repeats, Run


def run(start: int, *, blocks: int = 6, own: tuple[tuple[int, int], ...] = ()) -> Run:
    """Blocks of two op calls, each of which makes two tensors in two storages."""
    newest = 101 + start
    numbers = Numbers(newest=newest, step=2)
    return Run(start=start, length=2, blocks=blocks, tensors=numbers, storages=numbers, own=own)


def test_each_block_gives_out_its_own_numbers() -> None:
    assert [list(run(0).tensors.of(block)) for block in (0, 1, 5)] == [[100, 101], [102, 103], [110, 111]]


def test_the_block_in_the_middle_stands_for_those_left_out() -> None:
    repeats = Repeats((run(1),))

    assert repeats.times_of_rows(9) == [1, 1, 1, 4, 4, 1, 1, 1, 1]
    assert sum(repeats.times_of_rows(9)) == 9 + 3 * 2  # as many as the whole trace has


def test_a_later_run_stands_further_on() -> None:
    repeats = Repeats((run(1), run(20)))

    assert repeats.rows_of(1, MIDDLE) == slice(20 - 6 + 2, 20 - 6 + 4)
    assert repeats.rows_of(0, LAST) == slice(5, 7)


def test_memory_of_blocks_left_out_is_named() -> None:
    repeats = Repeats((run(0, own=((15, 5),)),))

    assert repeats.storages_left_out() == {20, 25, 30}  # the first has 10, the middle 15, the last 35
    assert repeats.times_of_storages() == {15: 4, 102: 4, 103: 4}


def test_tensors_of_blocks_left_out_are_passed_over() -> None:
    left = Repeats((run(0),)).tensors_left(120)

    assert [number for part in left for number in range(*part.indices(120))] == [*range(104), *range(110, 120)]


def test_what_each_block_keeps_adds_up() -> None:
    held = [0, 10, 11, 20, 21, 30, 31, 5]  # one call, three blocks, one call

    spread = Repeats((run(1),)).spread(held, [Change(kept=100)])

    assert spread == [0, 10, 11, 20, 21, 120, 121, 220, 221, 320, 321, 330, 331, 305]


def test_what_each_block_frees_is_held_before() -> None:
    held = [0, 10, 11, 20, 21, 30, 31, 5]

    spread = Repeats((run(1),)).spread(held, [Change(freed=100)])

    assert spread == [300, 310, 311, 320, 321, 220, 221, 120, 121, 20, 21, 30, 31, 5]


def test_every_call_of_the_whole_trace_has_its_place() -> None:
    repeats = Repeats((run(1),))

    places = [repeats.moment(index) for index in range(14)]

    assert [place.row for place in places] == [0, 1, 2, *[3, 4] * 4, 5, 6, 7]
    assert [place.before[0] for place in places] == [0, 0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 3, 3, 3]
    assert places[5].held_by(repeats.runs) == [Change(kept=1, freed=2)]


def test_without_runs_nothing_changes() -> None:
    assert NOTHING_LEFT_OUT.spread([1, 2], []) == [1, 2]
    assert NOTHING_LEFT_OUT.times_of_rows(2) == [1, 1]
    assert NOTHING_LEFT_OUT.tensors_left(4) == [slice(0, 4)]
    assert NOTHING_LEFT_OUT.moment(-1).row == -1
