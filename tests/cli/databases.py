"""Databases and files for the tests of `ops` and `db`."""

import json
from pathlib import Path

from tests.configs.samples import ATEN_TEXT, MACHINE, entry_v2, execution, master_v2, new_tensor
from torchstone.configs.import_file import import_path
from torchstone.configs.ttnn_master import RULES
from torchstone.store.database import Store

TENSOR = new_tensor([1, 32], dtype="BFLOAT8_B")


def master_file(folder: Path) -> Path:
    """A master file with two near duplicates of one op and verified hashes."""
    entries = []
    for index in range(2):
        arguments = {"arg0": TENSOR, "batch_idx": index}
        made = RULES[0].hash("ttnn.fill_cache", arguments, MACHINE)
        entries.append(entry_v2(arguments, config_hash=made, executions=[execution(count=4)]))
    path = folder / "master.json"
    path.write_text(json.dumps(master_v2(*entries, op="ttnn.fill_cache")))
    return path


def text_file(folder: Path) -> Path:
    path = folder / "albert.txt"
    path.write_text(ATEN_TEXT)
    return path


def database_in(folder: Path) -> str:
    """A database with both files in it."""
    path = str(folder / "ops.db")
    with Store.open(path) as store:
        for file in (master_file(folder), text_file(folder)):
            imported = import_path(file)
            store.add(imported.seen, runs=imported.runs)
    return path
