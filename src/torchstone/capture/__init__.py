"""Model + inputs -> Trace."""
