"""tt-metal's `tests.sweep_framework`, as far as sweep modules import it: the loaders of both generations.

`torchstone sweep shim DIR` writes a folder that puts these modules in the place of tt-metal's (`PYTHONPATH=DIR`).
"""

from torchstone.sweep.master_config_loader import (
    MasterConfigLoader,
    dict_to_compute_kernel_config,
    dict_to_core_grid,
    dict_to_memory_config,
    dict_to_program_config,
    get_global_loader,
    get_master_configs_raw,
    get_traced_config,
    load_master_configs_for_operation,
    parse_dtype,
    parse_layout,
    unpack_binary_traced_config,
    unpack_traced_config,
)

__all__ = [
    "MasterConfigLoader", "dict_to_compute_kernel_config", "dict_to_core_grid", "dict_to_memory_config",
    "dict_to_program_config", "get_global_loader", "get_master_configs_raw", "get_traced_config",
    "load_master_configs_for_operation", "parse_dtype", "parse_layout", "unpack_binary_traced_config",
    "unpack_traced_config",
]  # fmt: skip
