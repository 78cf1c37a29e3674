"""Formulas -> a Python package that computes them alone."""
