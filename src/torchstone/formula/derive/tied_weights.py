"""Weights that the first and the last layer of a model may share: a switch of the configuration, as a parameter.

Tying the embeddings changes neither what runs nor the bytes that move, but the weights: by the bytes of one matrix of
vocab_size by hidden_size. This is measured, not assumed: each model is built with and without tied embeddings, and only
where formula and measurement agree on both does its entry get the parameter.
"""

from copy import deepcopy
from dataclasses import replace

import msgspec

from torchstone.errors import FormulaError
from torchstone.formula.database.compute import compute
from torchstone.formula.database.templates import name_of
from torchstone.formula.derive.derive_model import ConfiguredModel
from torchstone.formula.derive.gate import formulas_of, judge
from torchstone.formula.derive.library import Library
from torchstone.formula.derive.observe import Observation, observe
from torchstone.formula.derive.parameter_binding import DTYPE_BYTES
from torchstone.formula.derive.sampling_plans import TIED, parameters_of
from torchstone.formula.derive.validate import parameters_for, variant_of
from torchstone.models.tiny import tiny_config
from torchstone.record.formula import FormulaEntry, Quantity

_SHARED = ("hidden_size", "vocab_size")
_MATRIX = f"${{{DTYPE_BYTES}}} * ${{hidden_size}} * ${{vocab_size}}"


def free_tying(library: Library, model: ConfiguredModel) -> None:
    """Make tied embeddings a parameter of the whole model's entry, and drop the setting where it changes nothing."""
    config = model.blueprint.config
    usual = getattr(config, TIED, None)
    if not isinstance(usual, bool):
        return
    calls = {tied: _calls(model, tied=tied) for tied in (usual, not usual)}
    if not all(calls.values()):
        return
    root = calls[usual][0].class_name
    entry = library.entries.get(root)
    named = () if entry is None or not entry.template(Quantity.WEIGHTS) else entry.parameters(Quantity.WEIGHTS)
    if entry is not None and set(_SHARED) <= set(named):
        tied = _with_parameter(entry, usual=usual)
        if _is_right(tied, library, [one for seen in calls.values() for one in seen if one.class_name == root]):
            library.entries[root] = tied
    _drop_setting(library, calls[not usual], variant_of(model.options))


def _calls(model: ConfiguredModel, *, tied: bool) -> list[Observation]:
    """All calls of the model at its own and at a small configuration; none where one of them cannot be run."""
    found: list[Observation] = []
    for config in (model.blueprint.config, tiny_config(type(model.blueprint.config))):
        chosen = deepcopy(config)
        setattr(chosen, TIED, tied)
        blueprint = replace(model.blueprint, config=chosen)
        sample = replace(model, blueprint=blueprint, known=parameters_of(chosen), built=None).sample({}, held_out=True)
        if sample is None:
            return []
        found.extend(observe(sample))
    return found


def _with_parameter(entry: FormulaEntry, *, usual: bool) -> FormulaEntry:
    memory = entry.memory_analysis
    assert memory is not None  # noqa: S101 - it has a template of the weights
    shared = f"+ (1 - ${{{TIED}}})" if usual else f"- ${{{TIED}}}"
    template = f"({memory.weights_template}) {shared} * {_MATRIX}"
    return msgspec.structs.replace(
        entry,
        memory_analysis=msgspec.structs.replace(
            memory, weights_template=template, parameters=(*memory.parameters, TIED)
        ),
        defaults={**entry.defaults, TIED: str(int(usual))},
        domain=(*entry.domain, f"{TIED} <= 1"),
        settings={name: value for name, value in entry.settings.items() if name != TIED},
    )


def _is_right(entry: FormulaEntry, library: Library, calls: list[Observation]) -> bool:
    """Whether the weights of all calls are those of the formula, tied or not."""
    formulas = formulas_of([*(one for one in library.entries.values() if one.module_path != entry.module_path), entry])
    try:
        return all(
            compute(formulas, name_of(entry), Quantity.WEIGHTS, _values(entry, seen)) == seen.weight_bytes
            for seen in calls
        )
    except FormulaError:
        return False


def _values(entry: FormulaEntry, seen: Observation) -> dict[str, int]:
    wanted = entry.parameters(Quantity.WEIGHTS)
    return {name: value for name, value in parameters_for(entry, seen).items() if name in wanted}


def _drop_setting(library: Library, calls: list[Observation], variant: str) -> None:
    """The setting goes where an entry gives all calls of a model with the other value as well."""
    verdict = judge(formulas_of(library.entries.values()), calls, variant)
    wrong = {one.class_name for one in verdict.contradictions}
    for name in verdict.checked.keys() - wrong:
        entry = library.entries.get(name)
        if entry is not None and TIED in entry.settings:
            kept = {setting: value for setting, value in entry.settings.items() if setting != TIED}
            library.entries[name] = msgspec.structs.replace(entry, settings=kept)
