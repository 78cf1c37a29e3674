import pytest

from tests.memory.log_generator.tensors import Tensor
from torchstone.memory.mlir_text import OpReader, guess_call, head_of, op_marks, read_marks, result_names

A = Tensor((64, 128), "f32").text()
B = Tensor((1, 100, 4, 2), "bf16", "L1", grid=(8, 8)).text(new_dialect=True)


def test_the_generic_form_is_read() -> None:
    reader = OpReader()

    call = reader.read(
        f'%4 = "ttnn.add"(%arg5, %3#1) <{{dtype = #x<f32>}}> {{a = "b)"}} : ({A}, {B}) -> {A} loc("add.24")'
    )

    assert call is not None
    assert (call.name, call.results, call.operands) == ("ttnn.add", ("%4",), ("%arg5", "%3#1"))
    assert call.location == '"add.24"'
    assert call.details == '<{dtype = #x<f32>}> {a = "b)"}'
    assert [reader.types[row].shape for row in call.operand_types] == [(64, 128), (1, 100, 4, 2)]
    assert call.result_types == call.operand_types[:1]


def test_an_op_without_results_is_read() -> None:
    call = OpReader().read(f'"ttnn.deallocate"(%1) <{{force = false}}> : ({A}) -> () loc("x"("y"))')

    assert call is not None
    assert (call.results, call.result_types, call.location) == ((), (), '"x"("y")')


@pytest.mark.parametrize(
    ("text", "operands"),
    [
        (f"%0:2 = ttcore.load_cached(@f, [%arg0, %arg1]) : ({A}, {A}) -> ({A}, {B}) loc(unknown)", ("%arg0", "%arg1")),
        (f"%0:2 = ttcore.load_cached(@f, []) : () -> ({A}, {B}) loc(unknown)", ()),
        (f"%0:2 = func.call @f(%1, %2) {{ttir.cpu_hoist_call}} : ({A}, {A}) -> ({A}, {B}) loc(unknown)", ("%1", "%2")),
    ],
)
def test_calls_of_programs_name_the_program_and_all_results(text: str, operands: tuple[str, ...]) -> None:
    call = OpReader().read(text)

    assert call is not None
    assert (call.callee, call.operands, call.results) == ("f", operands, ("%0#0", "%0#1"))
    assert len(call.result_types) == 2


def test_named_results_are_one_value_each() -> None:
    assert result_names("%query_0, %key_1, %value_2") == ("%query_0", "%key_1", "%value_2")


def test_a_tensor_in_the_properties_is_not_an_operand() -> None:
    reader = OpReader()

    call = reader.read(
        f'%1 = "ttnn.constant"(%0) <{{value = dense<1> : tensor<64xsi32>}}> : (!ttnn.device) -> {A} loc(unknown)'
    )

    assert call is not None
    assert [reader.types[row].text for row in (*call.operand_types, *call.result_types)] == [
        "!ttnn.device",
        "64x128xf32",
    ]


@pytest.mark.parametrize("end", [" loc(", ' loc("add.24"', "", " : (tensor<64x", ' : (tensor<64x) -> () loc("a")'])
def test_an_op_that_breaks_off_is_not_guessed_at(end: str) -> None:
    assert OpReader().read(f'%4 = "ttnn.add"(%arg5){end}') is None


def test_what_is_left_of_a_damaged_op_still_has_its_name() -> None:
    assert guess_call('%4 = "ttnn.add"(%arg5, %').name == "ttnn.add"
    assert guess_call("%4 = ").name == ""


def test_a_dump_and_the_run_time_agree_on_the_head() -> None:
    call = OpReader().read(f"%3 = func.call @f(%1, %2) : ({A}, {A}) -> {A} loc(unknown)")

    assert call is not None
    line = "%3 = call @f(%1, %2) {x} : (tensor<64x128xf32, #a>, tensor<64x128xf32, #a>) -> tensor<64x128xf32> loc(#loc)"
    assert read_marks(line) == op_marks(head_of(call), ["64x128x"] * 3)


def test_ops_of_other_shapes_have_the_same_head_and_another_mark() -> None:
    short, long = (read_marks(f'%0 = "ttnn.relu"(%arg0) : (tensor<{size}x32xf32>) -> tensor<4xf32>') for size in (1, 2))

    assert short is not None
    assert long is not None
    assert short[0] == long[0]
    assert short[1] != long[1]


@pytest.mark.parametrize("line", ["}", "func.func(x)", "return(%1)", ""])
def test_lines_that_run_nothing_have_no_head(line: str) -> None:
    assert read_marks(line) is None
