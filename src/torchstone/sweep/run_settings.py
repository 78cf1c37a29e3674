"""What every vector of a run is given beside itself."""

from typing import Any

from torchstone.record.vector import SweepRun, SweepSettings


def extra_of(run: SweepRun, settings: SweepSettings) -> dict[str, Any]:
    """Backend, tolerance and what else the child side must know."""
    limits = {"pcc": settings.pcc, "rtol": settings.rtol, "atol": settings.atol}
    return {
        "backend": run.backend,
        "options": run.options,
        "tolerance": {name: limit for name, limit in limits.items() if limit is not None},
        "strict_stride": settings.strict_stride,
        "perf": {"runs": settings.perf_runs} if settings.perf else None,
    }
