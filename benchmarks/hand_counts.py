"""Matmul, convolution and attention FLOPs of well-known models, from their published dimensions by hand.

A multiply-add is two FLOPs, attention is the whole square, all logits are computed. Nothing here looks at a trace.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A stack of transformer layers."""

    layers: int
    width: int
    heads: int
    hidden: int  # of the feed-forward part
    kv_heads: int = 0  # 0: as many as heads
    head: int = 0  # width of a head; 0: width / heads
    gated: bool = False  # three feed-forward matrices instead of two
    experts: int = 0  # a router before the feed-forward part
    active: int = 1  # experts that each token goes through

    def flops(self, tokens: int, *, batch: int = 1, other: int = 0) -> int:
        """All layers over a sequence; with `other`, each layer attends to so many other tokens as well."""
        head = self.head or self.width // self.heads
        inner, kv = self.heads * head, (self.kv_heads or self.heads) * head
        own = self.width * (2 * inner + 2 * kv)
        feed_forward = (3 if self.gated else 2) * self.width * self.hidden * self.active
        router = self.width * self.experts
        per_token = own + feed_forward + router + 2 * tokens * inner
        cross = 0
        if other:
            cross = tokens * 2 * self.width * inner + other * 2 * self.width * kv + 2 * tokens * other * inner
        return 2 * batch * self.layers * (tokens * per_token + cross)


def linear(rows: int, inputs: int, outputs: int) -> int:
    """A linear layer."""
    return 2 * rows * inputs * outputs


def language_model(stack: Stack, tokens: int, vocabulary: int) -> int:
    """Layers, then logits for every token."""
    return stack.flops(tokens) + linear(tokens, stack.width, vocabulary)


def bert(tokens: int) -> int:
    """BERT base with its masked-language head: a linear layer, then logits."""
    stack = Stack(layers=12, width=768, heads=12, hidden=3072)
    return language_model(stack, tokens, 30522) + linear(tokens, 768, 768)


def bert_large(tokens: int) -> int:
    """BERT large."""
    stack = Stack(layers=24, width=1024, heads=16, hidden=4096)
    return language_model(stack, tokens, 30522) + linear(tokens, 1024, 1024)


def vit(tokens: int) -> int:  # noqa: ARG001 - one signature for all
    """ViT base: 14 x 14 patches of 16 x 16 x 3 and a class token; 1000 classes from that token."""
    stack = Stack(layers=12, width=768, heads=12, hidden=3072)
    return linear(196, 16 * 16 * 3, 768) + stack.flops(197) + linear(1, 768, 1000)


def resnet_50(tokens: int) -> int:  # noqa: ARG001 - one signature for all
    """ResNet-50 at 224 x 224, stride in the 3 x 3 convolution, convolution by convolution."""
    total = 2 * 112 * 112 * 7 * 7 * 3 * 64
    given = 64
    for blocks, width, size in ((3, 64, 56), (4, 128, 28), (6, 256, 14), (3, 512, 7)):
        for block in range(blocks):
            before = size * 2 if block == 0 and width > 64 else size
            total += 2 * before * before * given * width  # 1 x 1 down
            total += 2 * size * size * 9 * width * width  # 3 x 3
            total += 2 * size * size * width * 4 * width  # 1 x 1 up
            if block == 0:
                total += 2 * size * size * given * 4 * width  # shortcut
            given = 4 * width
    return total + linear(1, 2048, 1000)


def t5(tokens: int) -> int:
    """T5 base: encoder, decoder with cross-attention, logits."""
    stack = Stack(layers=12, width=768, heads=12, hidden=3072)
    return stack.flops(tokens) + stack.flops(tokens, other=tokens) + linear(tokens, 768, 32128)


DECODERS: dict[str, tuple[Stack, int]] = {
    "openai-community/gpt2": (Stack(layers=12, width=768, heads=12, hidden=3072), 50257),
    "openai-community/gpt2-xl": (Stack(layers=48, width=1600, heads=25, hidden=6400), 50257),
    "facebook/opt-1.3b": (Stack(layers=24, width=2048, heads=32, hidden=8192), 50272),
    "meta-llama/Llama-2-7b-hf": (Stack(layers=32, width=4096, heads=32, hidden=11008, gated=True), 32000),
    "meta-llama/Meta-Llama-3-8B": (
        Stack(layers=32, width=4096, heads=32, kv_heads=8, hidden=14336, gated=True), 128256,
    ),
    "meta-llama/Llama-3.1-405B": (
        Stack(layers=126, width=16384, heads=128, kv_heads=8, hidden=53248, gated=True), 128256,
    ),
    "mistralai/Mistral-7B-v0.1": (
        Stack(layers=32, width=4096, heads=32, kv_heads=8, hidden=14336, gated=True), 32000,
    ),
    "Qwen/Qwen3-8B": (
        Stack(layers=36, width=4096, heads=32, kv_heads=8, head=128, hidden=12288, gated=True), 151936,
    ),
    "mistralai/Mixtral-8x7B-v0.1": (
        Stack(layers=32, width=4096, heads=32, kv_heads=8, hidden=14336, gated=True, experts=8, active=2), 32000,
    ),
    "Qwen/Qwen3-30B-A3B": (
        Stack(layers=48, width=2048, heads=32, kv_heads=4, head=128, hidden=768, gated=True, experts=128, active=8),
        151936,
    ),
}  # fmt: skip
OTHERS = {
    "google-bert/bert-base-uncased": bert,
    "google-bert/bert-large-uncased": bert_large,
    "google/vit-base-patch16-224": vit,
    "microsoft/resnet-50": resnet_50,
    "google-t5/t5-base": t5,
}
MODELS = (*OTHERS, *DECODERS)


def hand_count(model: str, tokens: int) -> int:
    """The FLOPs of a model for one sequence, or one picture."""
    if model in OTHERS:
        return OTHERS[model](tokens)
    stack, vocabulary = DECODERS[model]
    return language_model(stack, tokens, vocabulary)
