"""SeenConfigurations <-> a database: one SQLite file, or PostgreSQL by URL."""


def without_password(text: str) -> str:
    """A text that may be a URL, without the password between user name and host."""
    scheme, separator, rest = text.partition("://")
    user, at, host = rest.rpartition("@")
    return f"{scheme}{separator}{user.partition(':')[0]}{at}{host}"
