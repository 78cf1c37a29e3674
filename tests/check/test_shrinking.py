from torchstone.check.repro import smaller_program, smaller_shape


def test_sizes_among_the_arguments_shrink_too() -> None:
    step = {
        "op": "aten.view.default",
        "kwargs": {"self": {"tensor": "a"}, "size": {"list": [2, 64]}, "dim": {"list": [64]}, "end": 64, "step": 64},
    }

    (smaller,) = smaller_program({"steps": [step]}, {64: 4})["steps"]

    assert smaller["kwargs"] == {
        "self": {"tensor": "a"},
        "size": {"list": [2, 4]},
        "dim": {"list": [64]},
        "end": 4,
        "step": 64,
    }


def test_a_shape_shrinks_by_its_sizes() -> None:
    assert smaller_shape((2, 64, 3), {64: 1}) == (2, 1, 3)
