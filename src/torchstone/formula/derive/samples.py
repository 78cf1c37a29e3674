"""Settings -> samples: modules of torch.nn and transformers models, built without memory, measured and dropped."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import combinations, product
from random import Random
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from torchstone.formula.derive.observe import Sample, StorageLifetimes
from torchstone.formula.derive.op_forms import Price, RefusedError
from torchstone.formula.derive.parameter_binding import (
    BATCH,
    CACHE_LENGTH,
    DECODER_LENGTH,
    LENGTH,
)
from torchstone.formula.derive.sampling_plans import NO_WINDOW, WINDOW, Plan, Point, nth_prime, plan_for
from torchstone.formula.derive.validate import Options
from torchstone.models.example_inputs.architecture import inputs_for_architecture
from torchstone.models.inputs import InputOptions, Inputs
from torchstone.models.pretrained import Blueprint, build, model_class_for, quiet_and_offline
from torchstone.models.tiny import tiny_config
from torchstone.record.cost import CostTable
from torchstone.record.formula import Setting
from torchstone.record.trace import Trace

# --- Classes of torch.nn, each built alone ---


Values = Mapping[str, int]

_FITTED, _HELD_OUT = 6, 2
_LEVELS = 8
_SMALLEST = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a class is built and called at chosen sizes."""

    sizes: tuple[str, ...]
    build: Callable[..., nn.Module]  # with the values and one choice of each switch
    given: Callable[[Values], torch.Tensor]
    switches: Mapping[str, tuple[bool, ...]] = field(default_factory=dict)
    times: int = 1  # how often the only input is passed
    more: Callable[[Mapping[str, bool]], tuple[object, ...]] = lambda _: ()  # arguments after it, by the switches
    ones: tuple[str, ...] = ()  # sizes of which 1 takes another code path, also together
    settings: Mapping[str, Setting] = field(default_factory=dict)  # attributes and facts that all samples share

    def points(self) -> list[Point]:
        """Points at coprime sizes, and as many with each choice of `ones`."""
        return [
            Point({**self._values(number), **dict.fromkeys(few, 1)}, number >= _FITTED)
            for length in range(len(self.ones) + 1)
            for few in combinations(self.ones, length)
            for number in range(_FITTED + _HELD_OUT)
        ]

    def random_points(self, numbers: Random, count: int) -> list[Point]:
        """Points anywhere in the range, for a check that no fit has seen."""
        return [Point({name: self._random(name, numbers) for name in self.sizes}, held_out=True) for _ in range(count)]

    def _random(self, name: str, numbers: Random) -> int:
        few = _FEW.get(name)
        if name in self.ones and numbers.random() < _SHARE_OF_ONES:
            return 1
        return numbers.choice(few) if few else numbers.randint(1 if name in ("n", "batch") else 12, 60)

    def choices(self) -> list[dict[str, bool]]:
        """All combinations of switches."""
        return [dict(zip(self.switches, each, strict=True)) for each in product(*self.switches.values())]

    def make(self, values: Values, choice: Mapping[str, bool], dtype: str) -> tuple[nn.Module, tuple[object, ...]]:
        """The module on meta, and the arguments of a call."""
        with torch.device("meta"):
            module = self.build(values, **choice).to(getattr(torch, dtype)).eval()
        with torch.device("meta"):
            given = self.given(values)
        if given.is_floating_point():
            given = given.to(getattr(torch, dtype))
        return module, ((given,) * self.times + self.more(choice))

    def _values(self, number: int) -> dict[str, int]:
        values = {}
        for place, name in enumerate(self.sizes):
            level = (number + number // _LEVELS * (place + 1)) % _LEVELS
            few = _FEW.get(name)
            values[name] = (
                few[(number + place) % len(few)] if few else nth_prime(place * _LEVELS + level, smallest=_SMALLEST)
            )
        return values


_FEW = {
    "kernel": (3, 5, 2), "kernel_w": (2, 3, 5), "stride": (2, 1, 3), "stride_w": (1, 3, 2), "padding": (1, 0, 2),
    "padding_w": (0, 2, 1), "dilation": (1, 2, 1), "dilation_w": (2, 1, 1), "groups": (3, 2, 5),
    "repeats": (1, 2, 3), "heads": (7, 8, 11, 4, 13, 16, 5, 14),
}  # fmt: skip
_YES_AND_NO = (True, False)
_SHARE_OF_ONES = 0.25


def _floats(*names: str) -> Callable[[Values], torch.Tensor]:
    return lambda values: torch.zeros([values[name] for name in names])


def _channels(values: Values) -> tuple[int, int]:
    return values["groups"] * values["in_part"], values["groups"] * values["out_part"]


def _conv1d(values: Values, *, bias: bool) -> nn.Module:
    inside, outside = _channels(values)
    return nn.Conv1d(inside, outside, values["kernel"], values["stride"], values["padding"], values["dilation"],
                     values["groups"], bias=bias)  # fmt: skip


def _conv2d(values: Values, *, bias: bool) -> nn.Module:
    inside, outside = _channels(values)
    kernel, stride, padding, dilation = (
        (values[name], values[f"{name}_w"]) for name in ("kernel", "stride", "padding", "dilation")
    )
    return nn.Conv2d(inside, outside, kernel, stride, padding, dilation, values["groups"], bias)


def _picture(*sides: str) -> Callable[[Values], torch.Tensor]:
    return lambda values: torch.zeros((values["batch"], _channels(values)[0], *(values[side] for side in sides)))


def _sequence(width: str) -> Callable[[Values], torch.Tensor]:
    return lambda values: torch.zeros((values["batch"], values["length"], values["heads"] * values[width]))


def _attention(values: Values, *, batch_first: bool, bias: bool, need_weights: bool) -> nn.Module:
    del need_weights  # an argument of the call
    heads = values["heads"]
    return nn.MultiheadAttention(heads * values["head"], heads, bias=bias, batch_first=batch_first)


def _encoder_layer(values: Values, *, norm_first: bool, batch_first: bool, gelu: bool) -> nn.Module:
    heads = values["heads"]
    activation = "gelu" if gelu else "relu"
    return nn.TransformerEncoderLayer(
        heads * values["head"], heads, values["inner"], 0.1, activation, batch_first=batch_first, norm_first=norm_first
    )


def _plain(name: str, _values: Values) -> nn.Module:
    module: nn.Module = getattr(nn, name)()
    return module


_CONVOLVED = ("in_part", "out_part", "batch", "groups", "kernel", "stride", "padding", "dilation")
RECIPES: Mapping[str, Recipe] = {
    "Linear": Recipe(
        sizes=("n", "inside", "outside"),
        build=lambda values, bias: nn.Linear(values["inside"], values["outside"], bias=bias),
        given=_floats("n", "inside"),
        switches={"bias": _YES_AND_NO},
    ),
    "Embedding": Recipe(
        sizes=("n", "rows", "width", "repeats"),
        build=lambda values: nn.Embedding(values["rows"], values["width"]),
        given=lambda values: torch.zeros((values["n"],), dtype=torch.int64).expand(values["repeats"], values["n"]),
        settings={"max_norm": None},
    ),
    "LayerNorm": Recipe(
        sizes=("n", "width"),
        build=lambda values, elementwise_affine, bias: nn.LayerNorm(
            values["width"], elementwise_affine=elementwise_affine, bias=bias
        ),
        given=_floats("n", "width"),
        switches={"elementwise_affine": _YES_AND_NO, "bias": _YES_AND_NO},
    ),
    "RMSNorm": Recipe(
        sizes=("n", "width"),
        build=lambda values, elementwise_affine: nn.RMSNorm(values["width"], elementwise_affine=elementwise_affine),
        given=_floats("n", "width"),
        switches={"elementwise_affine": _YES_AND_NO},
    ),
    "Conv1d": Recipe(
        sizes=(*_CONVOLVED, "length"),
        build=_conv1d,
        given=_picture("length"),
        switches={"bias": _YES_AND_NO},
        settings={"padding_mode": "zeros"},
    ),
    "Conv2d": Recipe(
        sizes=(*_CONVOLVED, "height", "width", "kernel_w", "stride_w", "padding_w", "dilation_w"),
        build=_conv2d,
        given=_picture("height", "width"),
        switches={"bias": _YES_AND_NO},
        settings={"padding_mode": "zeros"},
    ),
    "BatchNorm2d": Recipe(
        sizes=("batch", "channels", "height", "width"),
        build=lambda values, affine, track_running_stats: nn.BatchNorm2d(
            values["channels"], affine=affine, track_running_stats=track_running_stats
        ),
        given=_floats("batch", "channels", "height", "width"),
        switches={"affine": _YES_AND_NO, "track_running_stats": _YES_AND_NO},
    ),
    "MultiheadAttention": Recipe(
        sizes=("batch", "length", "heads", "head"),
        build=_attention,
        given=_sequence("head"),
        switches={"need_weights": _YES_AND_NO, "batch_first": _YES_AND_NO, "bias": _YES_AND_NO},
        times=3,
        more=lambda choice: (None, choice["need_weights"]),
        ones=("batch", "length", "heads"),
        settings={
            "self_attention": True,
            "bias_k": None,
            "add_zero_attn": False,
            "has_attn_mask": False,
            "has_key_padding_mask": False,
        },
    ),
    "TransformerEncoderLayer": Recipe(
        sizes=("batch", "length", "heads", "head", "inner"),
        build=_encoder_layer,
        given=_sequence("head"),
        switches={"norm_first": _YES_AND_NO, "batch_first": _YES_AND_NO, "gelu": _YES_AND_NO},
        ones=("batch", "length"),
        settings={
            "bias": True,
            "relu_or_gelu": True,
            "has_src_mask": False,
            "has_src_key_padding_mask": False,
        },
    ),
    "GELU": Recipe(
        sizes=("n",),
        build=lambda _values, tanh: nn.GELU(approximate="tanh" if tanh else "none"),
        given=_floats("n"),
        switches={"tanh": _YES_AND_NO},
    ),
    **{
        name: Recipe(sizes=("n",), build=partial(_plain, name), given=_floats("n"))
        for name in ("ReLU", "SiLU", "Tanh", "Sigmoid", "Dropout", "Identity")
    },
}


# --- Models of transformers, built on the meta device ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A model at one point."""

    model: nn.Module
    inputs: Inputs
    known: dict[str, int]  # parameters of the configuration


def model_types() -> Mapping[str, object]:
    """Every model type that transformers knows."""
    return CONFIG_MAPPING


def plan_of(model_type: str, *, decode: bool = False) -> Plan:
    """Which sizes of a model type are varied."""
    with quiet_and_offline():
        return plan_for(tiny_config(CONFIG_MAPPING[model_type]), decode=decode)


def build_at(model_type: str, plan: Plan, values: Mapping[str, int], options: Options) -> Built:
    """The model with the sizes of a point."""
    with quiet_and_offline():
        blueprint = _blueprint(model_type, plan, values, options)
        model = build(blueprint, device="meta", seed=0).to(getattr(torch, options.dtype))
        asked = InputOptions(
            batch_size=values[BATCH],
            seq_len=values.get(LENGTH),
            image_size=plan.settings(values).get("image_size"),
            phase="decode" if options.decode else None,
            cache_len=values.get(CACHE_LENGTH),
        )
        inputs = inputs_for_architecture(model, blueprint, asked)
    _adapt(inputs.kwargs, values, options)
    return Built(model=model, inputs=inputs, known=plan.parameters(values))


def _blueprint(model_type: str, plan: Plan, values: Mapping[str, int], options: Options) -> Blueprint:
    config = tiny_config(CONFIG_MAPPING[model_type])
    for name, value in plan.settings(values).items():
        setattr(config, name, None if name == WINDOW and value >= NO_WINDOW else value)
    _follow_layers(config)
    if options.attention:
        config._attn_implementation = options.attention  # noqa: SLF001 - the name under which it is passed on
    return Blueprint(name=model_type, config=config, model_class=model_class_for(config))


def build_on_cpu(model_type: str, plan: Plan, values: Mapping[str, int], options: Options) -> nn.Module:
    """The model as a cpu would hold it; inside a fake mode it needs no memory."""
    with quiet_and_offline():
        blueprint = _blueprint(model_type, plan, values, options)
        blueprint.config.dtype = getattr(torch, options.dtype)
        return build(blueprint, device="cpu", seed=0)


def _follow_layers(config: PreTrainedConfig) -> None:
    """Lists with one entry for each layer get the length of the new number of layers."""
    layers = getattr(config, "num_hidden_layers", None)
    for name in ("layer_types", "mlp_layer_types"):
        listed = getattr(config, name, None)
        if isinstance(listed, list) and listed and isinstance(layers, int):
            setattr(config, name, [listed[min(index, len(listed) - 1)] for index in range(layers)])


def _adapt(kwargs: dict[str, object], values: Mapping[str, int], options: Options) -> None:
    """Give the decoder a length of its own, and pictures the type of the weights."""
    if "decoder_input_ids" in kwargs and not options.decode:
        kwargs["decoder_input_ids"] = torch.zeros((values[BATCH], values[DECODER_LENGTH]), dtype=torch.int64)
    if not options.use_cache:
        kwargs["use_cache"] = False
    for name, value in kwargs.items():
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            kwargs[name] = value.to(getattr(torch, options.dtype))


# --- Samples: each module is built, measured and dropped ---


def forget_results(model: nn.Module) -> None:
    """Clear the results that functions beside the classes of a model keep: a first call would cost more than a second.

    A model that is priced alone is called once, so every sample is measured like a first call.
    """
    for name in {type(module).__module__ for module in model.modules()}:
        if not name.startswith("torch."):
            for clear in _clearing(name):
                clear()


@cache
def _clearing(name: str) -> list[Callable[[], None]]:
    """The functions that clear what a Python module has cached, also where decorators stand around the cache."""
    module = sys.modules.get(name)
    found = [] if module is None else list(vars(module).values())
    inside = [one for kind in found if isinstance(kind, type) for one in vars(kind).values()]
    own = [one for one in (*found, *inside) if getattr(one, "__module__", None) == name and not isinstance(one, type)]
    return [one.cache_clear for each in own for one in _layers(each) if hasattr(one, "cache_clear")]


def _layers(function: object, depth: int = 0) -> Iterator[Any]:
    """A function and the functions that its decorators hold."""
    yield function
    held = [getattr(function, "__func__", None), getattr(function, "__wrapped__", None)]
    for cell in getattr(function, "__closure__", None) or ():
        try:
            held.append(cell.cell_contents)
        except ValueError:  # a variable that has no value yet
            continue
    for one in held:
        if callable(one) and not isinstance(one, type) and depth < _DECORATORS:
            yield from _layers(one, depth + 1)


Measure = Callable[[nn.Module, object], tuple[Trace, CostTable]]  # module and inputs -> what ran, and what it cost
Make = Callable[[Mapping[str, int]], tuple[nn.Module, object]]  # sizes -> module and inputs
DTYPES = ("float32", "bfloat16")
_DECORATORS = 4  # around one function
_NEXT_DTYPE = 31  # points for the next element type begin there


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """The functions that a derivation measures with: capture, prices and lifetimes, which are other stages."""

    measure: Measure
    measure_training: Measure  # a forward and a backward pass
    price: Price
    lifetimes: Callable[[Trace], StorageLifetimes]

    def measure_on(self, path: Options, module: nn.Module, inputs: object) -> tuple[Trace, CostTable]:
        """Run a module on a code path."""
        return self.measure_training(module, inputs) if path.backward else self.measure(module, inputs)


def sample_module(name: str, bench: Bench, *, random: Random | None = None, count: int = 1) -> Iterator[Sample]:
    """A class of torch.nn at all its settings, or at random ones."""
    recipe = RECIPES[name]
    for dtype in DTYPES:
        for choice in recipe.choices():
            for point in recipe.points() if random is None else recipe.random_points(random, count):
                trace, table = bench.measure(*recipe.make(point.values, choice, dtype))
                _refuse_failure(trace)
                yield Sample(trace=trace, table=table, lifetimes=bench.lifetimes(trace), held_out=point.held_out)


def sample_model(model_type: str, plan: Plan, bench: Bench, options: Options) -> Iterator[Sample]:
    """A model type at all points of its plan, in each element type."""
    for number, dtype in enumerate(DTYPES):
        points = plan.points(number * _NEXT_DTYPE)
        yield from _sample_at(model_type, plan, bench, replace(options, dtype=dtype), points)


def sample_model_randomly(
    model_type: str, plan: Plan, bench: Bench, options: Options, points: Sequence[Point]
) -> Iterator[Sample]:
    """A model type at given points, the element types in turn."""
    for number, point in enumerate(points):
        path = replace(options, dtype=DTYPES[number % len(DTYPES)])
        yield from _sample_at(model_type, plan, bench, path, [point])


def _sample_at(
    model_type: str, plan: Plan, bench: Bench, options: Options, points: Sequence[Point]
) -> Iterator[Sample]:
    for point in points:
        built = build_at(model_type, plan, point.values, options)
        forget_results(built.model)
        trace, table = bench.measure_on(options, built.model, built.inputs)
        if trace.failure is not None and point.guard:
            continue  # a size that the model does not take has no cost to compare with
        _refuse_failure(trace)
        yield Sample(
            trace=trace,
            table=table,
            lifetimes=bench.lifetimes(trace),
            known=built.known,
            held_out=point.held_out,
            guard=point.guard,
        )


def _refuse_failure(trace: Trace) -> None:
    if trace.failure is not None:
        failure = trace.failure
        msg = f"{trace.provenance.model} cannot be run: {failure.error} (in {failure.module or 'the root'})"
        raise RefusedError(msg)
