"""Sample logs that come with the package: made up, and true to the runtime's format."""

import gzip
from importlib.resources import files

HEALTHY, OUT_OF_MEMORY = "healthy.log.gz", "out_of_memory.log.gz"


def demo_log(name: str) -> bytes:
    """The text of a sample log."""
    return gzip.decompress((files("torchstone.memory") / "demo" / name).read_bytes())
