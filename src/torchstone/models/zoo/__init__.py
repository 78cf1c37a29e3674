"""Well-known model configurations that ship with torchstone; read without torch."""
