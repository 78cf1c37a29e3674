"""A device with round numbers."""

from torchstone.record.cost import Hardware


def device(**changes: object) -> Hardware:
    values: dict[str, object] = {
        "name": "round",
        "title": "a device with round numbers",
        "peak_flops": {"float32": 1e12},
        "vector_flops": 1e11,
        "memory_bytes": 10**9,
        "memory_bytes_per_s": 1e9,
        "launch_s": 1e-6,
        "source": "made up",
        "link_bytes_per_s": 1e9,
    }
    return Hardware(**{**values, **changes})  # type: ignore[arg-type]
