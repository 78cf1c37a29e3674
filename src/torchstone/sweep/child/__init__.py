"""A vector as JSON -> its answer: what runs in the backend's environment, where torch alone need be installed."""
