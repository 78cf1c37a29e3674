"""A folder of IR dumps, as the TT compiler writes them -> the text of each stage.

Files are `irs/<stage>_<model name>_g<graph>_<milliseconds>.mlir`, without a name `irs/<stage>_<milliseconds>.mlir`.
One stage's name begins with another's (shlo_compiler, shlo_compiler_cleaned; ttnn, ttnn_runtime): the longest counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

STAGES = (  # in the order of the compiler
    "vhlo",
    "shlo",
    "shlo_frontend",
    "shlo_set_mesh_attr",
    "shlo_compiler",
    "shlo_compiler_cleaned",
    "ttir",
    "ttnn",
    "ttnn_runtime",
)
_GRAPH = re.compile(r"_g(?P<graph>\d+)_(?P<time>\d+)$")
_TIME = re.compile(r"_(?P<time>\d+)$")


@dataclass(frozen=True)
class StageFile:
    """What the name of a dump says."""

    stage: str
    graph: int  # 0 is the forward pass; graph breaks and the backward pass add more
    time_ms: int


def stage_of(name: str, model_name: str = "") -> StageFile:
    """What a file name without its ending says; a stage that is not known keeps its own name."""
    numbered = _GRAPH.search(name)
    timed = numbered or _TIME.search(name)
    body = name[: timed.start()] if timed else name
    written_name = model_name.replace("/", "_")
    if written_name and body.endswith(f"_{written_name}"):
        body = body.removesuffix(f"_{written_name}")
    known = [stage for stage in STAGES if body == stage or body.startswith(f"{stage}_")]
    stage = max(known, key=len) if known else body
    return StageFile(stage, int(numbered["graph"]) if numbered else 0, int(timed["time"]) if timed else 0)


def read_stages(folder: Path, model_name: str = "") -> dict[str, str]:
    """Stage -> text, in the compiler's order; further graphs as `ttir.g1`, the newest dump of each."""
    newest: dict[tuple[int, str, int], tuple[int, Path]] = {}
    for path in sorted((folder / "irs").glob("*.mlir")):
        found = stage_of(path.stem, model_name)
        place = STAGES.index(found.stage) if found.stage in STAGES else len(STAGES)
        key = (place, found.stage, found.graph)
        if key not in newest or newest[key][0] <= found.time_ms:
            newest[key] = (found.time_ms, path)
    return {
        f"{stage}.g{graph}" if graph else stage: path.read_text(encoding="utf-8", errors="replace")
        for (_, stage, graph), (_, path) in sorted(newest.items())
    }
