import subprocess
import sys

import pytest
import torch

from torchstone.numerics.tolerance import ToleranceOptions, read_options, tolerance_for


def test_the_coarser_dtype_decides() -> None:
    mixed = tolerance_for("float32", "bfloat16")

    assert mixed.rtol == tolerance_for("bfloat16", "bfloat16").rtol
    assert mixed.rtol > tolerance_for("float32", "float32").rtol


@pytest.mark.parametrize("name", ["float64", "float32", "float16", "bfloat16", "complex64", "complex128"])
def test_floats_are_judged_as_torch_testing_does(name: str) -> None:
    tolerance = tolerance_for(name, name)
    rtol, atol = torch.testing._comparison._DTYPE_PRECISIONS[getattr(torch, name)]

    assert (tolerance.rtol, tolerance.atol) == (rtol, atol)


@pytest.mark.parametrize("dtype", ["int64", "bool", "uint8", "qint8"])
def test_integers_and_booleans_must_be_equal(dtype: str) -> None:
    tolerance = tolerance_for(dtype, "float32")

    assert tolerance.exact
    assert (tolerance.rtol, tolerance.atol) == (0, 0)


def test_a_stricter_pcc_allows_less_l2_error() -> None:
    loose, strict = (tolerance_for("float32", "float32", ToleranceOptions({"pcc": pcc})) for pcc in (0.9, 0.999))

    assert strict.relative_l2 < loose.relative_l2


def test_noise_that_just_passes_the_pcc_passes_the_l2_error_too() -> None:
    torch.manual_seed(0)
    expected = torch.randn(100_000)
    noisy = expected + 0.142 * torch.randn(100_000)

    tolerance = tolerance_for("float32", "float32")

    assert torch.corrcoef(torch.stack([expected, noisy]))[0, 1] == pytest.approx(0.99, abs=1e-3)
    assert float((noisy - expected).norm() / expected.norm()) < tolerance.relative_l2


def test_what_is_asked_for_counts_and_the_dtype_counts_most() -> None:
    asked = read_options({"pcc": 0.9, "rtol": 0.5, "by_dtype": {"bfloat16": {"pcc": 0.8}}})

    assert tolerance_for("float32", "float32", asked).pcc == 0.9
    assert tolerance_for("bfloat16", "bfloat16", asked).pcc == 0.8
    assert tolerance_for("bfloat16", "bfloat16", asked).rtol == 0.5


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ptc": 0.9}, "unknown tolerance 'ptc'; there are pcc, relative_l2, rtol, atol"),
        ({"by_dtype": {"float32": {"tol": 1}}}, "unknown tolerance 'tol'"),
        ({"by_dtype": 0.9}, "0.9 is not a table"),
        ({"by_dtype": {"float32": 0.9}}, "0.9 is not a table"),
    ],
)
def test_a_misspelt_option_is_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises((ValueError, TypeError), match=said):
        read_options(given)


@pytest.mark.parametrize("module", ["tolerance", "dtypes", "standalone"])
def test_the_parent_side_reads_options_without_torch(module: str) -> None:
    program = f"import sys, torchstone.numerics.{module}; sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
