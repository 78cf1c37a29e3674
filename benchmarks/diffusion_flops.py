"""FLOPs of one step of diffusion models against torch's FlopCounterMode, closed forms and published figures.

    PYTHONPATH=src python benchmarks/diffusion_flops.py

Needs the extra `torchstone[diffusers]`. FlopCounterMode counts on the meta device, where fused attention is taken apart
into its products: the same FLOPs by other ops. The closed form of DiT is written from its paper and the
one difference that its code in diffusers has.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.models.test_diffusion import FLUX, SD_1_5, SD_3, SDXL
from torchstone.capture import capture
from torchstone.cost import price
from torchstone.models.load_model import load

_FREQUENCIES = 256  # of the embedding of a time step
DIT_XL: dict[str, Any] = {
    "_class_name": "DiTTransformer2DModel",
    "num_attention_heads": 16,
    "attention_head_dim": 72,
    "in_channels": 4,
    "out_channels": 8,
    "num_layers": 28,
    "sample_size": 32,
    "patch_size": 2,
    "num_embeds_ada_norm": 1000,
}


def dit_blocks(config: dict[str, Any]) -> int:
    """Matmul FLOPs of the blocks of a DiT: attention and MLP for each token, six modulations for each image.

    In diffusers each block embeds the time step by itself, and the last layer asks the first block for it once more.
    """
    layers, width = int(config["num_layers"]), config["num_attention_heads"] * config["attention_head_dim"]
    tokens = (config["sample_size"] // config["patch_size"]) ** 2
    attention = tokens * 4 * width * width + 2 * tokens * tokens * width
    mlp = tokens * 2 * 4 * width * width
    time_step = _FREQUENCIES * width + width * width
    return 2 * int(layers * (attention + mlp + 6 * width * width) + (layers + 1) * time_step)


def main() -> int:
    """Compare each model, and give 1 where a count differs."""
    wrong = 0
    for name, config in (("SD 1.5", SD_1_5), ("SDXL", SDXL), ("SD 3", SD_3), ("FLUX.1", FLUX), ("DiT-XL/2", DIT_XL)):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "config.json").write_text(json.dumps(config), encoding="utf-8")
            model, inputs = load(folder)
        table = price(capture(model, inputs))
        counter = FlopCounterMode(display=False)
        with torch.no_grad(), counter:
            model(*map(_on_meta, inputs.args), **_on_meta(inputs.kwargs))
        own, peer = table.totals.matmul_flops, counter.get_total_flops()
        wrong += own != peer
        print(
            f"{name:<10} torchstone {own:>20,}  FlopCounterMode {peer:>20,}  {'equal' if own == peer else 'DIFFERENT'}"
        )
        if config is DIT_XL:
            blocks = sum(one.matmul_flops for one in table.modules if _is_block(one.path))
            agrees = blocks == dit_blocks(config)
            wrong += not agrees
            print(f"{'':<10} blocks     {blocks:>20,}  closed form     {dit_blocks(config):>20,}  {agrees}")
    return int(bool(wrong))


def _is_block(path: str) -> bool:
    parent, _, number = path.rpartition(".")
    return parent == "transformer_blocks" and number.isdigit()


def _on_meta(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to("meta")
    return {key: _on_meta(one) for key, one in value.items()} if isinstance(value, dict) else value


if __name__ == "__main__":
    sys.exit(main())
