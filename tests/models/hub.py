"""A Hugging Face hub on this machine: the requests that a download makes, answered from a folder."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class _Hub(BaseHTTPRequestHandler):
    def __init__(self, *args: object, folder: Path, requests: list[str]) -> None:
        self.folder, self.requests = folder, requests
        super().__init__(*args)  # type: ignore[arg-type]  # the arguments that the server passes on

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        path = self.path.partition("?")[0]
        self.requests.append(path)
        if path.startswith("/api/models/"):
            body = self._listing(tree="/tree/" in path)
            self._send(body, "application/json", with_body=with_body)
            return
        file = self.folder / path.partition("/resolve/")[2].partition("/")[2]
        if not file.is_file():
            self.send_error(404)
            return
        self._send(file.read_bytes(), "application/octet-stream", with_body=with_body)

    def _listing(self, *, tree: bool) -> bytes:
        files = sorted(path for path in self.folder.rglob("*") if path.is_file())
        names = [(str(path.relative_to(self.folder)), path.stat().st_size) for path in files]
        if tree:
            return json.dumps(
                [{"type": "file", "path": name, "size": size, "oid": COMMIT} for name, size in names]
            ).encode()
        siblings = [{"rfilename": name} for name, _ in names]
        return json.dumps({"id": "org/model", "sha": COMMIT, "siblings": siblings}).encode()

    def _send(self, body: bytes, kind: str, *, with_body: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{sha256(body).hexdigest()}"')
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Stay silent."""


@contextmanager
def serving(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """The address of a hub whose every repository is this folder, and the paths that it was asked for."""
    requests: list[str] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Hub, folder=folder, requests=requests))
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", requests
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
