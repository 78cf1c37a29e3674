"""Model and configuration -> example inputs that nobody had to write."""
