"""Random numbers: counted as one operation per element drawn, by whatever generator."""

from torchstone.cost.arguments import tensor
from torchstone.cost.registry import Price, price_of
from torchstone.record.cost import Kind
from torchstone.record.op import OpSignature

_DRAWN = (
    "rand", "rand_like", "randint", "randint_like", "randn", "randn_like", "randperm", "bernoulli", "uniform", "normal",
    "random", "exponential", "log_normal", "cauchy", "geometric", "poisson", "_standard_gamma", "binomial",
    "_sample_dirichlet", "normal_functional",
)  # fmt: skip


@price_of(*(f"aten.{name}" for name in _DRAWN), kind=Kind.RANDOM)
def drawn(call: OpSignature) -> Price:
    """One per element; a tensor to be filled is not read, one of probabilities is."""
    made = sum(spec.elements for spec in call.output_specs)
    packet = call.op.split(".")[1]
    filled = packet.endswith(("_", "_like")) or packet in ("uniform", "random")
    return Price(flops=made, reads=(0,) * len(call.input_specs) if filled else None)


@price_of("aten.multinomial", kind=Kind.RANDOM)
def multinomial(call: OpSignature) -> Price:
    """A running sum over the weights and one draw per sample."""
    return Price(flops=tensor(call, "self").elements + sum(spec.elements for spec in call.output_specs))
