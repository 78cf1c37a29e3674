"""Trace -> what is shown, chosen once for all formats."""
