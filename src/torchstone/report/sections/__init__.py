"""A report folder -> the sections of its page."""
