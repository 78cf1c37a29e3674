from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchstone.configs.aten_text import ArgumentTextError, call_text, parse_call
from torchstone.record.tensor import TensorSpec, contiguous_strides
from torchstone.record.value import Argument, Atom, Items, Value

dtypes = st.sampled_from(["bfloat16", "float32", "complex64", "bool", "uint8", "float8_e4m3fn"])
shapes = st.lists(st.integers(0, 99), max_size=4).map(tuple)
tensors = st.builds(
    lambda shape, dtype, plain: TensorSpec(
        shape=shape, dtype=dtype, stride=contiguous_strides(shape) if plain else (7,) * len(shape), device=""
    ),
    shapes,
    dtypes,
    st.booleans(),
)
scalars: st.SearchStrategy[Value] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.builds(Atom, kind=st.just("float"), text=st.sampled_from(["inf", "-inf", "nan"])),
    st.builds(Atom, kind=st.just("dtype"), text=dtypes),
    st.builds(Atom, kind=st.just("layout"), text=st.sampled_from(["strided", "sparse_coo"])),
    st.builds(Atom, kind=st.just("device"), text=st.sampled_from(["cpu", "cuda:0"])),
    tensors,
)
values = st.recursive(
    scalars,
    lambda inner: st.builds(
        Items, kind=st.sampled_from(["list", "tuple"]), items=st.lists(inner, max_size=3).map(tuple)
    ),
    max_leaves=6,
)


@given(st.lists(values, max_size=3), st.dictionaries(st.text(min_size=1, max_size=5), values, max_size=2))
def test_what_is_written_is_read_again(positional: list[Value], named: dict[str, Value]) -> None:
    arguments = (
        *(Argument(name=f"arg{place}", value=value, position=place) for place, value in enumerate(positional)),
        *(Argument(name=name, value=value) for name, value in named.items()),
    )

    assert repr(parse_call(call_text(arguments))) == repr(arguments)


@pytest.mark.parametrize(
    "text",
    ["T([2, 3], f32, stride=(1, 2))", "T([2, 3], f32, [1, 2])", "T([2, 3], f32, (1, 2), None)"],
)
def test_all_spellings_of_a_stride_mean_the_same(text: str) -> None:
    (argument,) = parse_call(f"(({text},), {{}})")

    assert argument.value == TensorSpec(shape=(2, 3), dtype="float32", stride=(1, 2), device="")


def test_a_device_is_the_fourth_part() -> None:
    (argument,) = parse_call("((T([32, 128], f16, None, 'cpu'),), {})")

    assert argument.value == TensorSpec(shape=(32, 128), dtype="float16", stride=(128, 1), device="cpu")


def test_a_tensor_without_stride_is_contiguous() -> None:
    (argument,) = parse_call("((T([4, 2, 3], i64),), {})")

    assert argument.value == TensorSpec(shape=(4, 2, 3), dtype="int64", stride=(6, 3, 1), device="")


def test_a_sparse_tensor_has_no_stride() -> None:
    (argument,) = parse_call("((ST([5, 5], f32),), {})")

    assert argument.value == TensorSpec(shape=(5, 5), dtype="float32", layout="sparse_coo", device="")
    assert call_text((argument,)) == "((ST([5, 5], f32),), {})"


def test_numbers_below_zero_and_without_end() -> None:
    found = [argument.value for argument in parse_call("((-1, -0.5, -inf, nan), {})")]

    assert found == [-1, -0.5, Atom(kind="float", text="-inf"), Atom(kind="float", text="nan")]


@pytest.mark.parametrize(
    "text",
    [
        "", "(", "5", "((), {}, 1)", "((), [])", "(1, {})", "((), {1: 2})", "((open('x'),), {})", "((f99,), {})",
        "((T(5, f32),), {})", "((T([1]),), {})", "((T([1], f32, colour=1),), {})", "((-'x',), {})", "((1 + 1,), {})",
        "((torch.os.system,), {})", "((__import__('os'),), {})", "((" * 500, "((T([1.5], f32),), {})",
    ],
)  # fmt: skip
def test_what_is_no_call_is_refused_and_never_run(text: str) -> None:
    with pytest.raises(ArgumentTextError):
        parse_call(text)


@given(st.text(max_size=40))
def test_any_text_gives_arguments_or_the_one_error(text: str) -> None:
    with suppress(ArgumentTextError):
        assert call_text(parse_call(text))


@pytest.mark.parametrize(("shape", "stride"), [((), ()), ((3,), (1,)), ((2, 3, 4), (12, 4, 1)), ((2, 0, 4), (4, 4, 1))])
def test_contiguous_strides(shape: tuple[int, ...], stride: tuple[int, ...]) -> None:
    assert contiguous_strides(shape) == stride
