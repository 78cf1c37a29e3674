"""Text of a template <-> Expression -> an exact number."""
