from tests.cost.calls import priced, several, spec


def test_a_list_in_place_is_read_and_written() -> None:
    found = priced("aten._foreach_mul_.Scalar", None, self=several(spec(4), spec(6)), scalar=2.0)
    assert (found.flops, found.reads, found.writes) == (10, (16, 24), (16, 24))


def test_a_new_list_is_written() -> None:
    found = priced("aten._foreach_sqrt.default", several(spec(4), spec(6)), self=several(spec(4), spec(6)))
    assert (found.flops, found.writes) == (10, (16, 24))


def test_zeroing_reads_nothing() -> None:
    found = priced("aten._foreach_zero_.default", None, self=several(spec(4)))
    assert (found.flops, found.reads, found.writes) == (0, (0,), (16,))


def test_a_fused_step_updates_parameters_and_both_moments() -> None:
    lists = {name: several(spec(4)) for name in ("self", "grads", "exp_avgs", "exp_avg_sqs")}
    found = priced("aten._fused_adamw_.default", None, **lists, amsgrad=False)
    assert (found.flops, found.reads, found.writes) == (14 * 4, (16,) * 4, (16,) * 3)
