"""The formulas of whole libraries: torch.nn class by class, transformers model by model, and modules of a recipe."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import msgspec

from torchstone.errors import InputError
from torchstone.foreign import foreign_code
from torchstone.formula.database.files import short_name
from torchstone.formula.derive.code_paths import Derived, Refused
from torchstone.formula.derive.coordinates import Coordinates
from torchstone.formula.derive.database_entries import Origin, inner_calls, make_entries
from torchstone.formula.derive.derive_class import derive, reproduces
from torchstone.formula.derive.observe import Observation, Sample, by_class, children_first, observe
from torchstone.formula.derive.op_forms import RefusedError
from torchstone.formula.derive.samples import (
    RECIPES,
    Bench,
    plan_of,
    sample_model,
    sample_module,
)
from torchstone.formula.derive.validate import Options, variant_of
from torchstone.record.formula import FormulaEntry

Announce = Callable[[str], None]  # receives the name of each class or model type before it is run

_TORCH = "torch.nn."
ASSUMPTIONS = ("evaluation mode, no gradients", "sizes that the domain does not name are at least 2")
_MODEL_ASSUMPTIONS = (
    *ASSUMPTIONS,
    "no padding: the attention mask is all ones",
    "other settings of the configuration as by default",
)
_FORWARD_AND_BACKWARD = "evaluation mode, a forward pass with gradients and a backward pass from all outputs"
_EAGER = "attn_implementation='eager'"
_FUSED = "default attention (sdpa where there is one)"
_CACHE = "use_cache=True where there is a cache"
_NO_CACHE = "use_cache=False"
_FILLED_CACHE = "one new token for each sequence, after cache_len tokens in a cache that grows (DynamicCache)"
_ALONE_ONLY = "its settings are not all known inside another module, so its ops count as those of the module around it"
_GRADIENTS = (
    "what its backward pass costs depends on which of its inputs need gradients, "
    "so its ops count as those of the module around it"
)


@dataclass(slots=True, kw_only=True)
class Library:
    """The formulas derived so far; later derivations build on them."""

    base: "Library | None" = None  # the default code path: classes that cost the same there need no entry of their own
    derived: dict[str, Derived] = field(default_factory=dict)
    entries: dict[str, FormulaEntry] = field(default_factory=dict)
    refused: dict[str, Refused] = field(default_factory=dict)

    def add_torch(self, bench: Bench, announce: Announce, names: Iterable[str] | None = None) -> None:
        """The classes of torch.nn, or some of them; each is seen alone and inside the others."""
        samples: list[Sample] = []
        for name in RECIPES if names is None else names:
            announce(f"torch.nn.{name}")
            samples.extend(sample_module(name, bench))
        self.add(samples, bench, Coordinates(), Origin(assumptions=ASSUMPTIONS))
        for path, entry in self.entries.items():
            recipe = RECIPES.get(short_name(path)) if path.startswith(_TORCH) else None
            if recipe is not None:
                self.entries[path] = msgspec.structs.replace(entry, settings=dict(recipe.settings))

    def add_model(self, model_type: str, bench: Bench, announce: Announce, options: Options | None = None) -> None:
        """All classes of a transformers model type."""
        path = options or Options()
        plan = plan_of(model_type, decode=path.decode)
        announce(model_type + (f" [{variant_of(path)}]" if variant_of(path) else ""))
        with foreign_code() as ran:  # configurations and models raise anything at sizes they do not take
            samples = list(sample_model(model_type, plan, bench, path))
        if isinstance(ran.error, RefusedError):
            self.refused[model_type] = Refused(class_name=model_type, reason=str(ran.error))
            return
        if ran.error is not None:
            reason_text = f"{type(ran.error).__name__}: {' '.join(str(ran.error).split())[:200]}"
            self.refused[model_type] = Refused(class_name=model_type, reason=reason_text)
            return
        if path.backward:
            never = dict.fromkeys(_torch_classes(samples), _GRADIENTS)
        else:
            self.add_parts(samples, bench, announce)
            never = {}
        self.add(samples, bench, plan.coordinates, model_origin(path, plan.defaults), never)

    def add_parts(self, samples: Iterable[Sample], bench: Bench, announce: Announce) -> None:
        """The classes of torch.nn inside the samples, each from runs of its own."""
        new = sorted(_torch_classes(samples) - self.derived.keys())
        names = [short_name(name) for name in new if short_name(name) in RECIPES]
        if names:
            self.add_torch(bench, announce, names)

    def add(
        self,
        samples: Iterable[Sample],
        bench: Bench,
        coordinates: Coordinates,
        origin: Origin,
        never: Mapping[str, str] | None = None,
        *,
        flat: bool = False,
    ) -> list[Observation]:
        """Derive the classes of samples, but not those in `never`; returns what was observed.

        A flat formula calls no others: the ops of all inner modules count as those of the class.
        """
        seen: list[Observation] = []
        sources, versions = {}, {}
        for sample in samples:
            seen.extend(observe(sample))
            sources.update(sample.trace.sources)
            versions.update(sample.trace.provenance.versions)
        self._share(seen)
        refusals = {**_only_alone(seen, flat=flat), **(never or {})}
        found, refused = derive(seen, bench.price, coordinates, self.derived, refusals, flat=flat)
        date = datetime.now(tz=UTC).date().isoformat()
        origin = replace(origin, sources=sources, versions=versions, date=date)
        self.entries.update(make_entries(found, origin, self.entries))
        self.derived.update(found)
        self.refused.update(refused)
        return seen

    def remove(self, wrong: Mapping[str, str]) -> None:
        """Refuse classes that a trace contradicts, and every class whose formula calls one of them."""
        reasons = dict(wrong)
        callers = {name: set(entry.flop_analysis.module_depends) for name, entry in self.entries.items()}
        while True:
            more = {name for name, called in callers.items() if name not in reasons and called & reasons.keys()}
            if not more:
                break
            for name in more:
                inner = next(iter(callers[name] & reasons.keys()))
                reasons[name] = f"it calls {short_name(inner)}, whose formula is wrong: {reasons[inner]}"
        for name, reason in reasons.items():
            self.entries.pop(name, None)
            self.derived.pop(name, None)
            self.refused[name] = Refused(class_name=name, reason=reason)

    def _share(self, seen: Sequence[Observation]) -> None:
        """Share the formulas of the default code path that give every call seen on this one, and all inside them."""
        if self.base is None:
            return
        base = self.base.derived
        grouped = by_class(seen)
        for name in children_first(grouped):
            one = base.get(name)
            if one is None or name in self.derived:
                continue
            inside = {call.class_name for call in inner_calls(one.body)}
            same_inside = all(base[each] == self.derived.get(each) for each in inside)
            if same_inside and all(reproduces(one, each, base) for each in grouped[name]):
                self.derived[name], self.entries[name] = one, self.base.entries[name]


def _torch_classes(samples: Iterable[Sample]) -> set[str]:
    inside = {module.class_name for sample in samples for module in sample.trace.modules}
    return {name for name in inside if name.startswith(_TORCH)}


def _only_alone(seen: Iterable[Observation], *, flat: bool) -> dict[str, str]:
    """Classes of torch.nn that torchstone cannot build at all their settings: one seen in a model has one of these."""
    roots = {one.class_name for one in seen if not one.path}
    inside = {one.class_name for one in seen} - roots
    torch_only = (name for name in inside if name.startswith(_TORCH))
    return {name: _ALONE_ONLY for name in torch_only if flat or short_name(name) not in RECIPES}


def model_origin(path: Options, defaults: Mapping[str, int]) -> Origin:
    """What the entries of a model on one code path share."""
    cache = _FILLED_CACHE if path.decode else _CACHE if path.use_cache else _NO_CACHE
    words = (_EAGER if path.attention == "eager" else _FUSED, cache)
    passes = (_FORWARD_AND_BACKWARD, *_MODEL_ASSUMPTIONS[1:]) if path.backward else _MODEL_ASSUMPTIONS
    return Origin(variant=variant_of(path), assumptions=(*passes, *words), defaults=defaults)


def model_type_of(class_path: str, model_types: Mapping[str, object]) -> str:
    """The model type that a transformers class belongs to, by the folder it stands in."""
    parts = class_path.split(".")
    folder = parts[2] if parts[:2] == ["transformers", "models"] and len(parts) > 3 else ""  # noqa: PLR2004 - transformers.models.<folder>.<file>
    for name in (folder, folder.replace("_", "-")):
        if name in model_types:
            return name
    msg = f"{class_path} is neither a class of torch.nn that can be built alone nor in transformers.models"
    raise InputError(msg)
