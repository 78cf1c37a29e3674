"""The same model with fewer layers."""

from typing import Any

from transformers import PreTrainedConfig

from torchstone.errors import ModelError

COUNTS = (
    "num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers", "num_decoder_layers",
    "num_encoder_layers", "encoder_num_hidden_layers", "decoder_num_hidden_layers", "depth",
)  # fmt: skip


def keep_layers(config: PreTrainedConfig, layers: int) -> str:
    """Cut every stack of layers to the first few, in place, and say what was cut."""
    if layers < 1:
        msg = f"a model needs at least one layer, not {layers}; give --layers 1 or more"
        raise ModelError(msg)
    cut: list[str] = []
    _cut(config, layers, cut, prefix="")
    if not cut:
        msg = f"{config.model_type} has no layer count that could be reduced; leave --layers out"
        raise ModelError(msg)
    return f"layers: only the first {layers} of each stack are built ({', '.join(cut)})"


def _cut(config: PreTrainedConfig, layers: int, cut: list[str], *, prefix: str) -> None:
    if isinstance(getattr(config, "depths", None), list | tuple):
        _cut_stages(config, layers, cut, prefix=prefix)
        return
    values = config.to_dict()
    before = {name: values[name] for name in COUNTS if isinstance(values.get(name), int)}
    for name, count in before.items():
        if count > layers:
            setattr(config, name, layers)
            cut.append(f"{prefix}{name} {count} -> {layers}")
    for name, value in list(vars(config).items()):
        if isinstance(value, PreTrainedConfig):
            _cut(value, layers, cut, prefix=f"{prefix}{name}.")
        elif _is_per_layer(value, before):
            setattr(config, name, value[:layers])


def _cut_stages(config: PreTrainedConfig, layers: int, cut: list[str], *, prefix: str) -> None:
    """A model in stages keeps its stages, each with its first layers."""
    kept = [min(depth, layers) for depth in config.depths]
    if kept != list(config.depths):
        cut.append(f"{prefix}depths {list(config.depths)} -> {kept}")
        config.depths = kept


def _is_per_layer(value: Any, counts: dict[str, int]) -> bool:
    """Whether a list says one thing for each layer."""
    return isinstance(value, list) and len(value) > 1 and len(value) in counts.values()
