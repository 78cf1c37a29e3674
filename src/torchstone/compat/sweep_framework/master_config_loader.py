"""tt-metal's `tests.sweep_framework.master_config_loader`."""

from torchstone.compat.sweep_framework import *  # noqa: F403 - the same names, in the place where modules import them
