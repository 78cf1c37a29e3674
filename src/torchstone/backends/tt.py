"""Tenstorrent hardware: torch_xla with the TT plugin, torch.compile, and the IR of its compiler's stages."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from torchstone.backends.protocol import (
    Args,
    Availability,
    Kwargs,
    NotRun,
    Run,
    Unsupported,
    availability_of,
    installed,
)
from torchstone.backends.xla import Xla
from torchstone.foreign import foreign_code
from torchstone.temporary import temporary_folder

if TYPE_CHECKING:
    from torch import nn

# A folder of IR dumps, as the TT compiler writes them -> the text of each stage. Files are `irs/<stage>_<model
# name>_g<graph>_<milliseconds>.mlir`, without a name `irs/<stage>_<milliseconds>.mlir`. One stage's name begins with
# another's (shlo_compiler, shlo_compiler_cleaned; ttnn, ttnn_runtime): the longest counts.


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


# Tenstorrent hardware: torch_xla with the TT plugin, `torch.compile(backend="tt")` and its compiler's stages. Written
# after the sources of TT-XLA; it never ran on a device.


COMPILE_ONLY = "TT_COMPILE_ONLY_SYSTEM_DESC"
_MODEL_NAME = "torchstone"


class TT(Xla):
    """Tenstorrent's compiler and runtime; never run on hardware by the makers of torchstone."""

    name = "tt"
    forks = False  # a device handle must not be shared

    def __init__(
        self,
        *,
        device: str = "TT",
        path: str = "tt",
        compile_options: Mapping[str, object] | None = None,
        torch_options: Mapping[str, object] | None = None,
        system_desc: str = "",
        allow_fallback: bool = False,
    ) -> None:
        super().__init__(device=device, path=path, compile_options=compile_options, allow_fallback=allow_fallback)
        self.torch_options = dict(torch_options or {})  # options of the backend "tt": {"tt_legacy_compile": true}
        self.system_desc = system_desc  # a .ttsys file: compile for that system, run nothing

    def availability(self) -> Availability:
        """Needs Tenstorrent's packages, which come from its own index."""
        found = availability_of(
            ["torch", "torch_xla"],
            modules=["torch_plugin_tt", "tt_torch"],
            needs="an environment with Tenstorrent's TT-XLA wheels, given by --python",
        )
        plugin = installed("pjrt-plugin-tt") or installed("pjrt_plugin_tt")
        version = f"{found.version}, pjrt-plugin-tt {plugin}" if plugin else found.version
        return replace(found, version=version)

    def warm_up(self) -> None:
        """Import the plugin and choose the device type; a system description makes it compile only."""
        if self.system_desc:
            os.environ[COMPILE_ONLY] = self.system_desc
        super().warm_up()
        if self.device == "TT":
            import torch_plugin_tt  # noqa: F401 - registers the PJRT plugin
            import torch_xla.runtime as xr
            import tt_torch  # noqa: F401 - registers the torch.compile backend

            xr.set_device_type("TT")

    def export(self, module: nn.Module, args: Args, kwargs: Kwargs) -> dict[str, str]:
        """Every stage that the compiler writes: vhlo, shlo, ..., ttir, ttnn."""
        with temporary_folder("tt") as place:
            folder = str(place)
            self.open_device()
            self.reset()  # what is compiled already would write nothing
            options = {"export_path": folder, "export_model_name": _MODEL_NAME}
            self.set_compile_options({**self.compile_options, **options})
            try:
                failure = self._failure_of_a_run(module, args, kwargs)
            finally:
                self.set_compile_options(self.compile_options)
            stages = read_stages(Path(folder), _MODEL_NAME)
        if stages:
            return stages  # written while compiling: a run that fails later leaves them all the same
        if failure is not None:
            raise failure
        msg = "the compiler wrote no stages"
        raise Unsupported(msg)

    def _failure_of_a_run(self, module: nn.Module, args: Args, kwargs: Kwargs) -> Exception | None:
        with foreign_code() as ran:  # what the compiler wrote before it counts
            super().compile(module, args, kwargs)(*args, **kwargs)
        return ran.error

    def compile(self, module: nn.Module, args: Args, kwargs: Kwargs) -> Run:
        """As for any PJRT device; where only compiling was asked for, a call compiles and then says so."""
        run = super().compile(module, args, kwargs)
        if not self.system_desc and COMPILE_ONLY not in os.environ:
            return run

        def compile_only(*args: object, **kwargs: object) -> object:
            run(*args, **kwargs)  # returns uninitialized memory
            msg = "it was compiled only: there are no values to compare"
            raise NotRun(msg)

        return compile_only

    def torch_compile_options(self) -> dict[str, object]:
        """The options of the backend "tt"."""
        return {"options": self.torch_options} if self.torch_options else {}
