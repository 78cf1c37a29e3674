"""Entries of formulas: files, templates, consistency, computation, changes."""
