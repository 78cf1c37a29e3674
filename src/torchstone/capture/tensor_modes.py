"""The worlds a model can run in: real tensors, or stand-ins that have shapes but no memory.

In a world of stand-ins, small tensors that do not come from weights (token ids, masks, positions) stay real. Code that
looks at their values takes the branch it would take on a device, and only what depends on a weight is unknown.
"""

from collections.abc import Callable, Mapping
from functools import partial, wraps
from math import prod
from typing import Any, TypeVar
from weakref import ref

import torch
from torch import Tensor, UntypedStorage, nn
from torch._C._functorch import is_functorch_wrapped_tensor, peek_interpreter_stack
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes

from torchstone.capture.assumed_values import NO_VALUES, AssumedValues
from torchstone.capture.describe import copied
from torchstone.capture.kernel_results import as_kernel, grouped_result
from torchstone.capture.ops import MASKS, map_tensors, schema_of, tensors_in
from torchstone.capture.shape_rules import MADE_SMALL, Looks, Recipe, ShapeRules, changes_only_values, is_ordinary
from torchstone.capture.tables import storage_pointer

_CPU, _META = torch.device("cpu"), torch.device("meta")
_STANDS_FOR = (_META, _CPU)  # devices of weights that a fake tensor on the cpu stands for
_MOST_KNOWN = 1 << 22  # elements; a mask over two thousand tokens
_MOST_GIVEN = 1 << 26  # whole numbers and truth values among the inputs: a mask over 131,072 tokens of 512 sequences
_MOST_ASSUMED = 1 << 26  # where the run cannot go on without values: a batch of images
_RUN_WITHOUT_MEASURING = 1 << 12  # inputs this small cannot make a large result
_INDEXED = (torch.ops.aten.index, torch.ops.aten.index_put, torch.ops.aten.index_put_, torch.ops.aten._unsafe_index)
_EMPTY = torch.ops.aten.empty.memory_format
_JOINING = frozenset({torch.ops.aten.cat.default, torch.ops.aten.stack.default})
_NO_LARGER = frozenset({
    torch.ops.aten.slice.Tensor, torch.ops.aten.select.int, torch.ops.aten.view.default, torch.ops.aten.t.default,
    torch.ops.aten._unsafe_view.default, torch.ops.aten.permute.default, torch.ops.aten.transpose.int,
    torch.ops.aten.unsqueeze.default, torch.ops.aten.squeeze.dim, torch.ops.aten.squeeze.default,
    torch.ops.aten.cumsum.default, torch.ops.aten._softmax.default, torch.ops.aten.alias.default,
    torch.ops.aten.detach.default, torch.ops.aten.flip.default, torch.ops.aten.roll.default,
})  # fmt: skip
_FILLED = frozenset({torch.ops.aten.zeros.default, torch.ops.aten.ones.default, torch.ops.aten.full.default, _EMPTY})
_COUNTED = frozenset({torch.ops.aten.arange.default, torch.ops.aten.arange.start, torch.ops.aten.arange.start_step})
_GROUPED_MM = torch.ops.aten._grouped_mm.default
_NEW_STRIDED = torch.ops.aten.new_empty_strided.default
_CONVOLUTION = torch.ops.aten.convolution.default
_VIEW = torch.ops.aten.view.default
_COPY = torch.ops.aten._to_copy.default
_DECOMPOSED_ATTENTION = torch.ops.aten._safe_softmax.default

_PLAIN_TENSORS = (Tensor, nn.Parameter, nn.Buffer, FakeTensor)
_no_dispatch = torch._C._DisableTorchDispatch
W = TypeVar("W", bound="World")


def outside_transforms(make: Callable[[W, Tensor], Tensor]) -> Callable[[W, Tensor], Tensor]:
    """Make a tensor for a whole run outside the transforms of torch.func that are open when it is first asked for.

    What is made inside one belongs to it: such a stand-in for a parameter has no gradient.
    """

    @wraps(make)
    def made(world: W, tensor: Tensor) -> Tensor:
        if peek_interpreter_stack() is None:
            return make(world, tensor)
        with temporarily_clear_interpreter_stack():
            return make(world, tensor)

    return made


class World:
    """Where a model runs; `differences` is what it does there that it would not do in a real run."""

    stand_in = False
    reads_are_repeatable = False
    gave_new = False
    changed_values = False

    def __init__(self) -> None:
        self.differences: dict[str, None] = {}  # in order, each once
        self.results: dict[int, Recipe] = {}  # of calls, by their number

    def assumptions(self) -> tuple[str, ...]:
        """The values that were assumed, because the model reads back what has none."""
        return ()

    def met_unnumbered(self, tensor: Tensor) -> None:
        """An op is given a tensor that no recorded op made; constants may come from anywhere."""

    def ran_as(self, tensor: Tensor) -> Tensor:
        """What an op that was given this tensor was run on: a view of that is a view of the tensor."""
        return tensor

    def forget(self, tensor: Tensor) -> Tensor | None:
        """Let go of what stands for a parameter or buffer, and give it: the tensor itself, or None if nothing does."""
        return tensor


class RealWorld(World):
    """Real tensors: what runs is what is recorded."""

    def execute(
        self, op: OpOverload, args: tuple[object, ...], kwargs: Mapping[str, object], call: int | None = None
    ) -> object:
        """Run the op."""
        del call
        return op(*args, **kwargs)

    def is_stand_in(self, tensor: Tensor) -> bool:  # noqa: ARG002 - there are none here
        """No tensor is a stand-in."""
        return False

    def enter(self, tensor: Tensor) -> Tensor:
        """Inputs are copied: the model may write to them."""
        return copied(tensor)

    def exchanges(self, tensor: Tensor) -> bool:  # noqa: ARG002 - it exchanges none
        """Whether something else runs in the place of a parameter or buffer, which nothing changes then."""
        return False

    def hold(self, tensor: Tensor) -> Tensor:
        """A parameter or buffer as the model holds it while it runs: as it is."""
        return tensor


class MovedWorld(RealWorld):
    """Real tensors on another device; the model is back where it was afterwards."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._device = device
        self._moved: dict[int, tuple[Tensor, Tensor]] = {}

    def enter(self, tensor: Tensor) -> Tensor:
        """Inputs are copied over."""
        return tensor.detach().to(self._device, copy=True).requires_grad_(tensor.requires_grad)

    @outside_transforms
    def hold(self, tensor: Tensor) -> Tensor:
        """A copy on the device, always the same one."""
        if id(tensor) not in self._moved:
            with _disable_current_modes():
                moved = tensor.detach().to(self._device, copy=True)
                self._moved[id(tensor)] = (tensor, _as_parameter_like(tensor, moved))
        return self._moved[id(tensor)][1]

    def forget(self, tensor: Tensor) -> Tensor | None:
        """Let go of the copy."""
        return self._moved.pop(id(tensor), (None, None))[1]


def _draws(op: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, object]) -> bool:
    """Whether an op may draw random numbers: attention is tagged so for its dropout, which is mostly 0."""
    if torch.Tag.nondeterministic_seeded not in op.tags:
        return False
    schema = schema_of(op)
    given = schema.defaults | dict(zip(schema.argument_names, args, strict=False)) | dict(kwargs)
    return given.get("dropout_p") != 0.0


class StandInWorld(World):
    """What the fake and the meta world share."""

    stand_in = True

    def __init__(self, assumed: AssumedValues | None = None) -> None:
        super().__init__()
        self.assumed = assumed
        self.reads_are_repeatable = assumed is not None  # what is assumed follows from shapes; what is drawn does not
        self._most_known = _MOST_KNOWN if assumed is None else _MOST_ASSUMED
        self._substitutes: dict[int, tuple[ref[Tensor], Tensor]] = {}  # by id, while the tensor lives: its stand-in
        self._unknown: dict[int, ref[UntypedStorage]] = {}  # real memory that was written with unknown values

    def assumptions(self) -> tuple[str, ...]:
        """What was assumed, with its counts."""
        return self.assumed.statements() if self.assumed is not None else ()

    def close(self) -> None:
        """Let go of all stand-ins."""
        self._substitutes.clear()

    def is_stand_in(self, tensor: Tensor) -> bool:
        """Whether the tensor has no values."""
        raise NotImplementedError

    def make(self, tensor: Tensor) -> Tensor:
        """A new stand-in that looks like the given tensor."""
        raise NotImplementedError

    def run_unknown(self, op: OpOverload, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Any:
        """Run an op on stand-ins, or measure one that has no tensors among its arguments."""
        raise NotImplementedError

    def localise(self, kwargs: Mapping[str, object]) -> Mapping[str, object]:
        """Arguments with which an op makes real tensors."""
        return kwargs

    def elements_by_rule(self, op: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, object]) -> int | None:
        """How many elements the result of an op has; None where no rule says it, or the world has none."""
        del op, args, kwargs
        return None

    def keeps_values(self, tensor: Tensor) -> bool:
        """Whether a tensor that comes from no weight keeps its values."""
        return tensor.numel() <= self._most_known

    @outside_transforms
    def substitute(self, tensor: Tensor) -> Tensor:
        """The stand-in for a tensor of another world; always the same one."""
        known = self._substitutes.get(id(tensor))
        if known is None:
            known = self._substitutes[id(tensor)] = (self._forgetting(tensor), self.make_unseen(tensor))
        return known[1]

    def make_unseen(self, tensor: Tensor) -> Tensor:
        """Make a stand-in while a model runs: that is none of its ops."""
        if type(tensor) in _PLAIN_TENSORS and _is_plain(tensor):
            with _no_dispatch():  # quicker than taking every mode off; makes a plain tensor, and no more
                return self.make(tensor)
        with _disable_current_modes():
            return self.make(tensor)

    def looks_of(self, tensor: Tensor) -> Looks | None:  # noqa: ARG002 - a world may have none
        """All that a stand-in is, if it is no more than its looks."""
        return None

    def make_again(self, looks: Looks) -> Tensor:
        """A new stand-in with these looks, while a model runs."""
        raise NotImplementedError

    def ran_as(self, tensor: Tensor) -> Tensor:
        """The stand-in of a tensor that has one."""
        return self._substitutes.get(id(tensor), (None, tensor))[1]

    def forget(self, tensor: Tensor) -> Tensor | None:
        """Let go of what stands for a parameter or buffer, and give it: the tensor itself, or None if nothing does."""
        if not self.exchanges(tensor):
            return tensor
        return self._substitutes.pop(id(tensor), (None, None))[1]

    def _forgetting(self, tensor: Tensor) -> ref[Tensor]:
        """A reference that does not keep the tensor alive, and takes its stand-in along when it dies."""
        number = id(tensor)
        return ref(tensor, lambda _: self._substitutes.pop(number, None))

    def enter(self, tensor: Tensor) -> Tensor:
        """A model input as this world takes it: token ids, masks and positions keep their values, and so do small ones.

        Models branch on a mask's values. A batch beyond the usual limit must not take another branch than a small one,
        so what follows from the mask may become as large as the mask is.
        """
        if not (tensor.is_floating_point() or tensor.is_complex()) and tensor.numel() <= _MOST_GIVEN:
            self._most_known = max(self._most_known, tensor.numel())
        if tensor.is_meta or self.is_stand_in(tensor) or not self.keeps_values(tensor):
            return self.make_unseen(tensor)  # which nothing but the model's arguments holds
        return copied(tensor)

    def execute(
        self, op: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, object], call: int | None = None
    ) -> object:
        """Run an op: for real where all it reads is known, on stand-ins otherwise."""
        del call
        if self.reads_are_repeatable and _draws(op, args, kwargs):
            self.reads_are_repeatable = False
        tensors = list(tensors_in((*args, *kwargs.values())))
        if any(map(self.is_unknown, tensors)):
            return self._execute_unknown(op, args, kwargs, tensors)
        kwargs = self.localise(kwargs)
        large = not tensors or any(tensor.numel() > _RUN_WITHOUT_MEASURING for tensor in tensors)
        if large and not schema_of(op).reads_values:  # the size of what is read from values has no other measure
            elements = _elements_made(op, args, tensors)
            if elements is None:
                elements = self.elements_by_rule(op, args, kwargs)
            if elements is None or elements > self._most_known:
                measured = self.run_unknown(op, args, kwargs)
                if not all(map(self.keeps_values, tensors_in((measured,)))):
                    return measured
        result = op(*args, **kwargs)
        if schema_of(op).written:
            return result
        return map_tensors(lambda tensor: tensor if self.keeps_values(tensor) else self.make(tensor), result)

    def is_unknown(self, tensor: Tensor) -> bool:
        """Whether a tensor has no values, or real memory that was written with unknown ones."""
        if self.is_stand_in(tensor) or tensor.is_meta:
            return True
        return bool(self._unknown) and storage_pointer(tensor) in self._unknown

    def _execute_unknown(
        self, op: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, object], tensors: list[Tensor]
    ) -> object:
        schema = schema_of(op)
        if not all(map(self.is_stand_in, tensors)):
            given, (args, kwargs) = (args, kwargs), self._all_unknown(op, args, kwargs)
            if schema.renews_its_input and not schema.resizes and len(tensors) == 1:  # squeeze_, of real memory, too
                self.run_unknown(op, args, kwargs)
                return op(*given[0], **given[1])
            if schema.written:
                return self._given_back(self.run_unknown(op, args, kwargs), tensors, resizes=schema.resizes)
        if op is _GROUPED_MM and args[0].dtype is not torch.bfloat16:
            return self._run_grouped_mm(op, args, kwargs)
        if self.assumed is not None and not schema.written:
            return self._run_assuming(op, args, kwargs, self.assumed)
        return self.run_unknown(op, args, kwargs)

    def _all_unknown(
        self, op: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, object]
    ) -> tuple[tuple[Any, ...], Mapping[str, object]]:
        """The arguments with stand-ins for tensors that have values; one that the op writes has none from now on."""
        written = schema_of(op).written
        for name, value in (*zip(schema_of(op).argument_names, args, strict=False), *kwargs.items()) if written else ():
            if name in written:
                self._forget_values(value)
        if op.overloadpacket in _INDEXED:
            args = (args[0], [place for index in args[1] for place in self._places(index)], *args[2:])
        return map_tensors(self._as_unknown, args), map_tensors(self._as_unknown, dict(kwargs))

    def _run_assuming(
        self, op: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, object], assumed: AssumedValues
    ) -> object:
        """Run an op on stand-ins, and give values to what a model reads back."""
        try:
            made = self.run_unknown(op, args, kwargs)
        except NO_VALUES:
            read = assumed.read_back(op, args, kwargs)
            if read is None:
                raise
            return map_tensors(lambda tensor: self.make(tensor) if tensor.is_floating_point() else tensor, read)
        if all(map(self.keeps_values, tensors_in((*args, made)))):
            return assumed.fill(op, args, kwargs, made)
        return made

    def _run_grouped_mm(self, op: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, object]) -> object:
        """Torch's shape rule for grouped matmul refuses element types that its kernel takes."""
        as_asked = args[0].dtype
        if as_asked.itemsize == torch.bfloat16.itemsize:
            narrow = [self.make(tensor).to(torch.bfloat16) for tensor in args[:2]]
            return self.run_unknown(op, (*narrow, *args[2:]), kwargs).to(as_asked)
        ends = args[2] if len(args) > 2 else kwargs.get("offs")  # noqa: PLR2004 - the third argument
        shape, strides = grouped_result(args[0], args[1], ends)
        return self.run_unknown(_NEW_STRIDED, (args[0], shape, strides), {})

    def _places(self, index: Tensor | None) -> tuple[Tensor | None, ...]:
        """An index as places: how many a known mask picks is known, too."""
        if index is None or index.dtype not in MASKS or self.is_unknown(index):
            return (index,)
        return index.nonzero(as_tuple=True)

    def _forget_values(self, value: object) -> None:
        """Real memory that takes unknown values is unknown from now on, and so is every view of it."""
        for tensor in tensors_in((value,)):
            pointer = storage_pointer(tensor)
            if not self.is_stand_in(tensor) and pointer is not None:
                self._unknown[pointer] = ref(tensor.untyped_storage(), partial(self._unknown.pop, pointer))

    def _given_back(self, result: object, tensors: list[Tensor], *, resizes: bool) -> object:
        """What an op in place gives is what it was given, in the size to which it brought what stood for that."""
        for tensor in tensors if resizes else ():
            made = self.ran_as(tensor)
            if made is not tensor and made.shape != tensor.shape:
                tensor.resize_(made.shape)
        given = {id(self.ran_as(tensor)): tensor for tensor in tensors}
        return map_tensors(lambda made: given.get(id(made), made), result)

    def _as_unknown(self, tensor: Tensor) -> Tensor:
        return tensor if self.is_stand_in(tensor) else self.substitute(tensor)

    def hold(self, tensor: Tensor) -> Tensor:
        """A stand-in, but for small integer buffers, which keep their values."""
        return self.substitute(tensor) if self.exchanges(tensor) else tensor

    def hold_plain(self, tensor: Tensor) -> Tensor:
        """The stand-in for a plain parameter or buffer that is exchanged and outlives the run."""
        return self.substitute(tensor)

    def exchanges(self, tensor: Tensor) -> bool:
        """Whether a stand-in runs in the place of a parameter or buffer; what torch.func wraps is what it wraps."""
        return not (self.is_stand_in(tensor) or is_functorch_wrapped_tensor(tensor) or self.stays_real(tensor))

    def stays_real(self, tensor: Tensor) -> bool:
        """Whether a buffer keeps its values."""
        counts = not (tensor.is_meta or tensor.is_floating_point() or tensor.is_complex())
        return counts and self.keeps_values(tensor)


class FakeWorld(StandInWorld):
    """Fake tensors: they say they are on the cpu, so torch takes the paths it takes there."""

    def __init__(self, assumed: AssumedValues | None = None) -> None:
        super().__init__(assumed)
        self._mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._mode.cache_enabled = False  # recipes are quicker, and what has none is as quick to compute as to look up
        self._rules = ShapeRules(self._mode)

    def is_stand_in(self, tensor: Tensor) -> bool:
        """Whether the tensor is fake."""
        return isinstance(tensor, FakeTensor)

    def execute(
        self, op: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, object], call: int | None = None
    ) -> object:
        """Run an op, or make again what a call with arguments that look the same gave."""
        self.gave_new = self.changed_values = False
        if self.assumed is not None or torch.get_default_dtype() is not torch.float32:
            return super().execute(op, args, kwargs)
        if call is None:
            if not changes_only_values(op, args, kwargs):
                return super().execute(op, args, kwargs)
            self.changed_values = True
            return args[0]
        recipe = self.results.get(call)
        if recipe is None:
            tensors = list(tensors_in((*args, *kwargs.values())))
            recipe = self._ruled(op, args, kwargs, tensors)
            if recipe is None:
                result = super().execute(op, args, kwargs)
                made_small = not tensors and isinstance(result, Tensor) and _is_small(result)
                self.results[call] = MADE_SMALL if made_small else self._rules.recipe(op, args, tensors, result)
                return result
            self.results[call] = recipe
        if recipe is MADE_SMALL:
            self.gave_new = True
            if op is _EMPTY:  # quicker than by its overload
                return torch.empty(*args, **kwargs)  # type: ignore[call-overload]
            return op(*args, **kwargs)
        if not recipe.results and not recipe.views:
            return super().execute(op, args, kwargs)
        result = self._rules.repeated(recipe, args)
        if result is None:
            return super().execute(op, args, kwargs)
        self.gave_new = not recipe.views
        return result

    def _ruled(
        self, op: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, object], tensors: list[Tensor]
    ) -> Recipe | None:
        """How a rule makes the result; where one argument is unknown, the values of the others do not matter."""
        unknown = [type(one) is FakeTensor for one in tensors]
        if all(unknown):
            return self._rules.ruled(op, args, kwargs, tensors)
        return self._ruled_by_looks(op, args, kwargs) if any(unknown) else None

    def _ruled_by_looks(self, op: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, object]) -> Recipe | None:
        args, kwargs = map_tensors(self._as_unknown, args), map_tensors(self._as_unknown, dict(kwargs))
        return self._rules.ruled(op, args, kwargs, list(tensors_in((*args, *kwargs.values()))))

    def elements_by_rule(self, op: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, object]) -> int | None:
        """How many elements the result of an op has; None where no rule says it."""
        recipe = self._ruled_by_looks(op, args, kwargs)
        return sum(prod(shape) for shape, _, _ in recipe.results) if recipe is not None and recipe.results else None

    def looks_of(self, tensor: Tensor) -> Looks | None:
        """Shape, strides and type of an ordinary fake tensor."""
        if not is_ordinary(tensor) or tensor.requires_grad:
            return None
        return tensor.shape, tensor.stride(), tensor.dtype

    def make_again(self, looks: Looks) -> Tensor:
        """A new fake tensor with these looks."""
        with _no_dispatch():
            return self._rules.fake(*looks)

    @outside_transforms
    def hold_plain(self, tensor: Tensor) -> Tensor:
        """The same, made in one step: a net holds more tensors than it calls ops."""
        known = self._substitutes.get(id(tensor))
        if known is not None:
            return known[1]
        if tensor.is_quantized or tensor.device not in _STANDS_FOR:
            return self.substitute(tensor)
        with _no_dispatch():
            made = self._rules.held(tensor)
        self._substitutes[id(tensor)] = (ref(tensor), made)
        return made

    def make(self, tensor: Tensor) -> Tensor:
        """A new fake tensor that looks like the given one."""
        if not _is_plain(tensor):
            return self._mode.from_tensor(tensor, static_shapes=True)
        fake = type(tensor) is FakeTensor  # which is slow to say whether it is on the meta device
        device = tensor.fake_device if fake else _CPU if tensor.is_meta else tensor.device  # type: ignore[attr-defined]
        like = _empty_like(tensor)
        made = self._rules.wrapped(like) if device == _CPU else FakeTensor(self._mode, like, device)
        return _as_parameter_like(tensor, made)

    def run_unknown(self, op: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, object]) -> object:
        """Run the op on fake tensors."""
        ruled = self._rules.run(op, args, kwargs, list(tensors_in((*args, *kwargs.values()))))
        if ruled is not None:
            return ruled
        with self._mode:
            result: Any = op(*args, **kwargs)
        if op is _VIEW and 1 in result.shape and not args[0].is_contiguous():
            return self._viewed(args[0], result)
        return as_kernel(op, args, kwargs, result, self._new_like)

    def _viewed(self, given: Tensor, result: Tensor) -> Tensor:
        """Give dimensions of size 1 the strides that a real view has: later ops choose their kernels by these."""
        with _disable_current_modes():
            strides = _empty_like(given).view(result.shape).stride()
        if strides == result.stride():
            return result
        with self._mode:
            return result.as_strided(result.shape, strides)

    def _new_like(self, tensor: Tensor, strides: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """A new fake tensor of the shape of another one."""
        with self._mode:
            made = torch.empty_strided(tensor.shape, strides, dtype=dtype, device=tensor.device)
        return made.requires_grad_(tensor.requires_grad)


class MetaWorld(StandInWorld):
    """Meta tensors: the fastest, but torch takes some fused ops apart for want of a kernel, and so may models."""

    def is_stand_in(self, tensor: Tensor) -> bool:
        """Whether the tensor is on the meta device."""
        return tensor.is_meta

    def keeps_values(self, tensor: Tensor) -> bool:
        """Only integers and booleans do: fused ops refuse floating-point arguments on two devices."""
        return super().keeps_values(tensor) and not tensor.is_floating_point() and not tensor.is_complex()

    def make(self, tensor: Tensor) -> Tensor:
        """A new meta tensor that looks like the given one."""
        if not _is_plain(tensor):
            return tensor.to(_META)
        return _as_parameter_like(tensor, _empty_like(tensor))

    def localise(self, kwargs: Mapping[str, Any]) -> Mapping[str, object]:
        """Small tensors asked for on the meta device are made real."""
        asked = kwargs.get("device")
        return {**kwargs, "device": _CPU} if asked is not None and torch.device(asked).type == "meta" else kwargs

    def execute(
        self, op: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, object], call: int | None = None
    ) -> object:
        """Run an op; a copy from the real to the meta device is none of the model's own doing."""
        only_moves = op is _COPY and kwargs.get("dtype") in (None, args[0].dtype) and kwargs.get("device") == _META
        if only_moves and not args[0].is_meta:
            self.differences["small tensors are copied over to the device of the weights"] = None
        return super().execute(op, args, kwargs, call)

    def met_unnumbered(self, tensor: Tensor) -> None:
        """A tensor made on the meta device by no op: torch.tensor([...]) is silent there."""
        if tensor.is_meta:
            self.differences["constants are made without an op"] = None

    def run_unknown(self, op: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, object]) -> object:
        """Run the op on meta tensors."""
        if op is _DECOMPOSED_ATTENTION:
            self.differences["fused attention is taken apart"] = None
        if op is _CONVOLUTION and not args[0].is_contiguous():
            self.differences["the result of a convolution may lie in memory in another order"] = None
        if not any(True for _ in tensors_in((*args, *kwargs.values()))):
            kwargs = {**kwargs, "device": _META} if "device" in schema_of(op).argument_names else kwargs
        return op(*args, **kwargs)


def _is_plain(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided and type(tensor) in _PLAIN_TENSORS and not tensor.is_quantized


def _is_small(tensor: Tensor) -> bool:
    """Whether a new tensor has values, in whatever capture."""
    return type(tensor) is Tensor and not tensor.is_meta and tensor.numel() <= _MOST_KNOWN


def _elements_made(op: OpOverload, args: tuple[Any, ...], tensors: list[Tensor]) -> int | None:
    """How many elements the result of an op has, or at most has, where that follows from its arguments at a glance."""
    if op in _JOINING or op in _NO_LARGER:
        return sum(tensor.numel() for tensor in tensors)
    if op in _FILLED:
        return prod(args[0])
    if op in _COUNTED and all(type(one) is int for one in args) and 0 not in args[2:]:
        return len(range(*args))
    if not tensors or torch.Tag.pointwise not in op.tags or len(op._schema.returns) != 1:
        return None
    try:
        return prod(torch.broadcast_shapes(*[tensor.shape for tensor in tensors]))
    except RuntimeError:  # the op has a better message for shapes that do not fit
        return None


def _empty_like(tensor: Tensor) -> Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=_META)


def _as_parameter_like(tensor: Tensor, stand_in: Tensor) -> Tensor:
    if tensor.requires_grad:
        stand_in.requires_grad_(tensor.is_leaf)
    if type(tensor) is nn.Parameter or isinstance(tensor, nn.Parameter):
        if type(stand_in) is Tensor:
            return nn.Parameter(stand_in, requires_grad=tensor.requires_grad)
        stand_in._is_param = True  # what nn.Parameter does with a tensor subclass
    return stand_in
