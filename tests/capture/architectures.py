"""The public list of architectures: model types of transformers that captures are held to."""

# fmt: off
PUBLIC = (
    "bert", "roberta", "distilbert", "albert", "deberta-v2", "electra", "gpt2", "opt", "gpt_neox", "bloom", "llama",
    "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "phi3", "falcon", "mixtral", "qwen3_moe", "deepseek_v3",
    "gpt_oss", "olmoe", "jamba", "mamba", "mamba2", "rwkv", "recurrent_gemma", "t5", "bart", "pegasus", "longformer",
    "big_bird", "whisper", "wav2vec2", "speecht5", "encodec", "vit", "deit", "swin", "convnext", "resnet",
    "efficientnet", "mobilenet_v2", "segformer", "detr", "deformable_detr", "clip", "siglip", "blip-2", "llava",
    "sam", "videomae", "perceiver", "patchtst", "dpt",
)
# fmt: on

STEP_BY_STEP = ("mamba", "jamba", "rwkv", "recurrent_gemma")  # a Python loop over tokens: kept short
