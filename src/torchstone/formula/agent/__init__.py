"""A class and what it was measured to cost -> an entry that an agent wrote and measurements confirm."""
