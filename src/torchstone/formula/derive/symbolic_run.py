"""A second way to the same polynomials: one run with symbolic batch and length, priced as torch describes the sizes."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from fractions import Fraction

import sympy
import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.utils._python_dispatch import TorchDispatchMode

from torchstone.formula.algebra.polynomial import ZERO, Polynomial
from torchstone.formula.derive.fit import Forms
from torchstone.formula.derive.op_forms import Price
from torchstone.formula.derive.parameter_binding import BATCH, LENGTH
from torchstone.formula.derive.symbolic_sizes import Path, Size, form_of
from torchstone.record.op import OpSignature
from torchstone.record.tensor import TensorSpec
from torchstone.record.value import Argument, Items, Opaque, Value

_NOTHING: Forms = (ZERO, ZERO, ZERO)
_AXES = 2


class NotSymbolicError(Exception):
    """A size that torch does not describe as a polynomial of batch and length."""


@dataclass(slots=True)
class SymbolicCosts:
    """The cost of each module class at symbolic batch and length.

    A class is ambiguous whose calls differ, or whose prices compared sizes, so that its polynomials hold here only.
    """

    by_class: dict[str, Forms] = field(default_factory=dict)
    ambiguous: set[str] = field(default_factory=set)


def run_symbolically(model: nn.Module, token_ids: Tensor, price: Price, mode: FakeTensorMode) -> SymbolicCosts:
    """Run a model of fake tensors once; batch and length of its tokens are symbols."""
    context: StatelessSymbolicContext[..., object] = StatelessSymbolicContext(
        dynamic_sizes=[DimDynamic.DYNAMIC] * _AXES
    )
    recorder = _Recorder(price)
    with mode, torch.no_grad(), recorder.watching(model):
        given = mode.from_tensor(token_ids, symbolic_context=context, static_shapes=False)
        sizes: tuple[int | torch.SymInt, ...] = given.shape  # torch declares int, but symbolic sizes are SymInt
        symbols = zip(sizes, (BATCH, LENGTH), strict=True)
        recorder.names = {str(size.node.expr): name for size, name in symbols if isinstance(size, torch.SymInt)}
        with recorder:
            model(input_ids=given)
    return recorder.costs


def new_mode() -> FakeTensorMode:
    """A fake tensor mode: tensors without values, whose sizes may be symbols."""
    return FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)


class _Recorder(TorchDispatchMode):
    """Prices every op and adds it to all modules that are running."""

    def __init__(self, price: Price) -> None:
        super().__init__()
        self.names: dict[str, str] = {}
        self.costs = SymbolicCosts()
        self._price = price
        self._running: list[list[Polynomial]] = []
        self._compared: list[int] = []  # how many comparisons were made before each running module began
        self._path = Path()

    @contextmanager
    def watching(self, model: nn.Module) -> Iterator[None]:
        """While open, hooks record which modules of a model run; all are removed on exit."""
        with ExitStack() as hooks:
            for module in model.modules():
                for handle in (
                    module.register_forward_pre_hook(self._enter, with_kwargs=True),
                    module.register_forward_hook(self._leave, with_kwargs=True),
                ):
                    hooks.callback(handle.remove)
            yield

    def _enter(self, _module: nn.Module, _args: tuple[object, ...], _kwargs: dict[str, object]) -> None:
        self._running.append(list(_NOTHING))
        self._compared.append(len(self._path.taken))

    def _leave(self, module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object], _output: object) -> None:
        """Keep the cost of a module; one that reads tokens is skipped, as this run has no attention mask."""
        flops, reads, writes = self._running.pop()
        compared = len(self._path.taken) > self._compared.pop()
        first = next((value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)), None)
        if first is None or not first.is_floating_point():
            return
        name = f"{type(module).__module__}.{type(module).__qualname__}"
        if compared or self.costs.by_class.setdefault(name, (flops, reads, writes)) != (flops, reads, writes):
            self.costs.ambiguous.add(name)

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: tuple[object, ...] = (), kwargs: Mapping[str, object] | None = None
    ) -> object:
        """Run an op and price it."""
        del types
        result = func(*args, **(kwargs or {}))
        if self._running:
            costs = self._price(self._signature(func, args, kwargs or {}, result))
            for running in self._running:
                for place, cost in enumerate(costs):
                    running[place] += form_of(cost)
        return result

    def _signature(
        self, func: OpOverload, args: tuple[object, ...], kwargs: Mapping[str, object], result: object
    ) -> OpSignature:
        names = [argument.name for argument in func._schema.arguments]
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        arguments = tuple(Argument(name=name, value=self._value(value)) for name, value in given.items())
        namespace, _, rest = func._schema.name.partition("::")
        op = f"{namespace}.{rest}.{func._schema.overload_name or 'default'}"
        return OpSignature(op=op, arguments=arguments, output=self._value(result))

    def _value(self, value: object) -> Value:
        if isinstance(value, Tensor):
            strides = tuple(0 if stride == 0 else 1 for stride in value.stride())
            sizes = tuple(self._size(size) for size in value.shape)
            return TensorSpec(shape=sizes, dtype=str(value.dtype).removeprefix("torch."), stride=strides)
        if isinstance(value, torch.SymInt):
            return self._size(value)
        if isinstance(value, list | tuple):
            return Items(kind="list", items=tuple(self._value(item) for item in value))
        if value is None or isinstance(value, bool | int | float | str):
            return value
        return Opaque(class_name=type(value).__name__)

    def _size(self, size: int | torch.SymInt) -> int:
        if not isinstance(size, torch.SymInt):
            return int(size)
        return Size.of(int(size.node.hint), polynomial_of(size.node.expr, self.names), self._path)


def polynomial_of(expression: sympy.Basic, names: Mapping[str, str]) -> Polynomial:
    """A sympy expression as a polynomial."""
    match expression:
        case sympy.Integer() | sympy.Rational():
            return Polynomial.constant(Fraction(int(expression.p), int(expression.q)))
        case sympy.Symbol() if str(expression) in names:
            return Polynomial.unknown(names[str(expression)])
        case sympy.Add():
            return sum((polynomial_of(part, names) for part in expression.args), start=ZERO)
        case sympy.Mul():
            product = Polynomial.constant(1)
            for part in expression.args:
                product *= polynomial_of(part, names)
            return product
        case sympy.Pow() if isinstance(expression.exp, sympy.Integer) and expression.exp >= 0:
            return polynomial_of(expression.base, names) ** int(expression.exp)
        case _:
            msg = f"{expression} is not a polynomial of batch and length"
            raise NotSymbolicError(msg)
