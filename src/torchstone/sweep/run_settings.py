"""What every vector of a run is given beside itself."""

from typing import Any

from torchstone.record.vector import SweepRun


def extra_of(run: SweepRun, settings: dict[str, Any]) -> dict[str, Any]:
    """Backend, tolerance and what else the child side must know."""
    tolerance = {name: settings[name] for name in ("pcc", "rtol", "atol") if settings[name] is not None}
    return {
        "backend": run.backend,
        "options": run.options,
        "tolerance": tolerance,
        "strict_stride": settings["strict_stride"],
        "perf": {"runs": settings["perf_runs"]} if settings["perf"] else None,
    }
