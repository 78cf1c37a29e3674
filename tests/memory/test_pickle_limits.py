import pickle
import pickletools
import random
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from torchstone.memory import pickle_limits
from torchstone.memory.pickle_limits import problem_of_pickle

DOCUMENT = {
    "segments": [
        {"address": place << 20, "size": -place, "share": place / 7, "text": f"é{place % 9}", "of": (None, True, b"x")}
        for place in range(70_000)
    ],
    "long": "x" * 70_000,
    "whole": 1 << 3000,
    "sets": [set(), frozenset([1]), bytearray(b"abc")],
}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_what_a_program_wrote_is_read_to_its_end(protocol: int) -> None:
    data = pickle.dumps(DOCUMENT, protocol=protocol)

    assert problem_of_pickle(data) == ""
    last = data[:-1] + b"r\xff\xff\xff\xff."  # so it has come that far
    assert problem_of_pickle(last).startswith(f"byte {len(data) - 1:,} puts")


@pytest.mark.parametrize(
    "place", [b"r\xff\xff\xff\xff", b"r\x00\x00\x00\x01", b"p4294967295\n", b"p" + b"9" * 5000 + b"\n", b"p-1\n"]
)
def test_a_place_that_cannot_be_is_refused(place: bytes) -> None:
    assert "puts an object at a place" in problem_of_pickle(b"\x80\x02}" + place + b".")


def test_every_opcode_is_known() -> None:
    """Each has its argument and then a place that is refused: who misreads the argument does not come to it."""
    lines = {
        "stringnl_noescape_pair": b"a\nb\n",
        "decimalnl_short": b"0\n",
        "decimalnl_long": b"0\n",
        "floatnl": b"0\n",
    }
    for opcode in pickletools.opcodes:
        if opcode.name == "STOP":
            continue
        size = 0 if opcode.arg is None else opcode.arg.n
        argument = (
            bytes(size)
            if size >= 0
            else lines.get(opcode.arg.name if opcode.arg else "", b"'x'\n" if size == -1 else b"")
        )
        if size < -1:
            argument = bytes({-2: 1, -3: 4, -4: 4, -5: 8}[size])
        data = opcode.code.encode("latin-1") + argument + b"r\xff\xff\xff\xff."
        assert problem_of_pickle(data).startswith(f"byte {1 + len(argument)} puts"), opcode.name


def test_damage_of_every_kind_is_left_to_the_unpickler_or_named() -> None:
    data = pickle.dumps(DOCUMENT["segments"][:50], protocol=2)  # type: ignore[index]
    dice = random.Random(1)  # noqa: S311 - mutants, not secrets
    for _ in range(3_000):
        mutant = bytearray(data)
        mutant[dice.randrange(len(data))] = dice.randrange(256)
        assert isinstance(problem_of_pickle(bytes(mutant)), str)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited as on Linux")
def test_a_few_bytes_do_not_take_gigabytes(tmp_path: Path) -> None:
    path = tmp_path / "evil.pickle"
    path.write_bytes(b"\x80\x02}r\xff\xff\xff\xff.")
    limit = 2 << 30
    done = subprocess.run(
        [sys.executable, "-m", "torchstone", "memory", "show", str(path)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
        env={"PYTHONPATH": str(Path(pickle_limits.__file__).parents[2]), "HOME": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 2
    assert "puts an object at a place that the pickle cannot have" in done.stderr


@pytest.mark.parametrize("opcode", [b"\x96", b"\x8e", b"X", b"\x8c", b"\x8b"])
def test_data_that_the_file_does_not_have_is_refused(opcode: bytes) -> None:
    assert "announces more data than the file has" in problem_of_pickle(b"\x80\x05" + opcode + b"\x7f" * 8 + b".")
