"""Captured ops -> calls of ttnn: the table of mappings, what was accepted, code skeletons."""
