import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchstone.workers import limits

MIB = 1024 * 1024
GONE = 2**22 + 1  # larger than any process id can be

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture(scope="module")
def holder() -> Iterator[int]:
    """A process that holds 64 MiB and has two threads, in a session of its own."""
    program = (
        "import threading, time\nkept = bytearray(b'x') * (64 << 20)\n"
        "threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n"
        "print('ready', flush=True)\ntime.sleep(1000)"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    process.stdout.readline()
    yield process.pid
    process.kill()
    process.communicate()


def test_what_a_process_holds_is_seen_from_outside(holder: int) -> None:
    resident = limits.resident_bytes(holder) or 0
    own = limits.own_bytes(holder) or 0
    private = limits.private_bytes(holder) or 0

    assert 64 * MIB < own < resident < 200 * MIB
    assert 64 * MIB < private <= resident


def test_a_process_that_is_gone_holds_nothing_known() -> None:
    found = [look(GONE) for look in (limits.resident_bytes, limits.own_bytes, limits.private_bytes)]

    assert found == [None, None, None]
    assert limits.tree_bytes(GONE, [GONE]) is None


def test_the_census_finds_processes_and_threads_of_a_session(holder: int) -> None:
    found = limits.census([holder, GONE])

    assert {session: list(members) for session, members in found.items()} == {holder: [holder], GONE: []}
    assert found[holder][holder].threads == 2
    assert found[holder][holder].cpu_s >= 0


def test_a_tree_holds_what_its_first_process_holds_and_what_the_others_hold_alone(holder: int) -> None:
    own, whole = limits.own_bytes(os.getpid()) or 0, limits.tree_bytes(os.getpid(), [os.getpid(), holder])

    assert 60 * MIB < (whole or 0) - own < 150 * MIB


def test_a_fair_share_leaves_something_to_others() -> None:
    free = limits.free_bytes() or 0

    assert 0 < (limits.fair_share_bytes(4) or 0) * 4 <= max(free, 2**30)


def test_a_share_is_never_too_small_to_do_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "free_bytes", lambda: 100)

    assert limits.fair_share_bytes(8) == 256 * MIB


def test_the_system_counts_what_it_kills_for_memory() -> None:
    assert (limits.killed_for_memory() or 0) >= 0


@pytest.fixture
def container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of a container that may use 1,000 MiB and has used 900, of which 600 are files it has read."""
    files = {
        "memory.max": 1000 * MIB,
        "memory.current": 900 * MIB,
        "memory.stat": f"anon {300 * MIB}\nactive_file {200 * MIB}\ninactive_file {400 * MIB}\n",
        "memory.events": "oom 9\noom_kill 7\n",
    }
    for name, content in files.items():
        (tmp_path / name).write_text(f"{content}\n")
    monkeypatch.setattr(limits, "_GROUPS", tmp_path)
    return tmp_path


@pytest.mark.usefixtures("container")
def test_files_that_a_container_has_read_leave_its_memory_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_free_of_machine", lambda: 5000 * MIB)

    assert limits.free_bytes() == 700 * MIB


def test_files_are_told_apart_in_a_container_of_the_older_kind(container: Path) -> None:
    older = container / "memory"
    older.mkdir()
    (container / "memory.max").write_text("max\n")
    (older / "memory.limit_in_bytes").write_text(f"{1000 * MIB}\n")
    (older / "memory.usage_in_bytes").write_text(f"{900 * MIB}\n")
    (older / "memory.stat").write_text(f"inactive_file 1\ntotal_active_file {50 * MIB}\ntotal_inactive_file 0\n")

    assert limits._free_of_container() == 150 * MIB


@pytest.mark.usefixtures("container")
def test_in_a_container_only_its_own_processes_count_as_killed() -> None:
    assert limits.killed_for_memory() == 7
