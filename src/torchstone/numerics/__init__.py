"""Two values -> how far they are apart and whether they agree; needs torch and the standard library alone.

check, sweep and reference judge by what stands here and by nothing else. `tolerance`, `dtypes` and `standalone` are
importable without torch, so that the parent side can read options and write scripts.
"""
