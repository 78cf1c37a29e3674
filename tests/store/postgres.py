"""A real PostgreSQL server for the tests, on a free loopback port, gone when they end."""

import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

_SERVERS = "/usr/lib/postgresql"
_USERS = ("postgres", "nobody")
_FOR_EVERYBODY = "/tmp"  # noqa: S108 - a folder of our own below it
_PATIENCE_S = 300
_TRIED_PORTS = 5
_SCHEMAS = count(1)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def server_program(name: str) -> str | None:
    """A program of the server: from PATH, or from where Debian keeps it."""
    found = sorted(Path(_SERVERS).glob(f"*/bin/{name}"))
    return shutil.which(name) or (str(found[-1]) if found else None)


def other_user() -> str | None:
    """The user to run the server as where we are root, which PostgreSQL refuses."""
    known = {user.pw_name for user in pwd.getpwall()}
    return next((name for name in _USERS if name in known), None)


@contextmanager
def running_server() -> Iterator[str]:
    """The URL of a fresh server; the test is skipped where none can be started."""
    initdb, pg_ctl = server_program("initdb"), server_program("pg_ctl")
    if initdb is None or pg_ctl is None:
        pytest.skip("no PostgreSQL server here: tools/install_postgres.sh gets one where apt can")
    user = other_user() if os.geteuid() == 0 else None
    if os.geteuid() == 0 and (user is None or shutil.which("setpriv") is None):
        pytest.skip("PostgreSQL does not run as root, and there is no other user to run it as")
    # another user cannot go into a private folder for temporary files
    with TemporaryDirectory(prefix="torchstone-postgres-", dir=_FOR_EVERYBODY if user else None) as folder:
        Path(folder).chmod(0o755)
        home = Path(folder) / "data"
        home.mkdir(mode=0o700)
        prefix = _as_user(user, home)
        _call([*prefix, initdb, "-D", str(home), "-U", "tester", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"])
        port = _start([*prefix, pg_ctl, "-D", str(home), "-t", str(_PATIENCE_S)], home / "log")
        try:
            yield f"postgresql://tester@127.0.0.1:{port}"
        finally:
            _call([*prefix, pg_ctl, "-D", str(home), "-m", "immediate", "-w", "stop"])


def fresh_schema(server: str) -> str:
    """The URL of an empty schema: a database of its own would be 7 MB each."""
    import psycopg

    name = f"test{next(_SCHEMAS)}"
    with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    return f"{server}/postgres?options=-csearch_path%3D{name}"


def _start(pg_ctl: list[str], log: Path) -> int:
    """Start the server; the port it listens on. Another program may take a free port before it does."""
    for left in reversed(range(_TRIED_PORTS)):
        port = free_port()
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c fsync=off"
        try:
            _call([*pg_ctl, "-o", options, "-l", str(log), "-w", "start"])
        except AssertionError:
            if not left:
                raise
        else:
            return port
    raise AssertionError


def _as_user(user: str | None, home: Path) -> list[str]:
    if user is None:
        return []
    shutil.chown(home, user=user)
    entry = pwd.getpwnam(user)
    return ["setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups", "--inh-caps=-all"]


def _call(command: list[str]) -> None:
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=600, cwd="/"
    )
    assert done.returncode == 0, done.stdout
