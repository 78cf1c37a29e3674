from torchstone.mapping.child.facade import _conv_out, _text


def test_the_size_of_a_convolution_is_that_of_torch() -> None:
    plain = {"height": 7, "width": 6, "kernel": [3, 2], "stride": [2, 1], "padding": [1, 0], "dilation": [1, 2]}

    assert _conv_out(plain, transposed=False) == [4, 4]
    assert _conv_out(plain | {"output_padding": [1, 0]}, transposed=True) == [14, 8]


def test_values_stand_in_code_as_python_reads_them() -> None:
    assert _text([1, 2.5, None, "x"]) == "[1, 2.5, None, 'x']"
    assert _text(float("-inf")) == 'float("-inf")'
