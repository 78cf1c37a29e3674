from torchstone.report.section import Chart, Series, Shape


def test_memory_is_drawn_in_steps_unless_told_otherwise() -> None:
    chart = Chart(name="c", title="C", table="t", series=(Series(column="used", title="Used"),))

    assert chart.shape is Shape.STEPS
