"""The matrices that the quantization of a configuration applies to: by the kind of a layer, and by lists of names.

Libraries differ: transformers leaves the last layer as it is only where no list is given, takes names as regular
expressions and as ends of names, and converts nothing but `nn.Linear` itself to FP8. Names of modules may be those of
files, which are other ones than those of the modules that transformers builds today.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from glob import escape
from typing import NamedTuple

from torch import nn

_SKIPPED = ("modules_to_not_convert", "ignore", "ignored_layers", "llm_int8_skip_modules", "exclude_modules")
_BY_TRANSFORMERS = ("fp8", "fbgemm_fp8", "bitsandbytes", "quanto", "torchao")
_PLAIN_LINEAR = ("fp8", "fbgemm_fp8")  # no classes derived from it, such as routers
_OF_GPT2 = ("gptq", "bitsandbytes")  # that also convert its Conv1D
_ONLY_LINEAR = ("bitsandbytes", "quanto", "torchao")  # since transformers 5 keeps all experts of a layer in one tensor
_ONE_TENSOR = 5
_PATTERN = "re:"
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")
_MATRIX, _EXPERTS = 2, 3  # dimensions


class Chosen(NamedTuple):
    """Patterns of the names of matrices, and whether there are experts, which are among them or not."""

    patterns: tuple[str, ...]
    has_experts: bool
    with_experts: bool


def quantized_matrices(
    model: nn.Module, method: str, asked: Mapping[str, object], version: int | None = None
) -> Chosen:
    """All matrices of linear layers and experts but the last layer and those left out.

    The version is that of the transformers that wrote the configuration, where it says one.
    """
    skipped = _Skipped(model, method, asked)
    with_experts = method not in _ONLY_LINEAR or (version is not None and version < _ONE_TENSOR)
    any_experts = False
    without_linear = method == "mxfp4"  # as it is published: experts alone
    chosen: defaultdict[str, list[str]] = defaultdict(list)
    others: set[str] = set()
    for path, module in model.named_modules():
        is_linear = not without_linear and _is_linear(module, method)
        for name, parameter in module.named_parameters(recurse=False):
            full = f"{path}.{name}" if path else name
            has_experts = _has_experts(path, module, parameter)
            any_experts |= has_experts
            is_matrix = (parameter.dim() == _MATRIX and is_linear) or (has_experts and with_experts)
            if is_matrix and not skipped.has(module, path, full):
                chosen[_NUMBER.sub("*", full)].append(full)
            else:
                others.add(_NUMBER.sub("*", full))
    found = (one for folded, names in chosen.items() for one in (names if folded in others else [folded]))
    return Chosen(tuple(map(escape, found)), any_experts, with_experts)


def _is_linear(module: nn.Module, method: str) -> bool:
    if method in _PLAIN_LINEAR:
        return type(module) is nn.Linear or (isinstance(module, nn.Linear) and "GroupedLinear" in type(module).__name__)
    return isinstance(module, nn.Linear) or (method in _OF_GPT2 and type(module).__name__ == "Conv1D")


def _has_experts(path: str, module: nn.Module, parameter: nn.Parameter) -> bool:
    """Whether a parameter has one matrix for each expert, and not one for each head, as in XLNet, or a table."""
    return parameter.dim() == _EXPERTS and "expert" in f"{path} {type(module).__name__}".lower()


class _Skipped:
    """What keeps its format."""

    def __init__(self, model: nn.Module, method: str, asked: Mapping[str, object]) -> None:
        lists = [_names(asked[name]) for name in _SKIPPED if asked.get(name) is not None]
        self._names = _of_files_and_modules(model, [one for names in lists for one in names])
        self._by_ends = method in _BY_TRANSFORMERS
        if self._by_ends:
            self._names += _names(getattr(model, "_keep_in_fp32_modules", None))
        with_head = bool(asked.get("lm_head")) or method == "compressed-tensors" or (self._by_ends and bool(lists))
        self._heads = () if with_head else _heads(model)
        if self._by_ends and not lists:  # nor the last layer of a model without such a head
            *_, (last, _) = model.named_parameters()
            self._names.append(last.removesuffix(".weight"))

    def has(self, module: nn.Module, path: str, full: str) -> bool:
        """Whether a parameter of a module is among it."""
        if module in self._heads:
            return True
        return any(_is_left_out(path, one, by_ends=self._by_ends) or one == full for one in self._names)


def _names(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    return sorted(map(str, value)) if isinstance(value, list | tuple | set) else []


def _heads(model: nn.Module) -> tuple[nn.Module, ...]:
    """The last layer, or each of them where there are several."""
    try:
        head = model.get_output_embeddings()  # type: ignore[operator]  # of transformers
    except (AttributeError, NotImplementedError):
        return ()
    return tuple(head.modules()) if isinstance(head, nn.Module) else ()


def _of_files_and_modules(model: nn.Module, names: Iterable[str]) -> list[str]:
    """The names, and what transformers calls the same modules and their weights when it reads such a file."""
    found = list(names)
    try:
        from transformers.conversion_mapping import get_model_conversion_mapping
    except ImportError:  # before transformers 5 its modules had the names of files
        return found
    if not found or not hasattr(model, "all_tied_weights_keys"):
        return found
    changes = get_model_conversion_mapping(model)
    renamed = []
    for name in found:
        kind = _PATTERN if name.startswith(_PATTERN) else ""
        for ending in ("", ".weight"):
            new = name.removeprefix(kind) + ending
            for change in changes:
                new, _ = change.rename_source_key(new)
            renamed.append(kind + new)
    return list(dict.fromkeys([*found, *renamed]))


def _is_left_out(path: str, one: str, *, by_ends: bool) -> bool:
    """Whether a module is named, or inside one that is: by a part of its path, `*`, a regular expression, or an end."""
    if one.startswith(_PATTERN):
        return _matches(one.removeprefix(_PATTERN), path)
    if fnmatchcase(f".{path}.", f"*.{one.strip('.')}.*") or fnmatchcase(path, one):
        return True
    return by_ends and bool(one) and (path.endswith(one) or _matches(rf"(?:{one})(?:(?<=\.)|(?=\.|$))", path))


def _matches(pattern: str, path: str) -> bool:
    try:
        return re.match(pattern, path) is not None
    except re.error:
        return False
