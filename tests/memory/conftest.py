from pathlib import Path

import pytest


@pytest.fixture(params=["sample_tt_runtime.log", "sample_tt_runtime.ansi.log"])
def sample_log(request: pytest.FixtureRequest) -> Path:
    places = (parent / "shared" / "data" / str(request.param) for parent in Path(__file__).parents[3:])
    path = next((place for place in places if place.exists()), None)
    if path is None:
        pytest.skip(f"{request.param} stands beside the project, not in it")
    return path
