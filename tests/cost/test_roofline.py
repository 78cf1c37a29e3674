import warnings
from datetime import date
from pathlib import Path

import msgspec
import pytest
import torch
from msgspec.structs import replace
from torch import nn

from tests.cost.calls import trace_of
from tests.cost.devices import device
from torchstone.capture import capture
from torchstone.cost import price
from torchstone.cost.formats import with_formats
from torchstone.cost.roofline import find_hardware, hardware_toml, one_of_several, predict, presets
from torchstone.cost.scaling import split_over
from torchstone.errors import InputError
from torchstone.record.cost import Bound, Conventions, Fits, Formats, Prediction
from torchstone.record.trace import Trace


def prediction(trace: Trace, **changes: object) -> Prediction:
    return predict(trace, price(trace), device(**changes))


def test_an_op_takes_as_long_as_its_worst_limit() -> None:
    trace = trace_of(lambda x: x @ x, torch.ones(512, 512))
    work, moved = 2 * 512**3, 3 * 512 * 512 * 4
    slow_memory = prediction(trace).signatures[0]
    fast_memory = prediction(trace, memory_bytes_per_s=1e15).signatures[0]
    slow_launch = prediction(trace, launch_s=1.0).signatures[0]
    assert slow_memory is not None
    assert fast_memory is not None
    assert slow_launch is not None
    assert [one.bound for one in (slow_memory, fast_memory, slow_launch)] == [Bound.MEMORY, Bound.COMPUTE, Bound.LAUNCH]
    assert slow_memory.seconds == pytest.approx(moved / 1e9)
    assert fast_memory.seconds == pytest.approx(work / 1e12)
    assert slow_launch.seconds == 1.0
    assert slow_memory.intensity == work / moved


def test_multiply_adds_take_as_long_as_the_flops_they_stand_for() -> None:
    trace = trace_of(lambda x: x @ x, torch.ones(64, 64))
    fast = device(memory_bytes_per_s=1e15, launch_s=0.0)
    in_macs = predict(trace, price(trace, Conventions(multiply_add=1)), fast)
    assert in_macs.total_s == pytest.approx(predict(trace, price(trace), fast).total_s)


def test_the_whole_is_the_sum_of_its_ops_and_the_root_of_the_tree() -> None:
    trace = capture(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)), torch.ones(4, 64))
    found = prediction(trace)
    assert found.total_s == pytest.approx(sum(found.by_bound_s.values()))
    assert found.modules_s[0] == pytest.approx(found.total_s)
    assert found.ideal_s <= found.fused_s <= found.total_s + 1e-12


def test_views_take_no_time() -> None:
    assert prediction(trace_of(lambda x: x.t()[1:], torch.ones(8, 8))).total_s == 0


def test_a_rate_that_is_missing_is_stood_in_for_and_said() -> None:
    trace = trace_of(lambda x: x @ x, torch.ones(8, 8, dtype=torch.bfloat16))
    assert prediction(trace).notes == ("round has no rate for bfloat16: that of float32 was taken",)


def test_a_model_fits_or_not_and_the_batch_that_would_is_estimated() -> None:
    trace = trace_of(lambda x: x + 1, torch.ones(10, 1000))
    roomy, tight = prediction(trace), prediction(trace, memory_bytes=40_000)
    assert (roomy.fits, tight.fits) == (True, False)
    assert roomy.largest_batch == 10**9 * 10 // 80_000
    assert tight.largest_batch == 5


def test_an_op_without_a_price_has_no_time() -> None:
    from tests.cost.test_pricing import custom_op_trace

    trace = custom_op_trace()
    assert prediction(trace).signatures[0] is None


def test_memory_that_is_only_set_aside_takes_no_time() -> None:
    assert prediction(trace_of(torch.empty_like, torch.ones(8, 8))).total_s == 0


def test_the_states_of_an_optimiser_are_held_as_well() -> None:
    trace = capture(nn.Linear(8, 8), torch.ones(4, 8), backward=True)
    table = price(trace)
    tight = device(memory_bytes=table.peak.total_bytes)
    assert predict(trace, table, tight).fits
    with_states = predict(trace, table, tight, states_bytes=512)
    assert (with_states.fits, with_states.peak_bytes) == (False, table.peak.total_bytes + 512)


@pytest.mark.parametrize("backward", [False, True])
def test_the_largest_batch_fits_and_one_more_does_not(backward: bool) -> None:  # noqa: FBT001 - a case
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64), nn.GELU(), nn.Linear(64, 16))
    small = device(memory_bytes=1_000_000)

    def prediction(batch: int) -> Prediction:
        trace = capture(model, torch.ones(batch, 64), backward=backward)
        return predict(trace, price(trace), small)

    largest = prediction(2).largest_batch
    assert largest is not None
    assert prediction(largest).fits
    assert not prediction(largest + 1).fits


WANTED = {"n150", "n300", "t3k", "p100", "p150", "galaxy", "a100", "h100", "h200", "b200", "mi300x", "l40s", "tpu-v5e"}

MINE = """
[mine]
peak_tflops = { bfloat16 = 2 }
memory_gb = 4
bandwidth_gb_per_s = 100
"""


def test_every_preset_names_its_source_and_has_sane_limits() -> None:
    found = presets()
    assert found.keys() >= WANTED
    for hardware in found.values():
        assert len(hardware.source) > 10
        assert hardware.convention.startswith("dense")
        assert date.fromisoformat(hardware.as_of).year >= 2026
        assert 1e12 < max(hardware.peak_flops.values()) < 1e17
        assert 1e11 < hardware.memory_bytes_per_s < 1e14
        assert 10**10 < hardware.memory_bytes < 10**12
        assert hardware.vector_flops <= max(hardware.peak_flops.values())
        assert "launch_us" in hardware.unconfirmed  # no maker publishes it


@pytest.mark.parametrize(
    ("name", "banks", "mebibytes"),
    [("n150", 12, 1024), ("n300", 24, 1024), ("p100", 7, 4080), ("p150", 8, 4080), ("galaxy", 384, 1024),
     ("t3k", 4 * 24, 1024), ("T3000", 4 * 24, 1024), ("a100", 1, 80 * 1024)],
)  # fmt: skip
def test_memory_is_what_an_allocator_can_be_given(name: str, banks: int, mebibytes: int) -> None:
    assert find_hardware(name).memory_bytes == banks * mebibytes * 2**20


def test_numbers_that_no_document_confirms_are_kept_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "galaxy.toml"
    path.write_text(hardware_toml(find_hardware("galaxy")))
    found = find_hardware(str(path))
    assert found.unconfirmed == find_hardware("galaxy").unconfirmed
    assert {"peak_tflops", "bandwidth_gb_per_s"} <= set(found.unconfirmed)


@pytest.mark.parametrize(
    "named", ['"launch_us"', '["memory"]', "[7]", '["peak_tflops.float8"]', '["launch_us"]', "3", "[[]]"]
)
def test_only_numbers_of_the_device_can_be_unconfirmed(named: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f"{MINE}unconfirmed = {named}\n")
    with pytest.raises(InputError, match=r"unconfirmed in .* must list keys of this device"):
        find_hardware(str(path))


def test_boards_of_one_maker_are_rated_at_the_same_math_fidelity() -> None:
    for name in ("n150", "n300", "t3k", "p100", "p150", "galaxy"):
        rates = find_hardware(name).peak_flops
        assert rates["block_float8"] == pytest.approx(2 * rates["bfloat16"], rel=0.01), name  # HiFi2 against HiFi4


def test_a_t3000_is_four_boards_with_two_chips() -> None:
    board, system = find_hardware("n300"), find_hardware("t3k")
    assert system.peak_flops == {dtype: 4 * rate for dtype, rate in board.peak_flops.items()}
    assert system.memory_bytes_per_s == 4 * board.memory_bytes_per_s
    assert (board.devices, system.devices) == (2, 8)
    assert (
        one_of_several(system).memory_bytes == one_of_several(board).memory_bytes == find_hardware("n150").memory_bytes
    )


def test_a_galaxy_is_32_chips_and_says_that_no_data_sheet_was_compared() -> None:
    chip, system = find_hardware("n150"), find_hardware("galaxy")
    assert system.peak_flops == {dtype: 32 * rate for dtype, rate in chip.peak_flops.items()}
    assert system.memory_bytes_per_s == 32 * chip.memory_bytes_per_s
    assert "not verified" in system.note


@pytest.mark.parametrize(
    ("name", "ports", "gigabits"),
    [("n150", 2, 200), ("n300", 2, 100), ("t3k", 4, 100), ("p150", 4, 800), ("galaxy", 16, 100)],
)
def test_a_link_is_what_the_ports_of_a_chip_send(name: str, ports: int, gigabits: int) -> None:
    assert find_hardware(name).link_bytes_per_s == ports * gigabits * 1e9 / 8


class _Sparse(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(64).to_sparse(), requires_grad=False)
        self.head = nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.Tensor(self.head((self.weight @ x.t()).t()))


def test_nothing_is_said_to_fit_beside_a_tensor_of_unknown_size() -> None:
    trace = capture(_Sparse(), torch.ones(8, 64))
    table = price(trace)
    roomy, tight = (predict(trace, table, device(memory_bytes=size)) for size in (1 << 30, 1 << 10))
    assert (roomy.verdict, roomy.fits, roomy.unsized, roomy.largest_batch) == (Fits.UNKNOWN, False, 1, None)
    assert (tight.verdict, tight.fits) == (Fits.NO, False)
    assert split_over(trace, table, 2, roomy).fits is None
    assert split_over(trace, table, 2, tight).fits is False


def test_weights_packed_in_objects_have_an_unknown_size() -> None:
    layers = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8)).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated in favour of torchao
        packed = torch.ao.quantization.quantize_dynamic(layers, {nn.Linear}, dtype=torch.qint8)
        trace = capture(packed, torch.ones(4, 64))
    table = price(trace)
    found = predict(trace, table, device(memory_bytes=1 << 30))
    assert (found.unsized, found.verdict) == (2, Fits.UNKNOWN)
    assert table.unpriced == {"quantized.linear_dynamic.default": 2}
    said = "2 calls read weights that torch packs into objects of unknown size, which count as nothing"
    assert table.notes == (said,)


@pytest.mark.parametrize(
    ("activations", "weights", "rate"),
    [("float32", "float32", 1), ("float32", "mxfp4", 1), ("bfloat16", "float8_e4m3fn", 2), ("float8_e5m2", "mxfp8", 4),
     ("bfloat8_b", "bfloat4_b", 3), ("bfloat8_b", "bfloat16", 2), ("int8_g128", "int4_g128", 5), ("mxfp4", "nvfp4", 6)],
)  # fmt: skip
@pytest.mark.parametrize("bias", [False, True])
def test_a_matmul_has_the_rate_of_its_widest_operand(activations: str, weights: str, rate: int, *, bias: bool) -> None:
    rates = {"float32": 1e9, "bfloat16": 2e9, "block_float8": 3e9, "float8": 4e9, "int8": 5e9, "float4": 6e9}
    captured = capture(nn.Linear(64, 64, bias=bias), torch.ones(32, 64))
    trace = with_formats(captured, Formats(weights=weights, activations=activations))
    found = predict(
        trace, price(trace), device(peak_flops=rates, launch_s=1e-12, memory_bytes_per_s=1e15, vector_flops=1e30)
    )
    assert found.total_s == pytest.approx(2 * 32 * 64 * 64 / (rate * 1e9))
    assert found.notes == ()


def test_a_format_without_a_rate_is_named_with_the_one_that_stands_in() -> None:
    captured = capture(nn.Linear(64, 64, bias=False), torch.ones(32, 64))
    trace = with_formats(captured, Formats(weights="bfloat8_b", activations="bfloat8_b"))
    found = predict(trace, price(trace), device(peak_flops={"float16": 1e12, "int8": 2e12}))
    assert found.notes == ("round has no rate for bfloat8_b: that of float16 was taken",)


def test_a_name_is_found_in_any_case() -> None:
    assert find_hardware("N150").title == "Tenstorrent Wormhole n150"


def test_a_file_describes_another_device(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(MINE)
    found = find_hardware(str(path))
    assert (found.peak_flops, found.memory_bytes, found.launch_s) == ({"bfloat16": 2e12}, 4 * 10**9, 0)
    assert found.link_bytes_per_s is None


def test_what_is_printed_can_be_read_back(tmp_path: Path) -> None:
    path = tmp_path / "copy.toml"
    for hardware in presets().values():
        path.write_text(hardware_toml(hardware))
        assert find_hardware(str(path)) == hardware


def test_names_and_titles_may_hold_quotes_and_spaces(tmp_path: Path) -> None:
    path = tmp_path / "odd.toml"
    path.write_text(MINE.replace("[mine]", '["my card"]\ntitle = "a \\"fast\\" one"'))
    found = find_hardware(str(path))
    assert (found.name, found.title) == ("my card", 'a "fast" one')
    path.write_text(hardware_toml(found))
    assert find_hardware(str(path)) == found


def test_a_file_with_several_devices_wants_a_name(tmp_path: Path) -> None:
    path = tmp_path / "two.toml"
    path.write_text(MINE + MINE.replace("[mine]", "[other]"))
    assert find_hardware(f"{path}::other").name == "other"
    with pytest.raises(InputError, match="holds mine, other"):
        find_hardware(str(path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[a]\nmemory_gb = 1", "lacks peak_tflops"),
        (MINE + "speed = 3", "unknown key 'speed'"),
        (MINE.replace("= 100", "= -1"), "above zero, not -1"),
        (MINE.replace("= 100", "= 0"), "bandwidth_gb_per_s in .* above zero, not 0"),
        (MINE.replace("= 100", "= inf"), "above zero, not inf"),
        (MINE.replace("= 2 }", "= nan }"), "bfloat16 in .* above zero, not nan"),
        (MINE + "vector_tflops = 0", "vector_tflops in .* above zero"),
        (MINE + "launch_us = -1", "launch_us in .* above zero"),
        (MINE + "launch_us = false", "launch_us in .* not False"),
        (MINE + 'launch_us = ""', "launch_us in .* not ''"),
        (MINE + "launch_us = []", "launch_us in .* not .."),
        (MINE + "memory_mib = 2", "both memory_mib and memory_gb"),
        (
            MINE.replace("{ bfloat16 = 2 }", "{ fp32 = 1, bf16 = 2 }"),
            "unknown element type 'fp32'; tfloat32, float16, ",
        ),
        (MINE + "devices = 0.5", "devices in .* must be a whole number, not 0.5"),
        (MINE + "tile = 1.5", "tile in .* must be a whole number, not 1.5"),
        (MINE.replace("= 100", "= 1e308"), "bandwidth_gb_per_s in .* not 1e.308; from 1e-09 to 1e.15 is read"),
        (MINE.replace("= 100", "= 1e-320"), "bandwidth_gb_per_s in .* not 1e-320"),
        (MINE.replace("memory_gb = 4", "memory_mib = 1e308"), "memory_mib in .* not 1e.308"),
        (MINE.replace("{ bfloat16 = 2 }", "{}"), "must name rates by element type"),
        (MINE.replace("{ bfloat16 = 2 }", "100"), "must name rates by element type"),
        ("", "describes no device"),
        ("a = 3", "not a value"),
        ("[a", "not a TOML file"),
    ],
)
def test_a_file_that_cannot_be_used_is_told_in_a_sentence(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        find_hardware(str(path))


def test_a_launch_may_take_no_time_and_a_rate_may_be_of_one_type_alone(tmp_path: Path) -> None:
    path = tmp_path / "fine.toml"
    path.write_text(MINE.replace("{ bfloat16 = 2 }", "{ bfloat16 = 2, float8_e4m3fn = 8 }") + "launch_us = 0\n")
    assert find_hardware(str(path)).launch_s == 0
    captured = capture(nn.Linear(64, 64, bias=False), torch.ones(32, 64))
    trace = with_formats(captured, Formats(weights="float8_e4m3fn", activations="float8_e4m3fn"))
    assert predict(trace, price(trace), find_hardware(str(path))).notes == ()


def test_a_device_has_a_byte_of_memory_at_least(tmp_path: Path) -> None:
    """How many are needed is divided by it."""
    path = tmp_path / "small.toml"
    path.write_text(MINE.replace("memory_gb = 4", "memory_mib = 1e-9"))
    assert find_hardware(str(path)).memory_bytes == 1


def test_a_name_nobody_knows_is_answered_with_the_list() -> None:
    with pytest.raises(InputError, match="choose one of n150"):
        find_hardware("gpu")
    with pytest.raises(InputError, match="cannot read missing"):
        find_hardware("missing.toml")


# --- Devices with a caching allocator ---


class _Adds(nn.Module):
    """Holds five tensors at its end: two segments of 20 MiB for 6 MiB each."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = x + 1
        second = first * 2
        third = second.exp()
        return third.relu()


def _adds() -> Trace:
    return capture(_Adds(), torch.zeros(6 << 18), reuse=False)


@pytest.mark.parametrize(
    ("memory_mib", "verdict"),
    [(17, Fits.NO), (18, Fits.BETWEEN), (29, Fits.BETWEEN), (39, Fits.BETWEEN), (40, Fits.YES)],
)
def test_a_model_fits_if_what_the_allocator_reserves_does(memory_mib: int, verdict: Fits) -> None:
    trace = _adds()
    gpu = replace(find_hardware("a100"), memory_bytes=memory_mib << 20)

    found = predict(trace, price(trace), gpu)

    assert (found.peak_bytes, found.eager_peak_bytes, found.reserved_peak_bytes) == (18 << 20, 30 << 20, 40 << 20)
    assert found.verdict is verdict


def test_a_device_without_a_caching_allocator_needs_what_is_held() -> None:
    trace = _adds()

    found = predict(trace, price(trace), replace(find_hardware("a100"), memory_bytes=30 << 20, caching_allocator=False))

    assert found.reserved_peak_bytes is None
    assert found.verdict is Fits.YES
    assert not any("allocator" in note for note in found.notes)


def test_what_is_reserved_is_not_known_for_sizes_that_did_not_run() -> None:
    gpu, trace = find_hardware("a100"), _adds()

    tiled = predict(trace, price(trace, Conventions(tile=32)), gpu)
    with_states = predict(trace, price(trace), gpu, states_bytes=1)
    halved = with_formats(trace, Formats(activations="bfloat16"))
    formatted = predict(halved, price(halved), gpu)

    for found in (tiled, with_states, formatted):
        assert found.reserved_peak_bytes is None
        assert any("the sizes are not those of the run" in note for note in found.notes)


def test_what_is_reserved_is_not_known_where_lifetimes_were_not_observed() -> None:
    trace = replace(_adds(), eager_memory=None)

    found = predict(trace, price(trace), find_hardware("a100"))

    assert found.reserved_peak_bytes is None
    assert any("eager lifetimes were not observed" in note for note in found.notes)


def test_a_file_says_whether_a_device_has_a_caching_allocator(tmp_path: Path) -> None:
    path = tmp_path / "gpu.toml"
    path.write_text(hardware_toml(find_hardware("h100")), encoding="utf-8")
    assert find_hardware(str(path)).caching_allocator

    path.write_text(path.read_text(encoding="utf-8").replace("caching_allocator = true", 'caching_allocator = "no"'))
    with pytest.raises(InputError, match=r"caching_allocator in .* must be true or false, not 'no'"):
        find_hardware(str(path))


# --- What documents say of a prediction ---


def test_a_document_says_what_the_times_are_and_whether_the_model_fits() -> None:
    trace = _adds()
    gpu = replace(find_hardware("a100"), memory_bytes=18 << 20)

    document = msgspec.json.decode(msgspec.json.encode(predict(trace, price(trace), gpu)))

    assert document["fits"]
    assert document["fits_in_memory"] == "between"
    assert "not a measurement" in document["basis"]


def test_nothing_is_said_to_fit_where_lifetimes_were_not_observed() -> None:
    trace = replace(_adds(), eager_memory=None)

    found = predict(trace, price(trace), find_hardware("a100"))

    assert found.verdict is Fits.UNKNOWN
    assert predict(trace, price(trace), replace(found.hardware, memory_bytes=1)).verdict is Fits.NO
