"""A typed request -> the stages it needs, composed -> a result; what the command line and the public API call."""
