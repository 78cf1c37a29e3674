"""The text of one runtime's log -> calls of TimelineBuilder: one file per log format."""
