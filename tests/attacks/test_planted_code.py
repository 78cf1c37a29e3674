"""Files with code, bombs and lies in them, one for each format: exit code 2, one sentence, and nothing is executed.

Archives of torch.export (.pt2) have tests of their own in tests/models/test_exported_archive.py, the weights of a model
folder in tests/models/test_weights.py.
"""

import gzip
import io
import json
import lzma
import os
import pickle
import shutil
import sqlite3
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.readers import READERS
from tests.check.results import check_result, finding, module
from tests.cli.sweeps import vectors_in
from tests.report.traces import transformer
from tests.sweep.builders import call
from torchstone.cli.main import run
from torchstone.cli.terminal import MAX_ERROR_CHARACTERS
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINE
from torchstone.memory import log_source
from torchstone.record import codec

CANARY = "canary"


class Planted:
    """Whoever unpickles it runs a command."""

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch {CANARY}",)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHSTONE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TTMEM_HOME", str(tmp_path / "reports"))
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], command: str) -> str:
    code = run(command.split())
    err = capsys.readouterr().err
    sentence = err.splitlines()[-1]
    assert code == EXIT_BAD_INPUT, err
    assert sentence.startswith("torchstone: error: ")
    assert len(sentence) <= MAX_ERROR_CHARACTERS + 100
    assert "\x1b" not in err
    assert not Path(CANARY).exists(), "the file was executed"
    return sentence


# --- Pickles ---


def _in_containers(planted: object) -> dict[str, Any]:
    return {"segments": [{"blocks": [planted]}], "device_traces": [[planted]]}


@pytest.mark.parametrize("protocol", range(2, 6))
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_snapshot_with_code_in_it(
    capsys: pytest.CaptureFixture[str], protocol: int, pack: Callable[[bytes], bytes]
) -> None:
    Path("snapshot.pickle").write_bytes(pack(pickle.dumps(_in_containers(Planted()), protocol=protocol)))

    assert "only plain containers are read" in refused(capsys, "memory show snapshot.pickle")


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02cos\nsystem\n(S'touch canary'\ntR.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x0ctouch canary\x85R.",
        b"\x80\x02cbuiltins\neval\n(S'1'\ntR.",
        b"\x80\x02(i__main__\nPlanted\n.",
        b"\x80\x02" + b"(" * 100_000 + b".",
        b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b".",
        b"\x80\x04\x96\xff\xff\xff\xff\xff\xff\xff\x7f.",
        b"\x80\x02Q.",
    ],
)
def test_a_pickle_written_by_hand(capsys: pytest.CaptureFixture[str], content: bytes) -> None:
    Path("s.pickle").write_bytes(content)

    refused(capsys, "memory show s.pickle")


@pytest.mark.torch
@pytest.mark.parametrize("name", ["x.npy", "x.npz", "x.pt", "x.safetensors"])
def test_tensor_files_with_objects_in_them(name: str) -> None:
    import numpy as np
    import torch

    from torchstone.errors import InputError
    from torchstone.reference.port_files import read_candidate

    objects = np.array([Planted()], dtype=object)
    writers: dict[str, Callable[[], object]] = {
        "x.npy": lambda: np.save("x.npy", objects, allow_pickle=True),
        "x.npz": lambda: np.savez("x.npz", a=objects),
        "x.pt": lambda: torch.save({"a": Planted()}, "x.pt"),
        "x.safetensors": lambda: Path("x.safetensors").write_bytes(pickle.dumps(Planted())),
    }
    writers[name]()

    with pytest.raises(InputError, match=r"^x\."):
        read_candidate(Path(name))
    assert not Path(CANARY).exists()


# --- Archives and arrays that claim to be larger than they are ---


@pytest.mark.torch
def test_an_array_that_claims_more_than_it_has() -> None:
    import numpy as np

    from torchstone.errors import InputError
    from torchstone.reference.port_files import read_candidate

    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (1 << 40, 1 << 20)})
    Path("x.npy").write_bytes(file.getvalue())
    header = b'{"a":{"dtype":"F32","shape":[1099511627776],"data_offsets":[0,4398046511104]}}'
    Path("x.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    Path("y.safetensors").write_bytes((1 << 60).to_bytes(8, "little"))

    for name in ("x.npy", "x.safetensors", "y.safetensors"):
        with pytest.raises(InputError, match=f"^{name} cannot be read"):
            read_candidate(Path(name))


@pytest.mark.torch
def test_an_archive_of_arrays_that_unpacks_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchstone.errors import InputError
    from torchstone.reference import port_files

    monkeypatch.setattr(port_files, "_MAX_UNPACKED_BYTES", 1 << 20)
    with zipfile.ZipFile("bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", bytes(1 << 23))

    with pytest.raises(InputError, match=r"it unpacks to 8,388,608 bytes, more than 100 times its size"):
        port_files.read_candidate(Path("bomb.npz"))


@pytest.mark.parametrize("kind", ["gz", "xz", "zst"])
def test_a_log_that_unpacks_without_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(log_source, "_MAX_UNPACKED_BYTES", 1 << 20)
    zeros = bytes(1 << 25)
    if kind == "zst":
        program = shutil.which("zstd")
        if program is None:
            pytest.skip("there is no zstd program")
        packed = subprocess.run([program, "--stdout"], input=zeros, capture_output=True, check=True).stdout
    else:
        packed = gzip.compress(zeros) if kind == "gz" else lzma.compress(zeros)
    Path(f"bomb.log.{kind}").write_bytes(packed)

    assert "unpacks to more than 400 times its size" in refused(capsys, f"memory show bomb.log.{kind}")


# --- Files that never end, or have nothing to do with what they claim ---


@pytest.mark.parametrize(
    "command", ["memory show pipe", "db import pipe", "cost pipe", "cost x --hardware pipe", "check watch pipe"]
)
def test_a_pipe_is_never_waited_for(capsys: pytest.CaptureFixture[str], command: str) -> None:
    os.mkfifo("pipe")

    refused(capsys, command)


@pytest.mark.parametrize(
    "content",
    [b"[" * 100_000, b"{" * 5_000, b'{"operations": ' + b"[" * 300 + b"]" * 300 + b"}", b"9" * 5_000, b"\xff\xfe", b""],
)
def test_a_master_file_that_is_none(capsys: pytest.CaptureFixture[str], content: bytes) -> None:
    Path("master.json").write_bytes(content)

    refused(capsys, "db import master.json")


def test_a_database_that_is_none_or_has_a_view_with_other_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.sqlite").write_bytes(b"SQLite format 3\x00" + bytes(200))
    with sqlite3.connect("b.sqlite") as connection:
        connection.execute("CREATE VIEW operations AS SELECT load_extension('x') AS name")
        connection.execute("CREATE TABLE buffers (operation_id)")
    connection.close()

    refused(capsys, "memory show a.sqlite")
    refused(capsys, "memory show b.sqlite")


# --- Records ---

HOSTILE_TEXTS = ["\x1b]0;owned\x07", "\r\x1b[2K", "a" * 100_000, "<script>alert(1)</script>"]


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_hostile_texts_in_a_record_stay_texts(capsys: pytest.CaptureFixture[str], text: str) -> None:
    document = json.loads(codec.encode(transformer(1)))
    document["ops"]["signature_of"][0] = text
    Path("trace.json").write_text(json.dumps(document), encoding="utf-8")

    refused(capsys, "cost .")


@pytest.mark.parametrize("name", ["trace.json", "cost.json", "check.json", "golden_data.json", "mapping.json"])
@pytest.mark.parametrize("content", [b"", b"null", b"[]", b"\xff", b"[" * 100_000, b'{"schema":"torchstone/trace/2"}'])
def test_a_folder_with_a_record_that_is_none(capsys: pytest.CaptureFixture[str], name: str, content: bytes) -> None:
    codec.save(Path("trace.json"), transformer(1))
    Path(name).write_bytes(content)

    refused(capsys, "report .")


def test_garbage_beside_a_readable_trace_is_never_passed_over(capsys: pytest.CaptureFixture[str]) -> None:
    codec.save(Path("trace.json"), transformer(1))
    Path("unique_modules.json").write_bytes(b"garbage")

    assert "unique_modules.json" in refused(capsys, "report . -q")


# --- Formulas and settings ---


@pytest.mark.parametrize("content", [b'{"modules": {"a": "\xff"}}', b"\xff" * 50, b"[" * 100_000, b"{}", b""])
def test_a_damaged_database_of_formulas_does_not_stop_the_shipped_ones(
    capsys: pytest.CaptureFixture[str], here: Path, content: bytes
) -> None:
    (here / "home").mkdir()
    (here / "home" / "module_db.json").write_bytes(content)

    assert run(["formula", "show", "torch.nn.Linear"]) == 0
    assert "torch.nn.modules.linear.Linear" in capsys.readouterr().out


@pytest.mark.parametrize(
    "template",
    [
        "__import__('os').system('touch canary')", "(lambda: 1)()", "().__class__", "9**9**9**9", "(" * 5_000,
        "x" * 200_000, "1" * 5_000, "open('/etc/passwd')",
    ],
)  # fmt: skip
def test_a_template_is_a_formula_and_nothing_else(
    capsys: pytest.CaptureFixture[str], here: Path, template: str
) -> None:
    document = json.loads(READERS["formulas"].corpus()[0])
    ((key, entry),) = document["modules"].items()
    entry["flop_analysis"]["formula_template"] = template
    (here / "home").mkdir()
    (here / "home" / "module_db.json").write_text(json.dumps(document), encoding="utf-8")

    code = run(["formula", "eval", "torch.nn.Linear", "batch_elements=2", "input_features=2", "output_features=2"])

    assert code != 3, capsys.readouterr().err
    assert not Path(CANARY).exists()
    assert key


@pytest.mark.parametrize("content", [b"\xff", b"a = " + b"[" * 50_000, b"[x]\n" * 3, b"[x]\npeak_tflops = 'a'\n"])
def test_a_hardware_file_that_is_none(capsys: pytest.CaptureFixture[str], content: bytes) -> None:
    codec.save(Path("trace.json"), transformer(1))
    Path("h.toml").write_bytes(content)

    refused(capsys, "cost . --hardware h.toml")


# --- Model folders ---


@pytest.mark.torch
@pytest.mark.parametrize(
    "more",
    [
        {"_attn_implementation": "kernels-community/flash-attn"},
        {"attn_implementation": {"": "org/kernel@main"}},
        {"text_config": {"attn_implementation": "org/kernel"}},
        {"experts_implementation": "org/kernel"},
    ],
)
def test_a_configuration_that_names_a_repository_of_kernels(
    capsys: pytest.CaptureFixture[str], more: dict[str, object]
) -> None:
    Path("m").mkdir()
    Path("m/config.json").write_text(json.dumps({"model_type": "bert", **more}), encoding="utf-8")

    assert "asks for code from another repository" in refused(capsys, "inspect m")


@pytest.mark.torch
@pytest.mark.parametrize(
    "more",
    [
        {"num_hidden_layers": 10**12},
        {"model_type": "gpt2", "n_layer": 10_001},
        {"model_type": "swin", "depths": [2, 10**9]},
        {"model_type": "clip", "vision_config": {"num_hidden_layers": 10**6}},
        {"model_type": "mixtral", "num_local_experts": 10**9},
    ],
)
def test_a_configuration_of_a_model_without_end(capsys: pytest.CaptureFixture[str], more: dict[str, object]) -> None:
    Path("m").mkdir()
    Path("m/config.json").write_text(json.dumps({"model_type": "bert", **more}), encoding="utf-8")

    assert "are built; correct it" in refused(capsys, "inspect m")


@pytest.mark.torch
@pytest.mark.parametrize("content", [b"[" * 100_000, b"\xff", b"[]", b"{}", b'{"model_type": "nobody"}', b""])
def test_a_configuration_that_is_none(capsys: pytest.CaptureFixture[str], content: bytes) -> None:
    Path("m").mkdir()
    Path("m/config.json").write_bytes(content)

    refused(capsys, "inspect m")


@pytest.mark.parametrize("repro", ["../secret.txt", "{here}/secret.txt", "repros/../../secret.txt", "..\\secret.txt"])
def test_a_check_that_names_a_file_outside_its_folder_is_refused(
    repro: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check_folder(here / "d", repro.format(here=here))

    assert "not a file below the folder of results" in refused(capsys, "report d")
    assert not (here / "d" / "report.html").exists()


def test_a_report_shows_no_file_that_a_link_in_its_folder_leads_to(here: Path) -> None:
    check_folder(here / "d", "repros/001_x.py")
    (here / "d" / "repros").mkdir()
    (here / "d" / "repros" / "001_x.py").symlink_to(here / "secret.txt")

    assert run(["report", "d", "--quiet"]) == 0
    assert b"the secret" not in (here / "d" / "report.html").read_bytes() + (here / "d" / "report.json").read_bytes()


@pytest.mark.torch
def test_a_vector_that_names_an_op_of_files_is_not_run(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    op = "aten.from_file.default"
    vectors_in(here, call(op, filename=str(here / CANARY), shared=True, size=16))

    assert run(["sweep", "run", "--dir", str(here), "--backend", "eager", "--json"]) == EXIT_FINE
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert (result["op"], result["status"]) == (op, "NOT_RUN")
    assert not Path(CANARY).exists()


def check_folder(folder: Path, repro: str) -> None:
    """A folder with a check that has one finding, and beside it a file that is nobody's business."""
    folder.mkdir()
    (folder.parent / "secret.txt").write_text("the secret", encoding="utf-8")
    codec.save(folder / "trace.json", transformer(1))
    found = finding(modules=("mod_net",), repro=repro)
    modules = (module("net", "failed", outcome="crashed", findings=(found.id,)),)
    (folder / "check.json").write_bytes(codec.encode(check_result(found, modules=modules)))
