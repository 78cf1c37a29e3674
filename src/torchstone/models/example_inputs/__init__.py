"""Model and configuration -> example inputs."""
