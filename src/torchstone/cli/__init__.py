"""Options and composition: one file per command."""
