"""SeenConfigurations <-> a database: one SQLite file, or PostgreSQL by URL."""
