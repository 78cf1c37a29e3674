import pytest

from tests.backends.conformance import HeavyBackend
from torchstone.backends.iree import Iree, refusal
from torchstone.backends.protocol import CompileFailed, Unsupported

pytestmark = pytest.mark.filterwarnings("ignore:`isinstance:FutureWarning")


class TestIree(HeavyBackend):
    backend_class = Iree
    extra = "iree"
    stage = "torch-mlir"
    word = "torch.aten.cat"


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        (
            "a.py:8:0: error: failed to legalize operation 'torch.operator' that was explicitly marked illegal: "
            '%0 = "torch.operator"(%arg0) <{name = "torch.aten.histc"}> : (!torch.vtensor<[3],f32>)',
            Unsupported,
            "no lowering for aten.histc",
        ),
        ("x: error: failed to legalize operation 'torch.aten.sort'", Unsupported, "no lowering for aten.sort"),
        (
            "error: failed to legalize operation 'torch.vtensor.literal': %11 = <{value = dense<true> : tensor<i1>}>",
            Unsupported,
            "no lowering for torch.vtensor.literal",
        ),
        ("x:1:2: error: 'stream.async' op broke\nnote: there", CompileFailed, "'stream.async' op broke"),
        ("LLVM ERROR: no memory", CompileFailed, "LLVM ERROR: no memory"),
        ("", CompileFailed, "the compiler said nothing"),
    ],
)
def test_what_the_compiler_says_is_understood(text: str, kind: type[Exception], said: str) -> None:
    found = refusal(text)

    assert type(found) is kind
    assert str(found) == said


def test_a_refused_op_is_named_with_the_overload_that_the_program_has() -> None:
    text = "x: error: failed to legalize operation 'torch.aten.sort'"

    assert refusal(text, ["aten.add.Tensor", "aten.sort.default"]).args == ("no lowering for aten.sort.default",)
