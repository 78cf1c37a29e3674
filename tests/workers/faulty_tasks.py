# ruff: noqa: T201 - to print is what some of them are for
"""Tasks that misbehave on demand; run inside workers, so the standard library must do."""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any


def echo(payload: dict[str, Any]) -> dict[str, Any]:
    return payload


def where(_: dict[str, Any]) -> dict[str, Any]:
    ids = {"pid": os.getpid(), "group": os.getpgid(0), "session": os.getsid(0), "parent": os.getppid()}
    return ids | {"python": sys.executable, "path": sys.path, "modules": sorted(sys.modules)}


def raises(payload: dict[str, Any]) -> None:
    raise ValueError(payload.get("text", "no such thing"))


def leaves(_: dict[str, Any]) -> None:
    sys.exit(3)


def segfaults(_: dict[str, Any]) -> None:
    print("about to fall")
    ctypes.string_at(0)


def aborts(_: dict[str, Any]) -> None:
    os.abort()


def kills_itself(_: dict[str, Any]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def exits(payload: dict[str, Any]) -> None:
    os._exit(payload["code"])


def hangs(payload: dict[str, Any]) -> None:
    sleeps_in_vain(payload.get("seconds", 1000))


def sleeps_in_vain(seconds: float) -> None:
    time.sleep(seconds)


def computes(payload: dict[str, Any]) -> float:
    """Use this much CPU time, however long that takes."""
    while time.process_time() < payload["seconds"]:
        pass
    return time.process_time()


def hangs_at_first(payload: dict[str, Any]) -> str:
    """Hang in the first run, and answer in the second."""
    note = Path(payload["note"])
    if not note.exists():
        note.write_text("was here")
        time.sleep(1000)
    return "answered"


def is_killed_at_first(payload: dict[str, Any]) -> str:
    mark = Path(payload["mark"])
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "answered"


def notes_its_time(payload: dict[str, Any]) -> None:
    """Note when it began and ended."""
    began = time.monotonic()
    while time.process_time() < payload["seconds"]:
        pass
    with Path(payload["note"]).open("a", encoding="ascii") as file:
        file.write(f"{began} {time.monotonic()}\n")


def hangs_deaf(_: dict[str, Any]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    time.sleep(1000)


def blows_up(payload: dict[str, Any]) -> None:
    """A bounded amount, so that whoever is slow to stop it does not lose the machine."""
    kept = []
    for _ in range(80):
        kept.append(bytearray(b"x") * payload.get("step_bytes", 20_000_000))
        time.sleep(0.001)
    time.sleep(1000)


def cannot_allocate(_: dict[str, Any]) -> None:
    bytearray(1 << 46)


def floods(payload: dict[str, Any]) -> str:
    piece = b"x" * 65_536
    os.write(1, b"the beginning\n")
    for _ in range(payload["bytes"] // len(piece)):
        os.write(1, piece)
    os.write(2, b"\nthe end\n")
    return "done"


def prints(payload: dict[str, Any]) -> str:
    print(payload["out"])
    print(payload["err"], file=sys.stderr)
    ctypes.CDLL(None).printf(b"from C\n")
    return "done"


def answers_half(_: dict[str, Any]) -> None:
    channel_of_this_process().send(b'{"answer": {"a": 1, ')
    os._exit(0)


def answers_nonsense(_: dict[str, Any]) -> None:
    channel_of_this_process().send(b"this is no JSON\n")
    time.sleep(1000)


def channel_of_this_process() -> socket.socket:
    """The worker's channel, found as a stray library would find it."""
    for entry in Path("/proc/self/fd").iterdir():
        if entry.is_socket():
            return socket.socket(fileno=os.dup(int(entry.name)))
    raise LookupError


def returns_a_set(_: dict[str, Any]) -> Any:
    return {1, 2}


def returns_nan(_: dict[str, Any]) -> Any:
    return float("nan")


def bombs_with_threads(_: dict[str, Any]) -> None:
    """A bounded number, which any container allows."""
    for _number in range(200):
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
    time.sleep(1000)


def leaves_processes_behind(payload: dict[str, Any]) -> list[int]:
    """One in this session, one in a group of its own."""
    first = subprocess.Popen(["sleep", "1000"])
    second = subprocess.Popen(["sleep", "1000"], process_group=0)
    if payload.get("hang"):
        Path(payload["note"]).write_text(f"{first.pid} {second.pid}", encoding="ascii")
        time.sleep(1000)
    return [first.pid, second.pid]


def blows_up_in_a_process_of_its_own(_: dict[str, Any]) -> None:
    program = "import time\nkept = []\nfor _ in range(80): kept.append(bytearray(b'x') * 20_000_000)\ntime.sleep(1000)"
    subprocess.run([sys.executable, "-c", program], check=False)


def shares_memory_with_a_fork(payload: dict[str, Any]) -> str:
    """Holds memory that a copy of the process holds too: it is there once."""
    kept = bytearray(b"x") * payload["bytes"]
    pid = os.fork()
    if pid == 0:
        time.sleep(payload["seconds"])
        os._exit(len(kept) % 2)
    os.waitpid(pid, 0)
    return "done"


def kills_the_zygote(_: dict[str, Any]) -> None:
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(1000)


def stops_the_zygote(_: dict[str, Any]) -> None:
    os.kill(os.getppid(), signal.SIGSTOP)
    time.sleep(1000)


counted = 0


def counts(payload: dict[str, Any]) -> int:
    """How many tasks this process has run; falls at a given one."""
    global counted  # noqa: PLW0603 - what a process remembers is what is looked at
    counted += 1
    if counted == payload.get("fall_at"):
        os.abort()
    return counted


def set_up(payload: dict[str, Any]) -> None:
    if "text" in payload:
        print("the device says: not today")
        raise RuntimeError(payload["text"])
    if payload.get("fall"):
        print("the device burns")
        sys.stdout.flush()
        os.abort()
    if payload.get("hang"):
        time.sleep(1000)
    if payload.get("thread"):
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
    if "folder" in payload:
        (Path(payload["folder"]) / str(os.getpid())).touch()
    os.environ["SET_UP"] = payload.get("value", "yes")


def was_set_up(_: dict[str, Any]) -> str | None:
    return os.environ.get("SET_UP")


def becomes_a_daemon(_: dict[str, Any]) -> int:
    """Leaves a process behind that has left the session, as servers of build tools do."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(writer, str(os.getpid()).encode())
            time.sleep(1000)
        os._exit(0)
    return int(os.read(reader, 20))


def starts_many_processes(payload: dict[str, Any]) -> None:
    """A bounded number of them, so that a fault of the test is no bomb."""
    for _ in range(payload["count"]):
        if os.fork() == 0:
            time.sleep(1000)
            os._exit(0)
    time.sleep(1000)


def writes_down_where_it_is(payload: dict[str, Any]) -> None:
    """Starts a process too, notes both, and hangs."""
    started = subprocess.Popen(["sleep", "1000"])
    note = Path(payload["folder"]) / f"{os.getpid()}"
    note.with_suffix(".part").write_text(f"{os.getppid()} {os.getpid()} {started.pid}", encoding="ascii")
    note.with_suffix(".part").rename(note)
    time.sleep(1000)


def environment_of_a_program(_: dict[str, Any]) -> dict[str, str]:
    program = "import json, os; print(json.dumps(dict(os.environ)))"
    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True).stdout
    found: dict[str, str] = json.loads(said)
    return found


def slow_where(payload: dict[str, Any]) -> dict[str, Any]:
    """Where it runs, and which process has the pool."""
    time.sleep(payload["seconds"])
    zygote = os.getppid()
    fields = Path(f"/proc/{zygote}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return {"pid": os.getpid(), "parent": zygote, "grandparent": int(fields[1])}


matrix: Any = None


def make_a_matrix(_: dict[str, Any]) -> None:
    """Before the first fork: every copy has it."""
    import torch

    global matrix  # noqa: PLW0603 - that is how a set-up hands things to tasks
    matrix = torch.ones(4, 4)


def multiplies(payload: dict[str, Any]) -> dict[str, float]:
    import torch

    return {"sum": (matrix @ matrix * payload["by"]).sum().item(), "threads": torch.get_num_threads()}
