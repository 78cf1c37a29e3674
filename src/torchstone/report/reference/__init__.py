"""Trace + costs -> the documents of a reference, and the checks that read them back."""
