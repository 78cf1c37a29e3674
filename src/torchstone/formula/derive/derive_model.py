"""A model at its own configuration -> formulas of batch and length, with every other value as a recorded setting.

The named parameters of a model type are derived from small configurations (`library`). A configuration with sizes that
no plan names, or with couplings between them, cannot be varied safely. Its batch and length can: each class then has a
formula for exactly this configuration, and the entry names every setting, so that it is used for no other.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from random import Random
from time import process_time

import msgspec
import torch
from torch import nn
from transformers import PreTrainedConfig

from torchstone.errors import TorchstoneError
from torchstone.foreign import foreign_code
from torchstone.formula.algebra.polynomial import CHOOSE, MODULO, ONE, ZERO, Applied, Polynomial
from torchstone.formula.database.files import Formulas
from torchstone.formula.derive.boundaries import NO_BOUNDARIES, Boundaries
from torchstone.formula.derive.code_paths import Refused
from torchstone.formula.derive.coordinates import Coordinates
from torchstone.formula.derive.derive_recipe import Remeasured, documented, remove_extras, tested_ranges
from torchstone.formula.derive.gate import Verdict, formulas_of, judge, seed_of
from torchstone.formula.derive.library import Library, model_origin
from torchstone.formula.derive.observe import Observation, Sample, observe
from torchstone.formula.derive.parameter_binding import BATCH, CACHE_LENGTH, DECODER_LENGTH, LENGTH, lengths_of
from torchstone.formula.derive.samples import (
    Bench,
    Built,
    forget_results,
    plan_of,
    sample_model_randomly,
)
from torchstone.formula.derive.sampling_plans import nth_prime, parameters_of, plan_for, scattered
from torchstone.formula.derive.validate import Options, entry_of_call, variant_of
from torchstone.models.example_inputs.architecture import inputs_for_architecture
from torchstone.models.inputs import InputOptions, Inputs
from torchstone.models.pretrained import Blueprint, build, quiet_and_offline
from torchstone.models.tiny import tiny_config
from torchstone.record.formula import BuiltBy, FormulaEntry, Setting

_FITTED, _HELD_OUT, _OF_ONE = 7, 2, 5  # generic points, and those with a batch of 1
_HIDDEN_LENGTHS = (8, 16, 31, 32, 33, 48, 64, 100, 127, 128, 129, 200, 256, 257, 512)
_HIDDEN_BATCHES = (1, 2, 3, 4, 8, 16, 32, 64)
_LONG = (4096, 2048, 1024, 512)
_LONGEST_LOOP = 33
_HIDDEN, _FEWEST_HIDDEN, _HIDDEN_S = 8, 5, 12.0  # hidden points, and the processor time after which fewer will do
_DECODED = "decoder_input_ids"
_RANDOM = 3  # random configurations at which formulas with named parameters are judged
_SCALING = ("factor", "ratio", "coefficient", "multiplier", "scale")  # floats that sizes are computed with
_SMALLEST, _SMALLEST_BATCH, _SHORTEST, _LEVELS = 11, 2, 5, 5
_FEWEST_BELOW = 3  # hidden points that must agree with a formula whose domain ends below others, or begins above
_STEPS = ("chunk", "window", "block", "stride", "rate", "factor", "segment", "reduc", "pool", "compress")
_LONGEST_STEP, _MOST_STEPS, _SHORT_STEP = 512, 2, 8
_LARGER = 8  # primes by which a length is raised to see whether it matters
_IGNORED = (
    "_name_or_path", "transformers_version", "architectures", "dtype", "torch_dtype", "model_type", "id2label",
    "label2id", "problem_type", "return_dict", "output_attentions", "output_hidden_states", "chunk_size_feed_forward",
    "task_specific_params", "name_or_path", "attn_implementation",
)  # fmt: skip


def settings_of(config: PreTrainedConfig) -> dict[str, Setting]:
    """Every value of a configuration that may change what runs, by its path; lists and tables as text."""
    found: dict[str, Setting] = {}
    _collect(config.to_dict(), "", found)
    return dict(sorted(found.items()))


def _collect(values: Mapping[str, object], prefix: str, found: dict[str, Setting]) -> None:
    for name, value in values.items():
        if name in _IGNORED or name.endswith("_token_id") or "initializer" in name or "dropout" in name:
            continue
        path = f"{prefix}{name}"
        if isinstance(value, Mapping):
            _collect({str(key): one for key, one in value.items()}, f"{path}.", found)
        elif value is None or isinstance(value, bool | int | float | str):
            found[path] = value
        else:
            found[path] = str(value)


@dataclass(slots=True, kw_only=True)
class ConfiguredModel:
    """A model whose configuration is fixed, to be built at any batch and length."""

    blueprint: Blueprint
    bench: Bench
    options: Options
    image_size: int | None = None
    sizes: tuple[str, ...] = (BATCH, LENGTH)
    loops: bool = False  # it runs more ops for longer inputs
    known: Mapping[str, int] = field(
        default_factory=dict
    )  # parameters of the configuration, for classes that name them
    problem: str = ""
    built: tuple[nn.Module, Blueprint] | None = None
    tried: list[Sample] = field(default_factory=list)  # samples at which the sizes were found: they are fitted as well

    def sample(self, sizes: Mapping[str, int], *, held_out: bool, guard: str = "") -> Sample | None:
        """One capture; None where the model does not take these sizes, with the problem kept."""
        with foreign_code() as ran:  # the code of a model may raise anything while it is built
            built = self._build(sizes)
            forget_results(built.model)
            trace, table = self.bench.measure_on(self.options, built.model, built.inputs)
        if isinstance(ran.error, TorchstoneError):
            self.problem = str(ran.error)
            return None
        if ran.error is not None:
            self.problem = f"{type(ran.error).__name__}: {' '.join(str(ran.error).split())[:200]}"
            return None
        if trace.failure is not None:
            self.problem = f"{trace.failure.error} (in {trace.failure.module or 'the root'})"
            return None
        known = {**self.known, **lengths_of(trace.recorded_calls[0])}
        return Sample(trace=trace, table=table, known=known, held_out=held_out, guard=guard)

    def _build(self, sizes: Mapping[str, int]) -> Built:
        with quiet_and_offline():
            model, blueprint = self._fresh_model()
            asked = InputOptions(
                batch_size=sizes.get(BATCH),
                seq_len=sizes.get(LENGTH),
                image_size=self.image_size,
                phase="decode" if self.options.decode else None,
                cache_len=sizes.get(CACHE_LENGTH),
            )
            inputs = inputs_for_architecture(model, blueprint, asked)
        _adapt(inputs, sizes, self.options)
        return Built(model=model, inputs=inputs, known={})

    def _fresh_model(self) -> tuple[nn.Module, Blueprint]:
        """A copy of the model, built once: a call may leave something behind in it."""
        if self.built is None:
            blueprint = replace(self.blueprint, config=deepcopy(self.blueprint.config))
            if self.options.attention:
                blueprint.config._attn_implementation = self.options.attention  # noqa: SLF001 - as transformers names it
            model = build(blueprint, device="meta", seed=0).to(getattr(torch, self.options.dtype))
            self.built = (model, blueprint)
        return deepcopy(self.built)

    @property
    def length(self) -> str:
        """The length that attention grows with."""
        return CACHE_LENGTH if self.options.decode else LENGTH

    def find_sizes(self) -> bool:
        """Choose the sizes that can be varied: all that change what the model costs; False where nothing runs."""
        wanted: tuple[str, ...] = (BATCH, CACHE_LENGTH) if self.options.decode else (BATCH, LENGTH, DECODER_LENGTH)
        base = _point(wanted, 0, loops=True)
        first = self.sample(base, held_out=False)
        if first is None:  # it may take its own default length only
            wanted, base = (BATCH,), {BATCH: base[BATCH]}
            first = self.sample(base, held_out=False)
            if first is None:
                return False
        if DECODER_LENGTH in wanted and DECODER_LENGTH not in first.known:
            wanted = (BATCH, LENGTH)
        self.tried = [first]
        self.sizes = (BATCH, *(name for name in wanted[1:] if self._matters(name, base, first)))
        if len(self.sizes) < len(wanted):  # they have a length that other samples do not have
            self.tried = []
        return True

    def _matters(self, name: str, base: Mapping[str, int], first: Sample) -> bool:
        """Whether a size changes what runs; notes whether it changes how many ops run."""
        other = self.sample({**base, name: nth_prime(_LARGER, smallest=base[name])}, held_out=False)
        if other is None:
            return False
        self.loops |= len(other.trace.ops) != len(first.trace.ops)
        self.tried.append(other)
        return other.trace.ops.signatures != first.trace.ops.signatures


def _adapt(inputs: Inputs, sizes: Mapping[str, int], options: Options) -> None:
    kwargs = inputs.kwargs
    has_decoder = isinstance(kwargs.get(_DECODED), torch.Tensor) and not options.decode
    if has_decoder and {BATCH, DECODER_LENGTH} <= sizes.keys():
        kwargs[_DECODED] = torch.zeros((sizes[BATCH], sizes[DECODER_LENGTH]), dtype=torch.int64)
    if not options.use_cache:
        kwargs["use_cache"] = False
    for name, value in kwargs.items():
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            kwargs[name] = value.to(getattr(torch, options.dtype))


def _point(sizes: Sequence[str], number: int, *, loops: bool) -> dict[str, int]:
    """Different primes for all sizes; short lengths where each step of a loop is a run of ops."""
    point = {}
    levels = _LEVELS if len(sizes) > 1 else _FITTED + _HELD_OUT  # each point needs a batch of its own then
    for place, name in enumerate(sizes):
        level = scattered(place, number, levels)
        smallest = _SMALLEST_BATCH if name == BATCH else _SHORTEST if loops else _SMALLEST
        point[name] = nth_prime(level if name == BATCH or loops else place * _LEVELS + level, smallest=smallest)
    return point


def derive_model(model: ConfiguredModel, given: Sequence[Observation] = ()) -> Library:
    """Derive every class of a model at its own configuration; `given` are calls that the formulas must give as well."""
    name = model.blueprint.config.model_type
    if not model.find_sizes():
        reason = f"it cannot be run at other sizes: {model.problem}"
        return Library(refused={name: Refused(class_name=name, reason=reason)})
    distinct = len(set(_point(model.sizes, 0, loops=True).values())) == len(model.sizes)
    samples = _measured([*(model.tried if distinct else ()), *_training(model)])
    if not samples:
        reason = f"it cannot be run at the sizes of a fit: {model.problem}"
        return Library(refused={name: Refused(class_name=name, reason=reason)})
    first = _attempt(model, given, samples)
    steps = () if first.covers(given) or LENGTH not in model.sizes else _candidate_steps(model, first)
    for step in steps:
        samples = _measured(_training_around(model, step))
        if samples:  # else the model takes no such length
            second = _attempt(model, given, samples, _boundaries_of_steps(step))
            if second.covers(given):
                return second.library
    shortest = None if first.covers(given) or model.loops else first.begins_to_be_wrong(model.length)
    if shortest is not None:
        samples = _measured(_training(model, shortest))
        beyond = _attempt(model, given, samples) if samples else first
        if beyond.covers(given):
            return beyond.library
    return first.library


def _measured(samples: Iterable[Sample | None]) -> list[Sample]:
    return [one for one in samples if one is not None]


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One derivation of a model, judged."""

    library: Library
    root: str
    verdict: Verdict  # of the formulas before any was refused or limited

    def covers(self, given: Sequence[Observation]) -> bool:
        """Whether the whole model has a formula that holds for the calls that must be given."""
        entry = self.library.entries.get(self.root)
        calls = [one for one in given if one.class_name == self.root]
        formulas = formulas_of(self.library.entries.values())
        if entry is None or not calls:
            return entry is not None
        verdict = judge(formulas, calls, entry.variant)
        return bool(verdict.checked) and not verdict.wrong_costs

    def begins_to_be_wrong(self, length: str) -> int | None:
        """The shortest length at which the formula of the whole model is wrong, where it is right below it only."""
        wrong = [one.sizes for one in self.verdict.contradictions if one.class_name == self.root]
        right = self.verdict.agreeing.get(self.root, [])
        if not wrong or any(length not in sizes for sizes in (*wrong, *right)):
            return None
        shortest = min(sizes[length] for sizes in wrong)
        return shortest if all(sizes[length] < shortest for sizes in right) else None


def _attempt(
    model: ConfiguredModel,
    given: Sequence[Observation],
    measured: Sequence[Sample],
    boundaries: Boundaries = NO_BOUNDARIES,
) -> _Attempt:
    library = Library()
    origin = replace(
        model_origin(model.options, {}),
        settings=settings_of(model.blueprint.config),
        built_by=BuiltBy(model=model.blueprint.name, sizes=model.sizes),
    )
    coordinates = Coordinates(extra=boundaries.coordinates)
    seen = library.add(measured, model.bench, coordinates, origin, flat=True)
    hidden = [one for sample in _hidden(model, seed_of(library.entries.values())) for one in observe(sample)]
    first = judge(formulas_of(library.entries.values()), [*hidden, *given], origin.variant)
    _limit_lengths(library, first)
    verdict = judge(formulas_of(library.entries.values()), [*hidden, *given], origin.variant)
    _finish(library, verdict, [*seen, *hidden, *given])
    return _Attempt(library, seen[0].class_name, first)


# --- Models that work in steps of a fixed number of positions: chunks, windows, strides ---


def _candidate_steps(model: ConfiguredModel, attempt: _Attempt) -> list[int]:
    """Numbers that a length may be divided by: by their names in the configuration, or where it becomes wrong."""
    named = [
        value
        for name, value in settings_of(model.blueprint.config).items()
        if type(value) is int and 1 < value <= _LONGEST_STEP and any(word in name for word in _STEPS)
    ]
    wrong = [one.sizes[LENGTH] for one in attempt.verdict.contradictions if LENGTH in one.sizes]
    right = [sizes[LENGTH] for many in attempt.verdict.agreeing.values() for sizes in many if LENGTH in sizes]
    below = max((one for one in right if one < min(wrong)), default=1) if wrong else 1
    between = [2**power for power in range(2, 10) if wrong and below <= 2**power < min(wrong)]
    return list(dict.fromkeys((*between, *named)))[:_MOST_STEPS]


def _boundaries_of_steps(step: int) -> Boundaries:
    length, by = Polynomial.unknown(LENGTH), Polynomial.constant(step)
    rest = Polynomial.unknown(Applied(MODULO, (length, by)))
    divides = Polynomial.unknown(Applied(CHOOSE, (rest, ONE, ONE, ZERO)))
    started = (length + Polynomial.constant(step - 1)).divided(by)
    return Boundaries(conditions=(divides,), quotients=(started, rest))


def _training_around(model: ConfiguredModel, step: int) -> Iterable[Sample | None]:
    """Lengths below, above and at multiples of a step, each with several batches and with a batch of 1."""
    start = 3 * step if step <= _SHORT_STEP else 0  # fewer than two strides leave a single position, a case of its own
    between = [step // 2 + 1, step + 3, 2 * step - 1, 3 * step + 2, step - 1, 4 * step + 5, 2 * step + 1]
    multiples = [step, 3 * step, 2 * step, 5 * step, 4 * step]
    batches = [nth_prime(number, smallest=_SMALLEST_BATCH) for number in (1, 0, 3, 2, 4, 1, 0)]
    others = {name: _point(model.sizes, 2, loops=True)[name] for name in model.sizes[2:]}
    for lengths in (between, multiples):
        for number, length in enumerate(start + one for one in lengths if one > 1):
            last = number == len(lengths) - 1
            yield model.sample({**others, LENGTH: length, BATCH: batches[number]}, held_out=last)
            if number < _OF_ONE:
                yield model.sample({**others, LENGTH: length, BATCH: 1}, held_out=number == _OF_ONE - 1)


def _limit_lengths(library: Library, verdict: Verdict) -> None:
    """End the domain of a formula where another code path begins, such as that of a full window; or begin it there."""
    for name in verdict.wrong_costs:
        wrong = [one.sizes for one in verdict.contradictions if one.class_name == name]
        right = verdict.agreeing.get(name, [])
        entry = library.entries[name]
        for size in (one for one in entry.all_parameters if all(one in sizes for sizes in (*wrong, *right))):
            rights, wrongs = ([sizes[size] for sizes in many] for many in (right, wrong))
            if len(right) < _FEWEST_BELOW:
                break
            limit = f"{size} <= {max(rights)}" if max(rights) < min(wrongs) else ""
            limit = f"{size} >= {min(rights)}" if min(rights) > max(wrongs) else limit
            if limit:
                library.entries[name] = msgspec.structs.replace(entry, domain=(*entry.domain, limit))
                break


def _training(model: ConfiguredModel, shortest: int | None = None) -> Iterable[Sample | None]:
    """Points to fit, with a batch of 1 among them; and a length of 1, unless the shortest length is given."""

    def point(number: int) -> dict[str, int]:
        sizes = _point(model.sizes, number, loops=model.loops)
        if shortest is not None:
            sizes[model.length] = nth_prime(scattered(1, number, _LEVELS), smallest=shortest)
        return sizes

    for number in range(_FITTED + _HELD_OUT):
        yield model.sample(point(number), held_out=number >= _FITTED)
    of_one = _OF_ONE + len(model.sizes) - 2 if len(model.sizes) > 1 else 1
    for number in range(of_one):
        checks = 0 < number == of_one - 1
        yield model.sample({**point(number), BATCH: 1}, held_out=checks)
    for name in model.sizes[1:] if shortest is None else ():
        yield model.sample({**point(1), name: 1}, held_out=True, guard=f"{name} > 1")


def _hidden(model: ConfiguredModel, seed: int) -> Iterable[Sample]:
    """Ordinary sizes, drawn after the formulas are fixed, and the longest that the model takes.

    A model that loops over its length is measured at short ones only: every step is an op call.
    """
    random = Random(seed)  # noqa: S311 - not for secrets
    lengths = [one for one in _HIDDEN_LENGTHS if one <= _LONGEST_LOOP or not model.loops]
    for length in () if model.loops else _LONG:
        sample = model.sample({**dict.fromkeys(model.sizes, length), BATCH: 2}, held_out=True)
        if sample is not None:
            yield sample
            break
    start = process_time()
    for number in range(_HIDDEN):
        if number >= _FEWEST_HIDDEN and process_time() - start > _HIDDEN_S:
            break
        point = {name: random.choice(lengths) for name in model.sizes}
        sample = model.sample({**point, BATCH: random.choice(_HIDDEN_BATCHES)}, held_out=True)
        if sample is not None:
            yield sample


def _finish(library: Library, verdict: Verdict, seen: Sequence[Observation]) -> None:
    """Refuse what a capture contradicts; the domain ends at the largest sizes that were measured."""
    for name, quantities in verdict.wrong_extras.items():
        remove_extras(library, name, quantities)
    library.remove(
        {name: f"hidden points contradict its formula: {one.text}" for name, one in verdict.wrong_costs.items()}
    )
    ranges = tested_ranges(seen)
    for name, entry in library.entries.items():
        tested = {
            size: largest
            for size, largest in ranges.get(name, {}).items()
            if not any(one.startswith(f"{size} <= ") for one in entry.domain)
        }
        library.entries[name] = documented(entry, verdict.checked.get(name, 0), tested)


def remeasure_model(formulas: Formulas, entry: FormulaEntry, model: ConfiguredModel) -> Remeasured:
    """Measure a model at hidden points and judge the stored formulas of one entry."""
    samples = list(_hidden(model, seed_of([entry])))
    seen = [one for sample in samples for one in observe(sample)]
    return Remeasured(verdict=judge(formulas, seen, entry.variant), measured=len(samples))


# --- Formulas with named parameters, judged at the real configuration ---


def complete_model_type(library: Library, blueprint: Blueprint, bench: Bench, options: Options) -> None:
    """Judge the formulas of a model type at a real configuration, and derive what is missing for that configuration.

    The formulas were fitted at small configurations. A size that no parameter names differs between the two, so a
    formula that is right at both does not depend on it. What has the same value in both becomes a recorded setting.
    """
    known = parameters_of(blueprint.config)
    model = ConfiguredModel(blueprint=blueprint, bench=bench, options=options, known=known)
    sample = model.sample({}, held_out=True)
    if sample is None:
        reason = f"it cannot be run at its default sizes: {model.problem}"
        library.remove({name: reason for name in library.entries if not name.startswith("torch.nn.")})
        return
    seen = [*observe(sample), *_random_calls(library, blueprint.config.model_type, bench, options)]
    variant = variant_of(options)
    formulas = formulas_of(library.entries.values())
    verdict = judge(formulas, seen, variant, entry_of_call)
    for name, quantities in verdict.wrong_extras.items():
        remove_extras(library, name, quantities)
    library.remove(
        {name: f"a capture contradicts its formula: {one.text}" for name, one in verdict.wrong_costs.items()}
    )
    baked = _baked_settings(blueprint.config)
    for name, entry in library.entries.items():
        if not name.startswith("torch.nn."):
            checked = verdict.checked.get(name, 0)
            library.entries[name] = msgspec.structs.replace(documented(entry, checked, {}), settings=baked)
    missing = {one.class_name for one in seen} - library.entries.keys()
    if any(not name.startswith("torch.nn.") for name in missing):
        pinned = derive_model(replace(model, known={}), observe(msgspec.structs.replace(sample, known={})))
        for name in missing & pinned.entries.keys():
            library.entries[name] = pinned.entries[name]
            library.refused.pop(name, None)


def _random_calls(library: Library, model_type: str, bench: Bench, options: Options) -> list[Observation]:
    """Calls at random configurations, drawn after the formulas are fixed; those that cannot be built are left out."""
    plan = plan_of(model_type, decode=options.decode)
    random = Random(seed_of(library.entries.values()))  # noqa: S311 - not for secrets
    calls: list[Observation] = []
    for point in plan.random_points(random, _RANDOM):
        with foreign_code() as ran:  # random sizes that the code of a model does not take say nothing
            samples = list(sample_model_randomly(model_type, plan, bench, options, [point]))
        if ran.error is not None:
            samples = []
        calls.extend(one for sample in samples for one in observe(sample))
    return calls


def _baked_settings(config: PreTrainedConfig) -> dict[str, Setting]:
    """The values that a small configuration shares with a real one and that no parameter names."""
    small = tiny_config(type(config))
    plan = plan_for(small)
    named = {*plan.attributes, *plan.names}
    own, other = settings_of(config), settings_of(small)
    return {
        name: value
        for name, value in own.items()
        if name in other and other[name] == value and name not in named and not _is_tuning(name, value)
    }


def _is_tuning(name: str, value: Setting) -> bool:
    """Whether a value changes numbers, but neither sizes nor ops."""
    return isinstance(value, float) and not any(word in name for word in _SCALING)
