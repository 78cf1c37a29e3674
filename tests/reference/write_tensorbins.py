"""Write the files of tests/reference/tensorbins with ttnn itself: run it where ttnn 0.81 and torch are installed.

    TT_METAL_MOCK_CLUSTER_DESC_PATH=n150.yaml python write_tensorbins.py tests/reference/tensorbins

No device is opened; the variable names the description of a mock one, which ttnn asks for when it tiles bfloat16. Each
`.tensorbin` is written by ttnn.dump_tensor; expected.npz has what ttnn.to_torch gives for the same tensor, as float32.
"""

import sys
from pathlib import Path

import numpy as np
import torch
import ttnn

FOLDER = Path(sys.argv[1])
GENERATOR = torch.Generator().manual_seed(0)
EXTREME = torch.tensor([0.0, -0.0, 1e-38, 1e-40, 3e38, -3e38, float("inf"), float("nan"), *(2.0**n for n in range(8))])


def spread(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=GENERATOR) * torch.exp(torch.randn(*shape, generator=GENERATOR))


def main() -> None:
    tile, rows = ttnn.TILE_LAYOUT, ttnn.ROW_MAJOR_LAYOUT
    sharded = ttnn.create_sharded_memory_config(
        (1, 1, 64, 32), core_grid=ttnn.CoreGrid(y=2, x=1), strategy=ttnn.ShardStrategy.HEIGHT
    )
    counted = torch.arange(5 * 33).reshape(5, 33).int()
    cases = {
        "bfloat16_tile": (spread(1, 40), ttnn.bfloat16, tile, {}),
        "bfloat16_rows": (spread(2, 3, 5, 7), ttnn.bfloat16, rows, {}),
        "bfloat16_sharded": (spread(1, 1, 64, 32), ttnn.bfloat16, tile, {"memory_config": sharded}),
        "float32_tile": (spread(7), ttnn.float32, tile, {}),
        "float32_rows": (spread(2, 33, 5), ttnn.float32, rows, {}),
        "bfloat8_b": (spread(2, 3, 33, 5), ttnn.bfloat8_b, tile, {}),
        "bfloat8_b_extreme": (torch.stack((EXTREME, spread(16))), ttnn.bfloat8_b, tile, {}),
        "bfloat8_b_small_tile": (spread(3, 40), ttnn.bfloat8_b, tile, {"tile": ttnn.Tile((1, 32))}),
        "bfloat4_b": (spread(1, 40), ttnn.bfloat4_b, tile, {}),
        "bfloat4_b_extreme": (torch.stack((EXTREME, spread(16))), ttnn.bfloat4_b, tile, {}),
        "int32_tile": (counted - 60, ttnn.int32, tile, {}),
        "uint8_rows": (counted % 200, ttnn.uint8, rows, {}),
    }
    expected = {}
    for name, (values, dtype, layout, more) in cases.items():
        tensor = ttnn.from_torch(values, dtype=dtype, layout=layout, **more)
        path = FOLDER / f"{name}.tensorbin"
        path.unlink(missing_ok=True)
        ttnn.dump_tensor(str(path), tensor)
        expected[name] = ttnn.to_torch(tensor).float().numpy()
    np.savez_compressed(FOLDER / "expected.npz", **expected)


if __name__ == "__main__":
    main()
