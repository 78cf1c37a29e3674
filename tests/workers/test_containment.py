import json
import subprocess
import sys
from typing import Any

import pytest

from tests.workers.building import wait_until_gone
from torchstone.workers import containment

LINUX_ONLY = pytest.mark.skipif(sys.platform != "linux", reason="the call exists on Linux only")


def outcome_of(program: str) -> Any:
    """What a fresh process prints, as JSON."""
    preamble = "import json, os, resource, signal, sys, time\nfrom torchstone.workers import containment\n"
    done = subprocess.run([sys.executable, "-c", preamble + program], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


@LINUX_ONLY
def test_a_process_that_dies_with_its_parent_is_gone_when_the_parent_is() -> None:
    child = outcome_of(
        "reader, writer = os.pipe()\n"
        "parent = os.getpid()\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    os.close(1); os.close(2)\n"
        "    containment.die_with_parent(parent)\n"
        "    os.write(writer, b'x')\n"
        "    time.sleep(60)\n"
        "os.read(reader, 1)\n"
        "print(pid)"
    )

    assert wait_until_gone(child) == []


@LINUX_ONLY
def test_orphans_come_to_the_process_that_adopts_them() -> None:
    parents = outcome_of(
        "containment.adopt_orphans()\n"
        "reader, writer = os.pipe()\n"
        "middle = os.fork()\n"
        "if middle == 0:\n"
        "    if os.fork() == 0:\n"
        "        time.sleep(0.2)\n"
        "        os.write(writer, str(os.getppid()).encode())\n"
        "    os._exit(0)\n"
        "os.waitpid(middle, 0)\n"
        "print(json.dumps([os.getpid(), int(os.read(reader, 20))]))"
    )

    assert parents[0] == parents[1]


@LINUX_ONLY
def test_memory_beyond_that_of_the_machine_is_refused_and_less_is_not() -> None:
    fine, refused = outcome_of(
        "containment.limit_writable_memory()\n"
        "import mmap\n"
        "total = os.sysconf('SC_PHYS_PAGES') * resource.getpagesize()\n"
        "small = mmap.mmap(-1, total // 8, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n"
        "kept = []\n"
        "try:\n"
        "    for _ in range(20): kept.append(mmap.mmap(-1, total // 8, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))\n"
        "except OSError: print(json.dumps([len(small) > 0, True]))\n"
        "else: print(json.dumps([True, False]))"
    )

    assert (fine, refused) == (True, True)


def test_the_number_of_processes_is_limited_but_never_raised() -> None:
    limits = outcome_of(
        "resource.setrlimit(resource.RLIMIT_NPROC, (900, 900))\n"
        "containment.limit_processes(5000)\n"
        "first = resource.getrlimit(resource.RLIMIT_NPROC)[0]\n"
        "containment.limit_processes(500)\n"
        "print(json.dumps([first, resource.getrlimit(resource.RLIMIT_NPROC)[0]]))"
    )

    assert limits == [900, 500]


@LINUX_ONLY
def test_at_least_this_process_is_counted() -> None:
    assert (containment.count_processes() or 0) >= 1


@LINUX_ONLY
def test_the_first_victim_says_so_to_the_system() -> None:
    assert outcome_of("containment.prefer_as_oom_victim(); print(open('/proc/self/oom_score_adj').read())") == 1000


def test_what_c_code_holds_back_is_written_out() -> None:
    program = "import ctypes, os\nctypes.CDLL(None).printf(b'7')\ncontainment.flush_output()\nos._exit(0)"

    assert outcome_of(program) == 7


@LINUX_ONLY
def test_lines_of_c_code_are_not_held_back() -> None:
    program = "import ctypes\ncontainment.show_output_line_by_line()\nctypes.CDLL(None).printf(b'8\\n')\nos._exit(0)"

    assert outcome_of(program) == 8


def test_what_is_held_is_at_most_the_peak_and_files_are_told_apart() -> None:
    resident, own = containment.held_bytes()

    assert 0 < own < resident <= containment.peak_bytes() + 2**20
