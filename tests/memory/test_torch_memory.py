import gzip
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from tests.memory.ledger_truth import is_violated
from torchstone.errors import InputError, UnreadableFileError
from torchstone.memory.ledger import follow_all, live_before
from torchstone.memory.out_of_memory import explain_last_failure
from torchstone.memory.read_log import parse_log
from torchstone.memory.study import Study
from torchstone.record.memory_findings import Verdict

MIB = 1 << 20
FRAMES = [
    {"filename": "/site-packages/torch/nn/modules/linear.py", "line": 134, "name": "forward"},
    {"filename": "train.py", "line": 41, "name": "step"},
]


def entry(action: str, address: int, size: int, **more: object) -> dict[str, object]:
    return {"action": action, "addr": address, "size": size, "stream": 0, "frames": FRAMES, **more}


def snapshot() -> dict[str, Any]:
    """A weight from before, two activations of which one is freed, and an allocation that fails."""
    return {
        "segments": [
            {
                "device": 0, "address": 0, "total_size": 20 * MIB, "stream": 0,
                "blocks": [
                    {"address": 0, "size": 4 * MIB, "state": "active_allocated", "frames": []},
                    {"address": 4 * MIB, "size": 2 * MIB, "state": "inactive"},
                    {"address": 6 * MIB, "size": 3 * MIB, "state": "active_allocated", "frames": FRAMES},
                    {"address": 9 * MIB, "size": 11 * MIB, "state": "inactive"},
                ],
            }
        ],
        "device_traces": [[
            entry("alloc", 4 * MIB, 2 * MIB),
            entry("alloc", 6 * MIB, 3 * MIB),
            entry("free_requested", 4 * MIB, 2 * MIB),
            entry("free_completed", 4 * MIB, 2 * MIB),
            entry("oom", 0, 64 * MIB, device_free=8 * MIB),
        ]],
    }  # fmt: skip


def written(folder: Path, document: object) -> Path:
    path = folder / "snapshot.pickle"
    path.write_bytes(pickle.dumps(document))
    return path


def test_a_snapshot_is_followed_from_what_was_there_before(tmp_path: Path) -> None:
    study = Study(parse_log(written(tmp_path, snapshot())))

    readings = study.readings["GPU 0"]
    assert [size // MIB for size in readings.allocated] == [4, 6, 9, 7]
    assert [size // MIB for size in readings.largest_free] == [16, 14, 11, 11]
    live = live_before(study, 3)[0]
    assert [(one.bank_bytes // MIB, one.owner) for one in live.buffers] == [
        (4, "allocated before the recording began"), (3, "step train.py:41"),
    ]  # fmt: skip
    assert not any(is_violated(one) for op in range(4) for one in live_before(study, op))
    failure = explain_last_failure(study)
    assert failure is not None
    assert (failure.verdict, failure.op, failure.needed_bytes) == (Verdict.CAPACITY, 3, 64 * MIB)


def test_the_curve_of_stated_buffers_is_the_sum_of_the_live_sets(tmp_path: Path) -> None:
    study = Study(parse_log(written(tmp_path, snapshot())))

    (curve,) = follow_all(study, largest=1)

    assert curve.padded["GPU 0"] == [live_before(study, op)[0].padded_bytes for op in range(4)]
    assert [found[0].bank_bytes // MIB for found in curve.largest] == [4, 4, 4, 4]


class Attack:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch /tmp/executed",)


@pytest.mark.parametrize("document", [Attack(), {"segments": [Attack()]}, {"segments": [Path("x")]}, {1, 2}])
def test_a_pickle_of_anything_but_plain_containers_is_refused(tmp_path: Path, document: object) -> None:
    marker = Path("/tmp/executed")  # noqa: S108 - must not come to exist
    marker.unlink(missing_ok=True)

    with pytest.raises(InputError):
        parse_log(written(tmp_path, document))

    assert not marker.exists()


def test_a_cut_snapshot_is_damaged_and_one_without_history_says_how_to_get_it(tmp_path: Path) -> None:
    path = written(tmp_path, snapshot())
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises((UnreadableFileError, InputError)):
        parse_log(path)
    with pytest.raises(InputError, match="_record_memory_history"):
        parse_log(written(tmp_path, {"segments": [], "device_traces": [[]]}))


def test_memory_events_of_a_real_profile_balance(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 16))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        model(torch.randn(8, 64)).sum().backward()
    path = tmp_path / "trace.json"
    profile.export_chrome_trace(str(path))
    packed = tmp_path / "trace.json.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))

    for one in (path, packed):
        study = Study(parse_log(one))
        assert not any(is_violated(live) for op in range(len(study.timeline.ops)) for live in live_before(study, op))
        owners = {live.owner for live in live_before(study, len(study.timeline.ops) - 1)[0].buffers}
        assert any(owner.startswith("aten::") for owner in owners)


def test_a_trace_without_memory_events_says_so(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text('{"deviceProperties": [], "traceEvents": [{"ph": "X", "name": "aten::add", "ts": 1, "dur": 2}]}')

    with pytest.raises(InputError, match="profile_memory=True"):
        parse_log(path)
