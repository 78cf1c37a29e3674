"""Boards that ttnn can mock: their cluster descriptors, how their meshes are opened, and the board of a traced machine.

The descriptors are YAML files in `boards/`, as tt-umd reads them. A board of your own is the path of such a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("boards")
HARDWARE = "hardware"  # the devices of this machine, as they are
AUTO = "auto"  # the board that a configuration was traced on
L1_SMALL_BYTES = 24_576  # convolutions and pools need it; what tt-metal's own tests open devices with
_PAIR = 2


@dataclass(frozen=True)
class Board:
    """One board, and how it is opened."""

    name: str
    mesh: tuple[int, int] = (1, 1)
    descriptor: str = ""  # a file; "" for the devices of this machine
    slow_dispatch: bool = False  # where ops would otherwise be validated against a grid without the dispatch cores

    @property
    def is_mock(self) -> bool:
        """Whether no device stands behind it."""
        return bool(self.descriptor)

    @property
    def label(self) -> str:
        """Its name, with its mesh where there is more than one chip."""
        return self.name if self.mesh == (1, 1) else f"{self.name} {self.mesh[0]}x{self.mesh[1]}"

    def variables(self, cache: str) -> dict[str, str]:
        """Environment variables for processes that open it; ttnn reads them when it is imported."""
        given = {"TT_LOGGER_LEVEL": "off", "LOGURU_LEVEL": "ERROR", "TT_METAL_CACHE": cache}
        if self.is_mock:
            given["TT_METAL_MOCK_CLUSTER_DESC_PATH"] = self.descriptor
        if self.slow_dispatch:
            given["TT_METAL_SLOW_DISPATCH_MODE"] = "1"
        return given


def _shipped(name: str, mesh: tuple[int, int] = (1, 1), *, slow_dispatch: bool = False) -> Board:
    return Board(name, mesh, str(FOLDER / f"{name}.yaml"), slow_dispatch)


BOARDS = {
    board.name: board
    for board in (
        _shipped("n150"),
        _shipped("n300", (1, 2), slow_dispatch=True),
        _shipped("t3k", (2, 4), slow_dispatch=True),
        _shipped("galaxy", (4, 8)),
        _shipped("p100"),
        _shipped("p150"),
        _shipped("p300", (1, 2)),
    )
}
_SERIES = {"tt-galaxy-wh": "galaxy", "tg": "galaxy", "6u": "galaxy", "n150s": "n150", "n150d": "n150", "n300s": "n300"}
_T3K_CHIPS = 8


class UnknownBoardError(ValueError):
    """There is no such board."""


def find_board(name: str, mesh: str = "") -> Board:
    """A board by its name, by the path of a descriptor, or the hardware of this machine; `mesh` such as 1x8."""
    if name == HARDWARE:
        board = Board(HARDWARE)
    elif name in BOARDS:
        board = BOARDS[name]
    elif name.endswith((".yaml", ".yml")) and Path(name).is_file():
        path = Path(name).resolve()
        chips = path.read_text(encoding="utf-8", errors="replace").partition("chips:")[0].count(": ") - 1
        board = Board(path.stem, (1, max(1, chips)), str(path))
    else:
        msg = (
            f"there is no board {name!r}; give one of {', '.join(BOARDS)}, {HARDWARE}, or the path of a descriptor.yaml"
        )
        raise UnknownBoardError(msg)
    return board if not mesh else replace(board, mesh=_mesh_of(mesh))


def _mesh_of(text: str) -> tuple[int, int]:
    sizes = text.lower().split("x")
    if len(sizes) != _PAIR or not all(size.isdigit() and int(size) for size in sizes):
        msg = f"{text!r} is not a mesh; write rows x columns, such as 2x4"
        raise UnknownBoardError(msg)
    return int(sizes[0]), int(sizes[1])


def board_of_machine(machine: Mapping[str, Any]) -> Board | None:
    """The board and mesh that a trace names; None where it names none that is known."""
    series = machine.get("device_series")
    first = (series[0] if series else None) if isinstance(series, list) else series
    name = _SERIES.get(str(first).lower(), str(first).lower())
    if name == "n300" and int(machine.get("card_count") or 1) * _PAIR == _T3K_CHIPS:
        name = "t3k"
    board = BOARDS.get(name)
    if board is None:
        return None
    mesh = machine.get("mesh_device_shape")
    if isinstance(mesh, list) and len(mesh) == _PAIR and all(isinstance(size, int) and size > 0 for size in mesh):
        return replace(board, mesh=(mesh[0], mesh[1]))
    return board
