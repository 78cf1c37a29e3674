"""The server is attacked here the way a hostile page, neighbour or link would do it."""

import os
import re
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from threading import Thread

import pytest

from tests.attacks.rights import without_override
from tests.report.folders import page_of
from tests.report.traces import one_op
from torchstone.errors import InputError
from torchstone.record.codec import write_atomically
from torchstone.report.server import ReportServer, file_for, is_loopback, new_token, open_server

SECRET = "the secret"  # noqa: S105 - what must never be served


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secret.json").write_text(SECRET)
    inside = tmp_path / "reports"
    page_of(one_op(), inside / "run")
    (inside / ".env.json").write_text(SECRET)
    (inside / "key.pem").write_text(SECRET)
    (inside / ".git").mkdir()
    (inside / ".git" / "config.txt").write_text(SECRET)
    (inside / "link.json").symlink_to(tmp_path / "secret.json")
    (inside / "up").symlink_to(tmp_path)
    (inside / "hidden.json").symlink_to(inside / ".env.json")
    return inside


@contextmanager
def serving(folder: Path, *, token: str = "") -> Iterator[ReportServer]:
    with open_server(folder, host="127.0.0.1", port=20_000, token=token) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def ask(
    server: ReportServer, target: str, *, method: str = "GET", host: str = "", cookie: str = ""
) -> tuple[HTTPResponse, bytes]:
    connection = HTTPConnection("127.0.0.1", server.port, timeout=600)
    connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
    connection.putheader("Host", host or f"127.0.0.1:{server.port}")
    if cookie:
        connection.putheader("Cookie", cookie)
    connection.endheaders()
    response = connection.getresponse()
    content = response.read()
    connection.close()
    return response, content


def test_the_index_and_its_reports_are_given(folder: Path) -> None:
    with serving(folder) as server:
        index, content = ask(server, "/")
        page, html = ask(server, "/run/report.html")

    assert (index.status, page.status) == (200, 200)
    assert b"run/report.html" in content
    assert html == (folder / "run" / "report.html").read_bytes()
    assert page.headers["X-Content-Type-Options"] == "nosniff"
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"


@pytest.mark.parametrize(
    "target",
    [
        "/../secret.json", "/run/../../secret.json", "/%2e%2e/secret.json", "/..%2fsecret.json",
        "/%2e%2e%2fsecret.json",
        "/..%5csecret.json", "/..\\secret.json", "/%252e%252e/secret.json", "//secret.json", "/run/%00/secret.json",
        "/link.json", "/up/secret.json", "/up", "/.env.json", "/.git/config.txt", "/hidden.json", "/key.pem", "/run",
        "/run/", "/nothing.html", "/./.env.json", "/%2eenv.json", "http://127.0.0.1/../secret.json",
        "/run/..;/.env.json",
        "/\u00e9.json", "/" + "a" * 5000,
    ],
)  # fmt: skip
def test_there_is_no_way_out_of_the_folder(folder: Path, target: str) -> None:
    with serving(folder) as server, socket.create_connection(("127.0.0.1", server.port), timeout=600) as raw:
        raw.sendall(f"GET {target} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
        answer = b"".join(iter(lambda: raw.recv(65_536), b""))

    assert SECRET.encode() not in answer
    assert answer.split(b" ")[1] in (b"404", b"400", b"414")


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:20000", "127.0.0.1.evil.example", "192.168.0.1", "[::2]"]
)
def test_a_name_that_only_points_here_is_not_answered(folder: Path, host: str) -> None:
    with serving(folder) as server:
        response, content = ask(server, "/run/report.html", host=host)

    assert response.status == 421
    assert b"<html" not in content


@pytest.mark.parametrize("host", ["localhost", "localhost:1234", "127.0.0.1", "[::1]:99"])
def test_names_of_this_machine_are_answered(folder: Path, host: str) -> None:
    with serving(folder) as server:
        assert ask(server, "/", host=host)[0].status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND"])
def test_nothing_can_be_changed(folder: Path, method: str) -> None:
    with serving(folder) as server:
        response, content = ask(server, "/run/report.html", method=method)

    assert response.status == 501
    assert (folder / "run" / "report.html").is_file()
    assert b"<script" not in content


def test_head_gives_the_length_and_no_content(folder: Path) -> None:
    with serving(folder) as server:
        response, content = ask(server, "/run/report.html", method="HEAD")

    assert int(response.headers["Content-Length"]) == (folder / "run" / "report.html").stat().st_size
    assert content == b""


def test_with_a_token_nothing_is_given_without_it(folder: Path) -> None:
    token = new_token()
    with serving(folder, token=token) as server:
        for target in (
            "/",
            "/run/report.html",
            "/?token=",
            "/?token=wrong",
            f"/?token={token[:-1]}",
            "/?Token=" + token,
        ):
            assert ask(server, target)[0].status == 403
        assert ask(server, "/", cookie="torchstone_token=wrong")[0].status == 403

        first, _ = ask(server, f"/?token={token}")
        cookie = first.headers["Set-Cookie"]
        assert ask(server, "/run/report.html", cookie=cookie.partition(";")[0])[0].status == 200

    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert server.url.endswith(f"/?token={token}")


def test_a_host_that_others_can_reach_needs_a_token(folder: Path) -> None:
    with pytest.raises(InputError, match="add --token"):
        open_server(folder, host="0.0.0.0", port=20_000, token="")  # noqa: S104 - refused


def test_a_port_in_use_is_passed_over(folder: Path) -> None:
    with serving(folder) as first, serving(folder) as second:
        assert second.port != first.port


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a folder"):
        open_server(tmp_path / "missing", host="127.0.0.1", port=20_000, token="")


def test_a_reader_who_goes_away_harms_nobody(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with serving(folder) as server:
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", server.port), timeout=600) as raw:
                raw.sendall(b"GET /run/rep")
        assert ask(server, "/")[0].status == 200
    assert "Traceback" not in capfd.readouterr().err


def test_only_what_means_this_machine_is_loopback() -> None:
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "127.9.9.9", "::1")))
    assert not any(map(is_loopback, ("", "0.0.0.0", "localhost.evil", "10.0.0.1", "::")))  # noqa: S104 - compared


def test_a_path_is_judged_by_where_it_leads(folder: Path) -> None:
    assert file_for(folder.resolve(), "/run/report.html?x=1#y") == folder.resolve() / "run" / "report.html"
    assert file_for(folder.resolve(), "/link.json") is None


def raw(server: ReportServer, request: bytes) -> bytes:
    """What the server answers to bytes that need not be HTTP."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=600) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET / HTTP/1.1\r\nHost: [\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: [::1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: ]:80\r\n\r\n",
        b"GET //[ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET http://[/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 500 + b"\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -5\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nx",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n",
        b"GET http://evil.example/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nA: " + b"a" * 70_000 + b"\r\n\r\n",
        b"GET /run/report.html\0 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET * HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    ],
)
def test_a_malformed_request_is_refused_without_a_traceback(
    folder: Path, request_bytes: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    with serving(folder) as server:
        answer = raw(server, request_bytes)
        again, _ = ask(server, "/")

    assert re.match(rb"HTTP/1\.\d [45]\d\d ", answer)
    assert b"Content-Security-Policy: default-src 'none'" in answer
    assert again.status == 200
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("target", ["/", "/run/report.html", "/nothing.html"])
def test_every_answer_restricts_what_a_page_may_load(folder: Path, target: str) -> None:
    with serving(folder) as server:
        response, _ = ask(server, target)

    assert response.headers["Content-Security-Policy"].startswith("default-src 'none'; ")


@pytest.mark.parametrize(
    ("wanted", "status", "piece"),
    [
        ("bytes=0-3", 206, slice(0, 4)),
        ("bytes=5-", 206, slice(5, None)),
        ("bytes=-4", 206, slice(-4, None)),
        ("bytes=0-99999999999", 206, slice(None)),
        ("bytes=99999999999-", 416, None),
        ("bytes=-0", 416, None),
        ("bytes=5-2", 200, slice(None)),
        ("bytes=99999999999999999999-", 200, slice(None)),
        ("bytes=0-1,3-4", 200, slice(None)),
        ("lines=0-1", 200, slice(None)),
        ("bytes=-", 200, slice(None)),
    ],
)
def test_a_part_of_a_file_can_be_asked_for(folder: Path, wanted: str, status: int, piece: slice | None) -> None:
    whole = (folder / "run" / "report.html").read_bytes()
    with serving(folder) as server:
        request = f"GET /run/report.html HTTP/1.1\r\nHost: 127.0.0.1\r\nRange: {wanted}\r\n\r\n"
        head, _, content = raw(server, request.encode()).partition(b"\r\n\r\n")

    assert int(head.split()[1]) == status
    if piece is not None:
        assert content == whole[piece]
    else:
        assert f"Content-Range: bytes */{len(whole)}\r\n".encode() in head


@pytest.mark.parametrize(
    ("method", "header", "status"),
    [
        ("HEAD", "Range: bytes=0-3", 200),  # a range is one of the content, and there is none
        ("GET", 'Range: bytes=0-3\r\nIf-Range: "another"', 200),
        ("GET", "Range: bytes=0-3\r\nIf-Range: Wed, 21 Oct 2015 07:28:00 GMT", 200),
        ("GET", "Range: bytes=0-3\r\nIf-Range: {tag}", 206),
    ],
)
def test_a_part_is_given_only_of_the_content_that_the_reader_has(
    folder: Path, method: str, header: str, status: int
) -> None:
    with serving(folder) as server:
        tag = ask(server, "/run/report.html")[0].headers["ETag"]
        lines = header.format(tag=tag)
        answer = raw(server, f"{method} /run/report.html HTTP/1.1\r\nHost: 127.0.0.1\r\n{lines}\r\n\r\n".encode())

    assert int(answer.split()[1]) == status


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are text elsewhere")
def test_files_that_cannot_be_given_do_not_keep_the_others_from_being_listed(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "circle.html").symlink_to("circle.html")
    (folder / "dangling.html").symlink_to("nowhere.html")
    os.mkfifo(folder / "pipe.html")
    (folder / "folder.html").mkdir()
    (folder / "caf\udce9.html").write_text("x")
    with serving(folder) as server:
        index, content = ask(server, "/")
        names = ("circle", "dangling", "pipe", "folder")
        statuses = [ask(server, f"/{name}.html")[0].status for name in names]
        odd, _ = ask(server, "/caf%E9.html")

    assert index.status == 200
    assert b"run/report.html" in content
    assert not any(f"{name}.html".encode() in content for name in names)
    assert statuses == [404] * 4
    assert b'"/caf%E9.html"' in content
    assert odd.status == 200
    assert capfd.readouterr().err == ""


@pytest.mark.skipif(sys.platform != "linux", reason="it is Linux's")
def test_a_page_that_this_user_may_not_read_is_not_found(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "run" / "report.html").chmod(0)
    with without_override(), serving(folder) as server:
        assert ask(server, "/run/report.html")[0].status == 404
    assert capfd.readouterr().err == ""


def test_slow_requests_do_not_keep_others_waiting(folder: Path) -> None:
    with serving(folder) as server, ExitStack() as opened:
        for _ in range(100):
            slow = opened.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=600))
            slow.sendall(b"GET / HTTP/1.1\r\nX")
        assert ask(server, "/")[0].status == 200


def test_the_address_of_ipv6_is_served(folder: Path) -> None:
    try:
        server = open_server(folder, host="::1", port=20_000, token="")
    except InputError as error:
        pytest.skip(f"no IPv6 here: {error}")
    with server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        connection = HTTPConnection("::1", server.port, timeout=600)
        connection.request("GET", "/")
        status = connection.getresponse().status
        connection.close()
        server.shutdown()
        thread.join()

    assert status == 200
    assert server.url.startswith("http://[::1]:")


def test_an_answer_says_when_its_content_has_changed(folder: Path) -> None:
    page = folder / "run" / "report.html"
    with serving(folder) as server:
        tags: list[str | None] = []
        for content in ("first", "again", "again"):
            if not tags or content != "again" or len(tags) == 1:
                write_atomically(page, content.encode())
            tags.append(ask(server, "/run/report.html")[0].headers["ETag"])
        missing, _ = ask(server, "/nothing.html")
        index = [ask(server, "/")[0].headers["ETag"] for _ in range(2)]
        write_atomically(folder / "other.html", b"new")
        changed = ask(server, "/")[0].headers["ETag"]

    assert tags[0] != tags[1] == tags[2]
    assert missing.headers["ETag"] is None
    assert index[0] == index[1] != changed
