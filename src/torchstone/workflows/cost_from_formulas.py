"""A model of the zoo -> its cost from stored formulas alone: no capture, no torch, no comparison with a trace."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import msgspec

from torchstone.errors import FormulaError, InputError
from torchstone.formula.database.compute import available_formulas, compute
from torchstone.formula.database.files import Formulas, key_of, short_name, with_variant
from torchstone.formula.database.templates import name_of
from torchstone.models.inputs import InputOptions
from torchstone.record.formula import FormulaEntry, Quantity, ZooFormulas

SCHEMA = "torchstone/cost_from_formulas/1"
_QUANTITIES = (Quantity.FLOPS, Quantity.READS, Quantity.WRITES)
ZOO_FORMULAS = Path(__file__).parents[1] / "formula" / "zoo_formulas.json"
_DECODE = "decode"
_BACKWARD = "backward"
_TIED = "tie_word_embeddings"  # the gradient of a tied weight is the sum of two
_LENGTH = 128  # tokens, as generated inputs have by default
_RENAMED = {  # parameter -> what configurations call it
    "num_heads": ("num_attention_heads", "n_head", "n_heads"),
    "num_kv_heads": ("num_key_value_heads",),
    "hidden_size": ("n_embd", "d_model", "dim"),
    "num_hidden_layers": ("n_layer", "n_layers"),
    "max_position_embeddings": ("n_positions",),
    "head_dim": ("d_kv",),
    "num_local_experts": ("num_experts",),
}
_ELEMENT_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8}
# Values that change numbers or weights, but neither the FLOPs nor the bytes that move.
_WITHOUT_COST = re.compile(
    r"architectures|model_type|.*_token_id|.*eps(ilon)?|rope_theta|rope_scaling|tie_word_embeddings|(torch_)?dtype|"
    r".*initializer.*|.*dropout.*|.*(label2id|id2label)|is_encoder_decoder|transformers_version|use_cache|"
    r"routed_scaling_factor|max_position_embeddings|use_sliding_window"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FormulaEstimate:
    """The cost of a whole model by one formula, and the parameters it was evaluated at."""

    model: str
    entry: FormulaEntry
    parameters: Mapping[str, int]
    flops: int
    bytes_read: int
    bytes_written: int

    @property
    def document(self) -> bytes:
        """As JSON; `compared` says that no trace confirms the numbers for this model."""
        return msgspec.json.encode(
            {
                "schema": SCHEMA,
                "model": self.model,
                "formula": name_of(self.entry),
                "parameters": dict(self.parameters),
                "totals": {
                    "flops": self.flops, "bytes_read": self.bytes_read, "bytes_written": self.bytes_written
                },
                "compared": False,
            }
        )  # fmt: skip


def cost_from_formulas(
    model: str, options: InputOptions, formulas: Formulas | None = None, *, backward: bool = False
) -> FormulaEstimate:
    """Evaluate the formula of a whole model at its published configuration: that of its family, or its own.

    With `backward`, of a forward and a backward pass, which only families have a formula for. Raises InputError where
    the model is not in the zoo, where no formula covers its class, and where its configuration has a value that the
    formula does not account for: the number could then be wrong.
    """
    try:
        return cost_from_family(model, options, formulas, backward=backward)
    except InputError as reason:
        own = _own_formula(model) if options.phase != _DECODE and not backward else None
        if own is None:
            raise
        return _by_own_formula(model, own, options, reason)


def cost_from_family(
    model: str, options: InputOptions, formulas: Formulas | None = None, *, backward: bool = False
) -> FormulaEstimate:
    """As `cost_from_formulas`, by the formula of the model's family alone."""
    config = _config(model)
    known = formulas or available_formulas()
    phases = (_DECODE if options.phase == _DECODE else "", _BACKWARD if backward else "")
    entry = _entry(model, config, known, "+".join(one for one in phases if one))
    parameters = _parameters(entry, config, options)
    _require_accounted(model, entry, config)
    return _estimate(model, entry, parameters, known)


def _estimate(model: str, entry: FormulaEntry, parameters: Mapping[str, int], known: Formulas) -> FormulaEstimate:
    try:
        values = {one: compute(known, name_of(entry), one, _of(entry, one, parameters)) for one in _QUANTITIES}
    except FormulaError as error:
        msg = f"{model} cannot be computed without a trace: {error}; {_WAY_OUT}"
        raise InputError(msg) from error
    return FormulaEstimate(
        model=model,
        entry=entry,
        parameters=parameters,
        flops=int(values[Quantity.FLOPS]),
        bytes_read=int(values[Quantity.READS]),
        bytes_written=int(values[Quantity.WRITES]),
    )


# --- A formula of one zoo model: batch and length, at exactly its configuration ---


def config_digest(config: Mapping[str, object]) -> str:
    """A text that changes with every value of a configuration."""
    return sha256(msgspec.json.encode(config, order="sorted")).hexdigest()[:16]


def _own_formula(model: str) -> FormulaEntry | None:
    from torchstone.models.zoo.catalogue import find_entry

    found = None if Path(model).exists() else find_entry(model)
    if found is None or not ZOO_FORMULAS.is_file():
        return None
    entry = msgspec.json.decode(ZOO_FORMULAS.read_bytes(), type=ZooFormulas).models.get(found.id)
    return entry if entry is not None and entry.settings.get("config") == config_digest(found.config) else None


def _by_own_formula(model: str, entry: FormulaEntry, options: InputOptions, reason: InputError) -> FormulaEstimate:
    """The sizes of the default call, where the options name no others; refused where they cannot be followed."""
    given = {"B": options.batch_size, "S": options.seq_len}
    sizes = {name: int(text) for name, text in entry.defaults.items()}
    unknown = [name for name, value in given.items() if value is not None and name not in sizes]
    more_lengths = options.seq_len is not None and any(name.startswith("S_") for name in sizes)
    size = None if options.dtype is None else _ELEMENT_BYTES.get(options.dtype.removeprefix("torch."))
    other_type = options.dtype is not None and size != sizes.get("dtype_bytes", size)
    given_inputs = options.text or options.image or options.audio
    other = options.image_size is not None or options.layers is not None or bool(given_inputs)
    if unknown or more_lengths or other_type or other:
        msg = f"the formula of {model} holds for its default inputs and dtype alone ({reason})"
        raise InputError(msg) from reason
    sizes.update({name: value for name, value in given.items() if value is not None})
    known = Formulas(entries={key_of(entry.module_path, entry.variant): entry})
    return _estimate(model, entry, sizes, known)


_WAY_OUT = "trace the model instead (without --no-trace), which needs pip install 'torchstone[hf]'"


def _config(model: str) -> Mapping[str, object]:
    from torchstone.models.zoo.catalogue import find_entry

    found = None if Path(model).exists() else find_entry(model)
    if found is None:
        msg = f"{model} is not in the zoo, so its configuration is not known without transformers; {_WAY_OUT}"
        raise InputError(msg)
    return found.config


def _entry(model: str, config: Mapping[str, object], known: Formulas, variant: str) -> FormulaEntry:
    """The formula of the class that the configuration names, on the requested code path."""
    architectures = config.get("architectures")
    names = [str(one) for one in architectures] if isinstance(architectures, list) else []
    for entry in known.entries.values():
        if short_name(entry.module_path) in names and entry.variant == variant:
            return entry
    wanted = with_variant(names[0] if names else str(config.get("model_type")), variant)
    msg = f"no formula covers {wanted} of {model}; {_WAY_OUT}"
    raise InputError(msg)


def _parameters(entry: FormulaEntry, config: Mapping[str, object], options: InputOptions) -> dict[str, int]:
    """The parameters of the formula: from the options, the configuration, or the formula's own defaults."""
    sizes = {"B": options.batch_size or 1, "S": options.seq_len or _LENGTH}
    sizes |= {"S_encoder": sizes["S"], "S_decoder": sizes["S"], "cache_len": options.cache_len or _LENGTH}
    # A traced model is built in float32 unless something names another type; the default of a formula is no such word.
    dtype = str(options.dtype or config.get("dtype") or config.get("torch_dtype") or "float32").removeprefix("torch.")
    if dtype not in _ELEMENT_BYTES:
        msg = f"the size of an element of {dtype} is not known without torch; use --dtype {', '.join(_ELEMENT_BYTES)}"
        raise InputError(msg)
    sizes["dtype_bytes"] = _ELEMENT_BYTES[dtype]
    found: dict[str, int] = {}
    missing = []
    for name in entry.all_parameters:
        value = sizes.get(name, next((config[one] for one in _names(name) if one in config), None))
        if isinstance(value, int):
            found[name] = int(value)
        elif name not in entry.defaults:
            missing.append(name)
    if missing:
        msg = f"the configuration does not tell {', '.join(missing)} of {name_of(entry)}; {_WAY_OUT}"
        raise InputError(msg)
    return found


def _names(parameter: str) -> tuple[str, ...]:
    return (parameter, *_RENAMED.get(parameter, ()))


def _of(entry: FormulaEntry, quantity: Quantity, parameters: Mapping[str, int]) -> dict[str, int]:
    return {name: value for name, value in parameters.items() if name in entry.parameters(quantity)}


def _require_accounted(model: str, entry: FormulaEntry, config: Mapping[str, object]) -> None:
    """Refuse a value of the configuration that the formula has neither as a parameter nor as a setting."""
    named = {one for name in entry.all_parameters for one in _names(name)}
    for name, value in config.items():
        has_no_cost = _WITHOUT_COST.fullmatch(name) and not (name == _TIED and _BACKWARD in entry.variant)
        if name in named or has_no_cost:
            continue
        if name in entry.settings and entry.settings[name] == value:
            continue
        msg = f"the formula of {name_of(entry)} does not account for {name}={value} of {model}; {_WAY_OUT}"
        raise InputError(msg)
