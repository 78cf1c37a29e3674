from torchstone.memory.graphs import OpenRun, close_run, freeze_run
from torchstone.record.memory import Role


def test_a_closed_run_keeps_where_it_began_and_ended() -> None:
    run = OpenRun("main", Role.FORWARD, parent=-1, parent_op=-1, first_op=3, first_line=10)
    close_run(run, end_op=7, line=99, complete=True)

    frozen = freeze_run(run, pass_index=1, graph=0)

    assert (frozen.first_op, frozen.end_op, frozen.first_line, frozen.last_line) == (3, 7, 10, 99)
    assert frozen.complete
