"""check, sweep and reference give one verdict on one pair, and the judge needs torch alone."""

import json
import subprocess
import sys
import sysconfig
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from torchstone.check.child import run as check_run
from torchstone.numerics.expected import ExpectedOutputs
from torchstone.numerics.standalone import difference
from torchstone.numerics.tolerance import ToleranceOptions
from torchstone.numerics.verdict import compare, judge
from torchstone.record.reference import WRONG, GoldenTensor, Role
from torchstone.reference.judge import Basis
from torchstone.reference.judge import judge as judge_golden
from torchstone.sweep.child import run as sweep_run

SOURCES = Path(check_run.__file__).parents[3]
A = torch.linspace(-2, 3, 24).reshape(4, 6)
PCC = {"pcc": 0.99}
PAIRS = {
    "equal": (A, A.clone()),
    "noise": (A, A * (1 + 1e-4)),
    "scaled": (A, A * 2),
    "shifted": (A, A + 1),
    "transposed": (A, A.t()),
    "flipped": (A, A.flip(0)),
    "strided": (A, A.t().contiguous().t()),
    "NaN": (A, torch.where(A > 2, nan, A)),
    "NaN in both": (torch.where(A > 2, nan, A), torch.where(A > 2, nan, A)),
    "infinity of the other sign": (torch.tensor([inf, 1.0, 2.0]), torch.tensor([-inf, 1.0, 2.0])),
    "constant": (torch.ones(8), torch.ones(8) + 1e-7),
    "another constant": (torch.ones(8), torch.ones(8) + 1e-2),
    "integers beyond float64": (torch.tensor([2**53, 5, 7]), torch.tensor([2**53 + 1, 5, 7])),
    "integers further apart than int64": (torch.tensor([2**63 - 1, 0]), torch.tensor([-1, 0])),
    "booleans": (A > 0, A[0, 2] <= A),
    "equal booleans": (A > 0, A > 0),
    "complex": (torch.complex(A, A), torch.complex(A, -A)),
    "equal complex": (torch.complex(A, A), torch.complex(A, A)),
    "empty": (torch.empty(0, 3), torch.empty(0, 3)),
    "one number": (torch.tensor(1.0), torch.tensor(1.5)),
    "float8": (A.to(torch.float8_e4m3fn), A.to(torch.float8_e4m3fn)),
    "another float8": (A.to(torch.float8_e4m3fn), A.flip(0).to(torch.float8_e4m3fn)),
    "float16": (A.half(), A.half() + 0.001),
    "another kind of number": (A, A.long()),
}


class _Fixed(nn.Module):
    """Gives what it was made with, whatever it is given."""

    def __init__(self, output: Tensor) -> None:
        super().__init__()
        self.output = output

    def forward(self, _x: Tensor) -> Tensor:
        return self.output


class _FixedBackend:
    """A backend that gives a tensor of its own."""

    def __init__(self, output: Tensor) -> None:
        self.output = output

    def compile(self, _module: nn.Module, _args: Any, _kwargs: Any) -> Any:
        return lambda *_args, **_kwargs: self.output


def passes_check(expected: Tensor, actual: Tensor, tolerance: dict[str, float]) -> bool:
    subject = check_run.Subject(_Fixed(expected), lambda: ((torch.ones(1),), {}), {"": expected})
    answer = check_run.attempt(subject, _FixedBackend(actual), {"tolerance": tolerance})  # type: ignore[arg-type]
    return bool(answer["outcome"] == "passed")


def passes_sweep(expected: Tensor, actual: Tensor, tolerance: dict[str, float]) -> bool:
    case = sweep_run.Case.__new__(sweep_run.Case)
    case.expected, case.given, case.may_write, case.unread = expected, [], set(), frozenset()
    case.module = _Fixed(expected)  # in place of the op as a module
    case.has_gradients = False
    case.inputs = lambda: [torch.ones(1)]  # type: ignore[method-assign]
    answer = sweep_run._judged(case, actual, [], {"tolerance": tolerance}, lambda: None)
    return bool(answer["outcome"] == "passed")


def passes_reference(expected: Tensor, actual: Tensor) -> bool:
    about = GoldenTensor(name="x", role=Role.OUTPUT, shape=tuple(expected.shape), dtype=str(expected.dtype))
    return judge_golden(about, expected, actual, Basis(pcc=0.99)).status not in WRONG


def passes_script(expected: Tensor, actual: Tensor) -> bool:
    tolerance = compare(expected, actual, ToleranceOptions(PCC)).tolerance
    limits = {} if tolerance is None else tolerance.as_dict()
    return not difference(
        expected, actual, **{name: float(limits.get(name, 0)) for name in ("pcc", "relative_l2", "rtol", "atol")}
    )


@pytest.mark.parametrize(("expected", "actual"), PAIRS.values(), ids=list(PAIRS))
def test_every_stage_gives_the_same_verdict(expected: Tensor, actual: Tensor) -> None:
    passed = judge(expected, actual, PCC)["passed"]

    assert compare(expected, actual, ToleranceOptions(PCC)).passed is passed
    assert passes_check(expected, actual, PCC) is passed
    assert passes_sweep(expected, actual, PCC) is passed
    assert passes_reference(expected, actual) is passed
    assert passes_script(expected, actual) is passed


@pytest.mark.parametrize(("expected", "actual"), PAIRS.values(), ids=list(PAIRS))
def test_check_and_sweep_give_the_same_verdict_by_noise(expected: Tensor, actual: Tensor) -> None:
    evidence = ExpectedOutputs(_Fixed(expected), lambda: ((torch.ones(1),), {}))
    passed = judge({"": expected}, {"": actual}, None, evidence)["passed"]

    assert passes_check(expected, actual, {}) is passed
    assert passes_sweep(expected, actual, {}) is passed


def test_the_judge_needs_torch_and_the_standard_library_alone(tmp_path: Path) -> None:
    """In an interpreter that finds torch, what torch itself imports, and the sources: no msgspec, click or numpy."""
    packages = Path(torch.__file__).parent.parent
    needed = ("torch", "torchgen", "typing_extensions.py", "sympy", "mpmath", "networkx", "jinja2", "markupsafe",
              "filelock", "fsspec", "functorch")  # fmt: skip
    for name in needed:
        for folder in (packages, Path(sysconfig.get_paths()["purelib"])):
            if (folder / name).exists() and not (tmp_path / name).exists():
                (tmp_path / name).symlink_to(folder / name)
    names = sorted(path.stem for path in (SOURCES / "torchstone" / "numerics").glob("*.py") if path.stem != "__init__")
    program = (
        f"import sys; sys.path[:0] = [{str(SOURCES)!r}, {str(tmp_path)!r}]\n"
        f"import warnings; warnings.simplefilter('ignore')\n"
        f"import json\n"
        + "".join(f"import torchstone.numerics.{name}\n" for name in names)
        + "import torch\nfrom torchstone.numerics.verdict import judge\n"
        "verdict = judge([torch.eye(2), torch.tensor([1])], [torch.eye(2), torch.tensor([1])])\n"
        "print(json.dumps([verdict['passed'], sorted(sys.modules)]))"
    )

    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    passed, imported = json.loads(done.stdout.splitlines()[-1])
    roots = {name.partition(".")[0] for name in imported}
    assert passed
    assert not roots & {"msgspec", "click", "rich", "numpy", "safetensors"}
    own = {name for name in imported if name.startswith("torchstone.")}
    own.discard("torchstone.temporary")  # which needs the standard library alone
    assert own == {"torchstone.numerics", *(f"torchstone.numerics.{name}" for name in names)}
