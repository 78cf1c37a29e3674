import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM, PreTrainedModel

from tests.cost.calls import trace_of
from torchstone.capture import capture
from torchstone.cost import price
from torchstone.record.codec import decode, encode, load
from torchstone.record.cost import Conventions, CostTable, Kind
from torchstone.record.trace import Trace

LLAMA_7B = {"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32,
            "num_hidden_layers": 32}  # fmt: skip
TINY = {"vocab_size": 320, "hidden_size": 64, "intermediate_size": 176, "num_attention_heads": 8,
        "num_key_value_heads": 2, "num_hidden_layers": 2}  # fmt: skip


def llama(sizes: dict[str, int] = LLAMA_7B, attention: str = "sdpa") -> PreTrainedModel:
    with torch.device("meta"):
        return LlamaForCausalLM(LlamaConfig(**sizes, attn_implementation=attention)).eval()


def tokens(batch: int, length: int) -> dict[str, torch.Tensor]:
    return {"input_ids": torch.zeros(batch, length, dtype=torch.long, device="meta")}


def cost(model: torch.nn.Module, batch: int, length: int, *, backward: bool = False) -> CostTable:
    trace = capture(model, tokens(batch, length), mode="fake", backward=backward)
    assert trace.failure is None
    return price(trace)


def test_llama_2_7b_costs_what_its_dimensions_say() -> None:
    table = cost(llama(), 1, 2048)
    layer = next(module for module in table.modules if module.path == "model.layers.7")
    assert table.totals.matmul_flops == 29_261_612_187_648
    assert layer.matmul_flops == 897_648_164_864
    assert table.unpriced == {}
    assert table.totals.parameter_bytes == 6_738_415_616 * 4


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_tiny_models_cost_their_hand_derived_flops(attention: str) -> None:
    with torch.device("meta"):
        experts = MixtralForCausalLM(
            MixtralConfig(**TINY, num_local_experts=8, num_experts_per_tok=2, attn_implementation=attention)
        ).eval()
    assert cost(llama(TINY, attention), 2, 96).totals.matmul_flops == 51_118_080
    assert cost(experts, 2, 96).totals.matmul_flops == 77_463_552


def test_backward_does_twice_the_matmuls_of_the_forward_pass() -> None:
    model = llama(TINY, "eager")
    assert cost(model, 2, 96, backward=True).totals.matmul_flops == 3 * 51_118_080


def test_counting_multiply_adds_halves_the_matmuls_alone() -> None:
    trace = trace_of(lambda x: torch.relu(x @ x), torch.ones(4, 4))
    flops, macs = price(trace), price(trace, Conventions(multiply_add=1))
    assert (flops.totals.flops, macs.totals.flops) == (128 + 16, 64 + 16)
    assert macs.conventions.multiply_add == 1


def custom_op_trace() -> Trace:
    trace = trace_of(lambda x: torch.relu(x) + 1, torch.ones(4))
    odd = msgspec.structs.replace(trace.ops.signatures[0], op="odd.op.default")
    ops = msgspec.structs.replace(trace.recorded_ops, signatures=(odd, *trace.recorded_ops.signatures[1:]))
    return msgspec.structs.replace(trace, recorded_ops=ops)


def test_an_op_without_a_price_is_named_and_counted_and_nowhere_else() -> None:
    table = price(custom_op_trace())
    assert table.unpriced == {"odd.op.default": 1}
    assert table.totals.unpriced_calls == 1
    assert table.totals.flops == 4
    assert table.modules[0].unpriced_calls == 1
    assert (table.signatures[0].kind, table.signatures[0].reason) == (Kind.UNPRICED, "odd.op.default has no price")


def test_three_levels_of_traffic_go_down() -> None:
    levels = cost(llama(TINY), 2, 96).traffic
    assert levels.unfused.total_bytes > levels.fused.total_bytes > levels.compulsory.total_bytes


def test_the_totals_are_those_of_the_unfused_level() -> None:
    table = cost(llama(TINY), 2, 96)
    assert sum(table.traffic.unfused.read_bytes.values()) == table.totals.bytes_read
    assert sum(table.traffic.unfused.written_bytes.values()) == table.totals.bytes_written


def test_a_failed_forward_pass_is_priced_up_to_there_and_says_so() -> None:
    def fails(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        return y @ torch.ones(3, 3)

    from tests.cost.calls import Lines

    table = price(capture(Lines(fails), torch.ones(4, 4), mode="cpu"))
    assert table.totals.flops >= 16
    assert "ended early" in table.notes[0]


def test_pricing_needs_no_torch() -> None:
    program = (
        "import sys; from torchstone.record.codec import decode; from torchstone.record.trace import Trace;"
        "from torchstone.cost import price; t = decode(sys.stdin.buffer.read(), Trace, origin='stdin');"
        "print(price(t).totals.flops); sys.exit('torch' in sys.modules)"
    )
    trace = trace_of(torch.relu, torch.ones(4))
    done = subprocess.run([sys.executable, "-c", program], input=encode(trace), capture_output=True, check=True)
    assert done.stdout.strip() == b"4"


def test_a_table_survives_its_file() -> None:
    table = cost(llama(TINY), 1, 8)
    assert decode(encode(table), CostTable, origin="here") == table


# --- Traces that an older torchstone wrote must load, and cost what they cost then. ---


OLD = Path(__file__).parent.parent / "record" / "old"


def test_a_trace_of_version_1_costs_what_it_did() -> None:
    trace = load(OLD / "trace_1.json", Trace)

    assert trace.repeats == ()
    assert len(trace.ops) == len(trace.recorded_ops) == 66
    assert price(trace) == load(OLD / "cost_of_trace_1.json", CostTable)
