"""Show the reports of one folder over HTTP: read-only, loopback, nothing but that folder."""

import errno
import os
import re
import secrets
import socket
import sys
from hashlib import sha256
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from mimetypes import guess_type
from pathlib import Path, PurePosixPath
from traceback import print_exc
from typing import BinaryIO, ClassVar
from urllib.parse import parse_qs, unquote, urlsplit

from torchstone.errors import InputError
from torchstone.report.index_page import render_index

TRIED_PORTS = 50
_COOKIE = "torchstone_token"
_LIVE = "torchstone_live"  # tells a page that it is served, so that it looks for changes
_SHOWN_AS_TEXT = {".json": "application/json", ".html": "text/html; charset=utf-8", ".csv": "text/csv; charset=utf-8"}
_PIECE_BYTES = 1 << 16
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)  # one range; several are answered with the whole file
_SERVED = frozenset({".html", ".json", ".csv", ".txt", ".log", ".png", ".svg", ".md"})


class ReportServer(ThreadingHTTPServer):
    """Serves one folder; `token` is asked for when it is not empty."""

    daemon_threads = True
    allow_reuse_address = os.name == "posix"  # elsewhere it would let two servers share a port

    def __init__(self, folder: Path, *, host: str, port: int, token: str) -> None:
        self.folder = folder.resolve()
        self.token = token
        self.host = host
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002 - the base class's names
        """A client that disconnects is not an error; everything else is reported in full."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            print_exc()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        """Where the index is, with the token if there is one."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/" + (f"?token={self.token}" if self.token else "")


def open_server(folder: Path, *, host: str, port: int, token: str) -> ReportServer:
    """Bind to the first free port from `port` on; a host that others can reach needs a token."""
    if not is_loopback(host) and not token:
        msg = f"--host {host} can be reached from other machines: add --token, or keep to 127.0.0.1 and use ssh -L"
        raise InputError(msg)
    if not folder.is_dir():
        msg = f"{folder} is not a folder"
        raise InputError(msg)
    for candidate in range(port, port + TRIED_PORTS):
        try:
            return ReportServer(folder, host=host, port=candidate, token=token)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):  # socket.gaierror, for a name, is an OSError, too
                msg = f"cannot listen on {host}: {error.strerror or error}"
                raise InputError(msg) from error
    msg = f"no port from {port} to {port + TRIED_PORTS - 1} is free: choose another with --port"
    raise InputError(msg)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def new_token() -> str:
    """A token that cannot be guessed."""
    return secrets.token_urlsafe(24)


def file_for(folder: Path, target: str) -> Path | None:
    """The file that a request means, None where it must not be given.

    What counts is where the path really leads: links are followed first, then it must still be below the folder.
    """
    text = unquote(urlsplit(target).path, errors="surrogateescape")  # a name need not be UTF-8
    parts = PurePosixPath(text).parts[1:]
    if not text.startswith("/") or "\\" in text or "\0" in text or any(part.startswith(".") for part in parts):
        return None
    try:
        path = folder.joinpath(*parts).resolve(strict=True)
    except (OSError, ValueError, RuntimeError):
        return None
    inside = path.is_relative_to(folder) and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    return path if inside and path.is_file() and path.suffix in _SERVED else None


class _Handler(BaseHTTPRequestHandler):
    server: ReportServer
    server_version = "torchstone"
    sys_version = ""
    default_request_version = "HTTP/1.0"  # of a request without one: with 0.9 the answer would have no headers
    timeout = 30
    _tag = ""  # of the content of the answer; another one after every change
    _HEADERS: ClassVar = {
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "X-Frame-Options": "DENY",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cache-Control": "no-cache",
        # a page is one file: what it shows and runs is inside it, and all it asks for is whether that file has changed
        "Content-Security-Policy": (
            "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src 'self' data: blob:; "
            "connect-src 'self'; font-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        ),
    }

    def do_GET(self) -> None:
        """Answer with the index or a file."""
        self._answer()

    def do_HEAD(self) -> None:
        """As GET, without the content."""
        self._answer()

    def _answer(self) -> None:
        try:
            urlsplit(self.path)
        except ValueError:  # an address such as //[
            self._refuse(HTTPStatus.BAD_REQUEST, "The address of the request cannot be read.")
            return
        if len(self.headers.get_all("Host", [])) > 1:
            self._refuse(HTTPStatus.BAD_REQUEST, "The request names more than one host.")
            return
        if not self._host_is_ours():
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST, "This server does not answer for that host name.")
        elif not self._token_is_right():
            self._refuse(
                HTTPStatus.FORBIDDEN, "The token is missing or wrong: use the address that torchstone serve printed."
            )
        elif urlsplit(self.path).path == "/":
            self._send(HTTPStatus.OK, "text/html; charset=utf-8", render_index(self.server.folder))
        else:
            path = file_for(self.server.folder, self.path)
            if path is None:
                self._refuse(HTTPStatus.NOT_FOUND, "There is no such report.")
            else:
                self._send_file(path)

    def _host_is_ours(self) -> bool:
        """A page elsewhere can make a name point at this machine; only names that mean us are answered."""
        named = f"//{self.headers.get('Host', '')}" if self.path.startswith("/") else self.path  # as a proxy is asked
        try:
            asked = urlsplit(named).hostname or ""
        except ValueError:  # a bracket that is not closed
            return False
        return is_loopback(asked) or (asked == self.server.host and bool(self.server.token)) or self._any_host(asked)

    def _any_host(self, asked: str) -> bool:
        """Bound to every address: any literal address is ours, and the token still has to be right."""
        if self.server.host not in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
            return False
        try:
            return bool(ip_address(asked))
        except ValueError:
            return False

    def _token_is_right(self) -> bool:
        if not self.server.token:
            return True
        given = parse_qs(urlsplit(self.path).query).get("token", [""])[0] or self._cookie()
        return secrets.compare_digest(given.encode(), self.server.token.encode())

    def _cookie(self) -> str:
        pairs = (pair.strip().partition("=") for pair in self.headers.get("Cookie", "").split(";"))
        return next((value for name, _, value in pairs if name == _COOKIE), "")

    def _send_file(self, path: Path) -> None:
        try:
            opened = path.open("rb")
        except OSError:  # removed since it was looked for, or not readable for this user
            self._refuse(HTTPStatus.NOT_FOUND, "There is no such report.")
            return
        with opened as file:
            about = os.fstat(file.fileno())
            size, self._tag = about.st_size, f"{about.st_mtime_ns:x}-{about.st_ino:x}-{about.st_size:x}"
            # a part of another version than the reader has would not fit to the rest
            is_current = self.headers.get("If-Range", f'"{self._tag}"') == f'"{self._tag}"'
            is_partial = self.command == "GET" and is_current
            wanted = _range_of(self.headers.get("Range", ""), size) if is_partial else None
            if wanted is None:
                self._start(HTTPStatus.OK, _type_of(path), size)
            elif not wanted:
                sentence = f"The file has {size} bytes.\n".encode()
                status = HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE
                self._start(status, "text/plain; charset=utf-8", len(sentence), between=f"bytes */{size}")
                self.wfile.write(sentence)
                return
            else:
                between = f"bytes {wanted.start}-{wanted.stop - 1}/{size}"
                self._start(HTTPStatus.PARTIAL_CONTENT, _type_of(path), len(wanted), between=between)
            if self.command != "HEAD":
                self._copy(file, wanted if wanted is not None else range(size))

    def _copy(self, file: BinaryIO, wanted: range) -> None:
        file.seek(wanted.start)
        left = len(wanted)
        while left and (piece := file.read(min(left, _PIECE_BYTES))):
            self.wfile.write(piece)
            left -= len(piece)

    def _send(self, status: HTTPStatus, content_type: str, content: bytes) -> None:
        self._tag = sha256(content).hexdigest()[:32] if status is HTTPStatus.OK else ""
        self._start(status, content_type, len(content))
        if self.command != "HEAD":
            self.wfile.write(content)

    def _refuse(self, status: HTTPStatus, sentence: str) -> None:
        self._send(status, "text/plain; charset=utf-8", f"{sentence}\n".encode())

    def end_headers(self) -> None:
        """Send the headers of every answer, those of malformed requests included."""
        for name, value in self._HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def _start(self, status: HTTPStatus, content_type: str, length: int, *, between: str = "") -> None:
        self.send_response(status)
        if between:
            self.send_header("Content-Range", between)
        self.send_header("Accept-Ranges", "bytes")
        if self._tag:
            self.send_header("ETag", f'"{self._tag}"')
        if self.server.token and status is HTTPStatus.OK:
            self.send_header("Set-Cookie", f"{_COOKIE}={self.server.token}; HttpOnly; SameSite=Strict; Path=/")
        if self._tag:
            self.send_header("Set-Cookie", f"{_LIVE}=1; SameSite=Strict; Path=/")
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Say nothing: the terminal shows the address, not each request."""


def _range_of(header: str, size: int) -> range | None:
    """The bytes that a request asks for, an empty range where there are none; None: the whole file."""
    found = _RANGE.fullmatch(header.strip())
    if found is None or not any(found.groups()):
        return None
    first, last = found.groups()
    if not first:  # the last bytes
        return range(max(0, size - int(last)), size)
    if last and int(last) < int(first):  # not a range
        return None
    return range(int(first), min(int(last) + 1 if last else size, size))


def _type_of(path: Path) -> str:
    return _SHOWN_AS_TEXT.get(path.suffix) or guess_type(path.name)[0] or "application/octet-stream"
