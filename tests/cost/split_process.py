"""A tiny model that is really split over processes, as a script: it prints what the first of them exchanged and holds.

python split_process.py MODEL_TYPE DEVICES
"""

import json
import os
import socket
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import multiprocessing, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module

from torchstone.models import load
from torchstone.models.inputs import InputOptions

_PLANS = {  # for each kind of layer: what is split by columns, what by rows
    "llama": (("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"), ("o_proj", "down_proj"), "lm_head"),
    "opt": (("q_proj", "k_proj", "v_proj", "fc1"), ("out_proj", "fc2"), "lm_head"),
    "qwen3": (("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"), ("o_proj", "down_proj"), "lm_head"),
}


def main() -> None:
    """Start the processes and wait for them."""
    name, devices = sys.argv[1], int(sys.argv[2])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    multiprocessing.spawn(run, args=(name, devices, port), nprocs=devices)  # type: ignore[attr-defined]


def run(rank: int, name: str, devices: int, port: int) -> None:
    """One device."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=devices)
    torch.manual_seed(0)
    loaded, inputs = load(f"tiny:{name}", options=InputOptions(batch_size=2, seq_len=16), device="cpu")
    model: Any = loaded
    tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    parallelize_module(model, init_device_mesh("cpu", (devices,)), plan_of(model, name))
    with torch.no_grad(), CommDebugMode() as seen:
        model(*inputs.args, **inputs.kwargs)
    if rank == 0:
        head = own_bytes(model.get_output_embeddings()) if tied else 0
        found = {"collectives": collectives(seen), "weight_bytes": own_bytes(model), "tied_bytes": head}
        sys.stdout.write(json.dumps(found) + "\n")
    dist.destroy_process_group()


def plan_of(model: nn.Module, name: str) -> dict[str, ParallelStyle]:
    """How each linear layer is split."""
    columns, rows, head = _PLANS[name]
    plan: dict[str, ParallelStyle] = {}
    for path, module in model.named_modules():
        if not isinstance(module, nn.Linear):
            continue
        if path.endswith(rows):
            plan[path] = RowwiseParallel()
        elif path == head:
            plan[path] = ColwiseParallel(output_layouts=Replicate())
        elif path.endswith(columns):
            plan[path] = ColwiseParallel()
    return plan


def collectives(seen: CommDebugMode) -> dict[str, int]:
    """How often each kind of exchange took place."""
    counts = {str(op): count for op, count in seen.get_comm_counts().items()}
    kinds = {"all-reduce": "all_reduce", "all-gather": "all_gather"}
    return {kind: sum(count for op, count in counts.items() if word in op) for kind, word in kinds.items()}


def own_bytes(model: nn.Module) -> int:
    """Bytes of the parts of parameters and buffers that this process has."""
    held = {id(one): one for one in (*model.parameters(), *model.buffers())}
    parts = [one.to_local() if isinstance(one, DTensor) else one for one in held.values()]
    return sum(part.numel() * part.element_size() for part in parts)


if __name__ == "__main__":
    main()
