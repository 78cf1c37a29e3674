"""Every architecture of the public list: everything has a price, and every sum is exact."""

import warnings

import pytest

from torchstone.capture import capture
from torchstone.cost import price
from torchstone.models.loading import load

PUBLIC = [
    "bert",
    "roberta",
    "distilbert",
    "albert",
    "deberta-v2",
    "electra",
    "gpt2",
    "opt",
    "gpt_neox",
    "bloom",
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    "gemma2",
    "gemma3_text",
    "phi3",
    "falcon",
    "mixtral",
    "qwen3_moe",
    "deepseek_v3",
    "gpt_oss",
    "olmoe",
    "jamba",
    "mamba",
    "mamba2",
    "rwkv",
    "recurrent_gemma",
    "t5",
    "bart",
    "pegasus",
    "longformer",
    "big_bird",
    "whisper",
    "wav2vec2",
    "speecht5",
    "encodec",
    "vit",
    "deit",
    "swin",
    "convnext",
    "resnet",
    "efficientnet",
    "mobilenet_v2",
    "segformer",
    "detr",
    "deformable_detr",
    "clip",
    "siglip",
    "blip-2",
    "llava",
    "sam",
    "videomae",
    "perceiver",
    "patchtst",
    "dpt",
]


@pytest.mark.architectures
@pytest.mark.parametrize("name", PUBLIC)
def test_everything_has_a_price_and_every_sum_is_exact(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what a model's own code warns of is not tested here
        model, inputs = load(f"tiny:{name}", device="cpu")
        trace = capture(model, inputs)
    assert trace.failure is None
    table = price(trace)
    totals, root, levels = table.totals, table.modules[0], table.traffic
    assert table.unpriced == {}
    assert sum(module.self_flops for module in table.modules) == root.flops == totals.flops > 0
    assert sum(module.self_matmul_flops for module in table.modules) == root.matmul_flops == totals.matmul_flops
    assert sum(module.self_bytes_read for module in table.modules) == root.bytes_read == totals.bytes_read
    assert sum(module.self_bytes_written for module in table.modules) == root.bytes_written == totals.bytes_written
    assert sum(levels.unfused.read_bytes.values()) == totals.bytes_read
    assert levels.unfused.total_bytes >= levels.fused.total_bytes >= levels.compulsory.total_bytes
    assert totals.peak_bytes == max(table.timeline_bytes) >= totals.parameter_bytes
