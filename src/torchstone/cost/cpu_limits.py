"""The limits of this machine's CPU, measured with torch: a large matmul, a large copy, many small ops."""

import os
import platform
import time
from collections.abc import Callable

from torchstone.record.cost import Hardware

_MATRIX = 1024
_VECTOR = 1 << 25  # 128 MiB of float32: larger than caches
_SMALL_OPS = 2000
_REPEATS = 3
_DTYPES = ("float32", "bfloat16")


def measure_cpu(name: str = "cpu") -> Hardware:
    """Measure for about two seconds, all threads of torch at work."""
    import torch

    with torch.inference_mode():
        peak = {dtype: 2 * _MATRIX**3 / _fastest(_matmul(dtype)) for dtype in _DTYPES}
        vector = torch.ones(_VECTOR)
        target = torch.empty_like(vector)
        copied_s = _fastest(lambda: target.copy_(vector))
        small = torch.ones(64 * 64)
        vector_flops = _vector_flops()
        launch_s = _fastest(lambda: [torch.neg(small) for _ in range(_SMALL_OPS)]) / _SMALL_OPS
    return Hardware(
        name=name,
        title=f"this machine's CPU ({platform.machine()}, {torch.get_num_threads()} threads)",
        peak_flops=peak,
        vector_flops=vector_flops,
        memory_bytes=_memory_bytes(),
        memory_bytes_per_s=2 * _VECTOR * 4 / copied_s,
        launch_s=launch_s,
        source=f"measured with torch {torch.__version__}",
    )


def _matmul(dtype: str) -> Callable[[], object]:
    import torch

    left, right = (torch.ones(_MATRIX, _MATRIX, dtype=getattr(torch, dtype)) for _ in range(2))
    return lambda: torch.mm(left, right)


def _vector_flops() -> float:
    """Sums over data that stays in the caches."""
    import torch

    data = torch.ones(1 << 16)
    target = torch.empty_like(data)
    return 100 * data.numel() / _fastest(lambda: [torch.add(data, data, out=target) for _ in range(100)])


def _fastest(work: Callable[[], object]) -> float:
    """The shortest of a few runs, after one to warm up."""
    work()
    times = []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
