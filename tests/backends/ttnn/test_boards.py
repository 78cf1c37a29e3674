from pathlib import Path

import pytest

from torchstone.backends.ttnn.boards import BOARDS, HARDWARE, UnknownBoardError, board_of_machine, find_board


def test_every_board_has_its_descriptor() -> None:
    assert [board.name for board in BOARDS.values() if not Path(board.descriptor).is_file()] == []


def test_a_mock_board_names_its_descriptor_to_ttnn_and_hardware_does_not() -> None:
    mock, real = find_board("n150").variables("cache"), find_board(HARDWARE).variables("cache")

    assert mock["TT_METAL_MOCK_CLUSTER_DESC_PATH"].endswith("n150.yaml")
    assert "TT_METAL_MOCK_CLUSTER_DESC_PATH" not in real
    assert "TT_METAL_SLOW_DISPATCH_MODE" in find_board("n300").variables("cache")
    assert "TT_METAL_SLOW_DISPATCH_MODE" not in mock


def test_a_descriptor_of_the_user_is_a_board(tmp_path: Path) -> None:
    own = tmp_path / "mine.yaml"
    own.write_text("arch: {0: wormhole_b0, 1: wormhole_b0}\nchips: {0: [0, 0, 0, 0]}\n", encoding="utf-8")

    assert find_board(str(own)).mesh == (1, 2)
    assert find_board("t3k", "1x8").mesh == (1, 8)


@pytest.mark.parametrize(("name", "mesh"), [("n151", ""), ("", ""), ("none.yaml", ""), ("n300", "2"), ("n300", "0x2")])
def test_an_unknown_board_or_mesh_is_refused(name: str, mesh: str) -> None:
    with pytest.raises(UnknownBoardError):
        find_board(name, mesh)


@pytest.mark.parametrize(
    ("machine", "label"),
    [
        ({"device_series": "n300", "card_count": 1, "mesh_device_shape": [1, 2]}, "n300 1x2"),
        ({"device_series": ["n300"], "card_count": 4, "mesh_device_shape": [1, 8]}, "t3k 1x8"),
        ({"device_series": "tt-galaxy-wh", "device_count": 32}, "galaxy 4x8"),
        ({"device_series": "n150"}, "n150"),
        ({"device_series": "x1"}, None),
        ({}, None),
    ],
)
def test_the_board_of_a_traced_machine(machine: dict[str, object], label: str | None) -> None:
    board = board_of_machine(machine)

    assert (board and board.label) == label
