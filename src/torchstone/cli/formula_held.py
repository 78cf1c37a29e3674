"""The memory that a whole model holds, derived when somebody asks for it."""

from typing import TYPE_CHECKING

from torchstone.cli.formula_bench import make_bench
from torchstone.cli.options import Session
from torchstone.cli.progress import step
from torchstone.errors import FormulaError

if TYPE_CHECKING:
    from torchstone.formula.derive.held import HeldSample, Pieces
    from torchstone.record.formula import FormulaEntry
    from torchstone.record.trace import Trace

_LIBRARY = "transformers."


def with_held_memory(entry: "FormulaEntry", session: Session) -> "FormulaEntry":
    """The entry of a whole transformers model with the formula of its activations; an error where there is none."""
    from msgspec.structs import replace

    from torchstone.formula.templates import name_of

    if not entry.module_path.startswith(_LIBRARY) or entry.memory_analysis is None:
        msg = f"what {name_of(entry)} holds at one time is not known, and it is no model of transformers"
        raise FormulaError(msg)
    with step(f"deriving what {name_of(entry)} holds", session):
        template = _template(entry)
    if template is None:
        msg = f"what {name_of(entry)} holds at one time could not be derived exactly"
        raise FormulaError(msg)
    return replace(entry, memory_analysis=replace(entry.memory_analysis, intermediates_template=template))


def _template(entry: "FormulaEntry") -> str | None:
    bench = make_bench("deriving what a model holds")
    from torchstone.formula.derive.built_models import plan_of
    from torchstone.formula.derive.held import held_template, model_type_behind
    from torchstone.formula.derive.observation import observe
    from torchstone.formula.derive.sampling import sample_model
    from torchstone.formula.validate_library import options_of

    model_type = model_type_behind(entry.module_path)
    plan = plan_of(model_type)
    samples: list[HeldSample] = []
    for sample in sample_model(model_type, plan, bench, options_of(entry.variant)):
        root = observe(sample)[0]
        if root.class_name != entry.module_path:
            msg = f"{entry.module_path} is a part of {root.class_name}; ask what the whole model holds"
            raise FormulaError(msg)
        if not sample.guard:
            point = plan.coordinates.point(root.reading.sizes)
            samples.append(_held(sample.trace, point, root.reading.dtype_bytes))
    return held_template(samples, plan.coordinates)


def _held(trace: "Trace", point: dict[str, int], dtype_bytes: int) -> "HeldSample":
    from torchstone.formula.derive.held import HeldSample, fullest_moments

    return HeldSample(point=point, dtype_bytes=dtype_bytes, moments=fullest_moments(trace, _pieces(trace)))


def _pieces(trace: "Trace") -> "Pieces":
    from torchstone.cost.liveness import lives_of
    from torchstone.cost.storages import find_storages
    from torchstone.formula.derive.held import Pieces
    from torchstone.record.cost import Category

    storages = find_storages(trace)
    lives = lives_of(trace, storages)
    counted = [category is not Category.WEIGHTS for category in storages.categories]
    return Pieces(sizes=storages.sizes, first=lives.first, last=lives.last, counted=counted)
