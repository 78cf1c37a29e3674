from collections.abc import Callable

import pytest

from torchstone.models.example_inputs.context import InputBuilder, InputContext
from torchstone.models.inputs import InputOptions
from torchstone.models.pretrained import build, find_blueprint


@pytest.fixture
def context_of() -> Callable[..., InputContext]:
    """A context around a tiny model on meta, by its model type and the sizes asked for."""

    def make(model_type: str, options: InputOptions | None = None) -> InputContext:
        chosen = options or InputOptions()
        blueprint = find_blueprint(f"tiny:{model_type}", chosen)
        model = build(blueprint, device="meta", seed=0)
        return InputContext(model=model, config=blueprint.config, options=chosen, builder=InputBuilder(chosen.seed))

    return make
