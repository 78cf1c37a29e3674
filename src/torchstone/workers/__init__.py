"""Tasks + an environment -> how each of them ended, every one in a process of its own."""
