"""The server of a report: the page on loopback, live, for one person and only to read.

Whoever can reach the port needs the token, which is in the URL that the command prints. A page of
another site can neither read an answer (no CORS headers, and requests with its origin are refused)
nor reach the server under a name of its own (the host is checked). No request changes anything.
"""

from __future__ import annotations

import hmac
import json
import secrets
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from fsspeckit.report.live import live_state
from fsspeckit.report.model import report_model
from fsspeckit.report.page import content_policy, encode_model, fill_page, load_template

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fsspeckit.storage import Storage

HOST = "127.0.0.1"
_NAMES = ("127.0.0.1", "localhost")
_TOKEN_BYTES = 32
_LOCAL_SECONDS, _REMOTE_SECONDS = 0.5, 5.0
"""How long an answer about what happens is good for: on a store, each one costs requests."""

_SOCKET_SECONDS = 30.0
_HTML, _JSON, _TEXT = "text/html; charset=utf-8", "application/json", "text/plain; charset=utf-8"
_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class ReportServer:
    """Serves the report of one dataset until it is closed.

    Args:
        storage: The dataset.
        key_columns: Whose ranges to show; None for those of the last merge.
        port: The port on loopback; 0 for any that is free.

    Raises:
        FileNotFoundError: If there is no such dataset.
        OSError: If the port is in use.
    """

    def __init__(
        self, storage: Storage, key_columns: Sequence[str] | None = None, port: int = 0
    ) -> None:
        self.token = secrets.token_urlsafe(_TOKEN_BYTES)
        self._server = _Server(port, self.token, _Answers(storage, key_columns))

    @property
    def port(self) -> int:
        """The port."""
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """What to open in a browser; whoever has it can read the report."""
        return f"http://{HOST}:{self.port}/?token={self.token}"

    def run(self) -> None:
        """Serve until `stop` is called from another thread, or Ctrl-C."""
        self._server.serve_forever(poll_interval=0.2)

    def stop(self) -> None:
        """End `run`."""
        self._server.shutdown()

    def close(self) -> None:
        """Close the port."""
        self._server.server_close()


class _Answers:
    """What the server answers, made again when it has become old."""

    def __init__(self, storage: Storage, key_columns: Sequence[str] | None) -> None:
        self._storage = storage
        self._key_columns = key_columns
        self._template = load_template()
        self.policy = content_policy(self._template, connect=True) + "; frame-ancestors 'none'"
        seconds = _LOCAL_SECONDS if storage.root.is_local else _REMOTE_SECONDS
        self._live = _Remembered(lambda: live_state(storage), seconds)
        self._model = _Remembered(self._make_model, seconds)
        self._model.get()  # what is wrong with the call is said at once

    def _make_model(self) -> dict[str, Any]:
        return report_model(self._storage, self._key_columns, live=True)

    def page(self) -> bytes:
        """The page with the model in it."""
        return fill_page(self._model.get(), template=self._template).encode()

    def model(self) -> bytes:
        """The model alone."""
        return encode_model(self._model.get()).encode()

    def live(self) -> bytes:
        """What happens just now."""
        return encode_model(self._live.get()).encode()


class _Remembered:
    """A value that is made at most every so many seconds, by one thread at a time."""

    def __init__(self, make: Callable[[], dict[str, Any]], seconds: float) -> None:
        self._make = make
        self._seconds = seconds
        self._lock = threading.Lock()
        self._value: dict[str, Any] = {}
        self._made = float("-inf")

    def get(self) -> dict[str, Any]:
        with self._lock:
            if time.monotonic() - self._made >= self._seconds:
                self._value = self._make()
                self._made = time.monotonic()
            return self._value


class _Server(ThreadingHTTPServer):
    """Listens on loopback."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, port: int, token: str, answers: _Answers) -> None:
        self.token = token
        self.answers = answers
        self.routes: dict[str, tuple[str, Callable[[], bytes]]] = {
            "/": (_HTML, answers.page),
            "/data": (_JSON, answers.model),
            "/events": (_JSON, answers.live),
        }
        super().__init__((HOST, port), _Handler)
        self.hosts = {f"{name}:{self.server_address[1]}" for name in _NAMES}

    def is_allowed(self, query: str, host: str | None, origin: str | None) -> bool:
        """Whether a request has the token, names this server, and comes from its own page."""
        given = parse_qs(query).get("token", [""])
        is_known = len(given) == 1 and hmac.compare_digest(
            given[0].encode(errors="surrogatepass"), self.token.encode()
        )
        is_own = origin is None or origin in {f"http://{name}" for name in self.hosts}
        return is_known and is_own and host in self.hosts

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore browsers that leave in the middle of an answer."""


class _Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    server: _Server
    server_version = "fsspeckit"
    sys_version = ""
    protocol_version = "HTTP/1.1"
    timeout = _SOCKET_SECONDS

    def do_GET(self) -> None:
        """Answer, or say why not."""
        url = urlsplit(self.path)
        headers = self.headers
        if not self.server.is_allowed(url.query, headers.get("Host"), headers.get("Origin")):
            self._send(HTTPStatus.FORBIDDEN, _TEXT, b"forbidden\n")
            return
        route = self.server.routes.get(url.path)
        if route is None:
            self._send(HTTPStatus.NOT_FOUND, _TEXT, b"not found\n")
            return
        kind, make = route
        try:
            status, body = HTTPStatus.OK, make()
        except Exception as error:  # whatever it is, the page says so and asks again
            status, kind = HTTPStatus.SERVICE_UNAVAILABLE, _JSON
            body = json.dumps({"error": str(error)}).encode()
        self._send(status, kind, body)

    do_HEAD = do_GET

    def do_POST(self) -> None:
        """Refuse what is not a request to read."""
        self.close_connection = True  # its body is not read
        self._send(HTTPStatus.METHOD_NOT_ALLOWED, _TEXT, b"only GET and HEAD\n")

    do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_TRACE = do_CONNECT = do_POST

    def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        for name, value in {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Content-Security-Policy": self.server.answers.policy,
            **_HEADERS,
        }.items():
            self.send_header(name, value)
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Print nothing: requests have the token in them."""
