"""A recorded op call that stands alone, as the programs of backends are made from."""

from torchstone.record.op import OpCall, OpSignature, Phase


def lone_call(signature: OpSignature) -> OpCall:
    """A call whose tensors are numbered from 0 on: first what goes in, then what comes out."""
    inputs, outputs = len(signature.input_specs), len(signature.output_specs)
    return OpCall(
        index=0,
        signature=signature,
        inputs=tuple(range(inputs)),
        outputs=tuple(range(inputs, inputs + outputs)),
        writes=(),
        module_call=-1,
        phase=Phase.FORWARD,
    )
