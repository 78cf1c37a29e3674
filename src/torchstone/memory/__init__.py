"""A runtime log -> MemoryTimeline."""
