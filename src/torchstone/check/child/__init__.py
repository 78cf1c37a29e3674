"""Tasks of a check, run in the backend's environment: torch, the backend's packages and the standard library."""
