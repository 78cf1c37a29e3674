"""Records -> what people read: terminal, JSON, HTML."""
