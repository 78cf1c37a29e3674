from tests.cost.calls import priced, spec


def test_a_sum_over_devices_adds_once_per_element() -> None:
    found = priced("_c10d_functional.all_reduce.default", spec(4, 8), input=spec(4, 8), reduce_op="sum", group_name="0")
    assert (found.flops, found.reads, found.writes) == (32, (128,), (128,))


def test_gathering_writes_more_than_it_reads_and_computes_nothing() -> None:
    found = priced("_c10d_functional.all_gather_into_tensor.default", spec(8, 8), input=spec(4, 8), group_size=2)
    assert (found.flops, found.reads, found.writes) == (0, (128,), (256,))


def test_waiting_is_free() -> None:
    found = priced("_c10d_functional.wait_tensor.default", spec(4, 8), tensor=spec(4, 8))
    assert (found.flops, found.reads, found.writes) == (0, (0,), (0,))
